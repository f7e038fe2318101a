/* SPDX-License-Identifier: MIT
 *
 * Every kernel of the registry, on every shape, with every rule, with exact and with real
 * gradients, against the oracle. No kernel is named here.
 *
 * All rules in all ways take too long. On each shape one rule runs in every way (numbers of
 * threads, orders of an emulated device), every other rule in one. Both change between shapes.
 */
#include "tests/shapes.h"

#include "tests/kernel_tests.h"

/* Each rule of the kernel on table 0, the next on table 1, ...; types of weights also rotate. */
static void check_rules(struct builder *b, const struct kernel *k, int shape) {
    const int ways = builder_ways(k);
    int thorough = shape % RULE_COUNT;
    while (!kernel_applies(k, (enum rule_kind)thorough)) thorough = (thorough + 1) % RULE_COUNT;
    for (int rule = 0; rule < RULE_COUNT; rule++) {
        if (!kernel_applies(k, (enum rule_kind)rule)) continue;
        builder_rules(b, k, (enum rule_kind)rule);
        builder_weight_types(b, k, (enum dtype)((rule + shape / RULE_COUNT) % DTYPE_COUNT));
        for (int way = 0; way < ways; way++) {
            if (rule != thorough && way != (rule + shape) % ways) continue;
            const char *wrong = builder_check(b, k, builder_way[way]);
            if (wrong) fail_msg("%s", wrong);
        }
    }
}

static void right(void **state) {
    const struct kernel_test *test = *state;
    const struct shape *s = test->param;
    const bool races_only = WITH_THREAD_SANITIZER && builder_emulates(test->kernel);
    for (int exact = 0; exact < 2; exact++) {
        if (s->modes == (exact ? REAL_ONLY : EXACT_ONLY)) continue;
        if (races_only && exact && s->modes != EXACT_ONLY) continue; /* values do not make races */
        struct builder b;
        shape_build(s, test->kernel, exact, &b);
        assert_true(b.sums_exact == exact); /* otherwise the check is less sharp than it claims */
        check_rules(&b, test->kernel, (int)(s - shapes));
        builder_free(&b);
    }
}

int main(void) {
    for (int i = 0; i < num_shapes; i++) add_kernel_tests(shapes[i].name, right, &shapes[i]);
    return run_listed("kernels");
}
