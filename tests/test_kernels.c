/* SPDX-License-Identifier: MIT
 *
 * Every kernel of the registry, on every shape, with every rule, with exact and with real
 * gradients, against the oracle. No kernel is named here. One rule of each shape runs in every way
 * there is (threads, orders of an emulated device), another one from shape to shape; the others run
 * in one way each, and the next one on the next shape: a way to run has little to do with a rule.
 */
#include "tests/shapes.h"

#include "tests/kernel_tests.h"

/* The kernel's rule `first` on table 0, the next one on table 1, and so on; ways `from` to below
 * `to`. */
static void check_ways(struct builder *b, const struct kernel *k, enum rule_kind first, int from,
                       int to) {
    builder_rules(b, k, first);
    for (int i = from; i < to; i++) {
        const char *wrong = builder_check(b, k, builder_way[i]);
        if (wrong) fail_msg("%s", wrong);
    }
}

static void check_rules(struct builder *b, const struct kernel *k, int shape) {
    const int ways = builder_ways(k);
    int thorough = shape % RULE_COUNT;
    while (!kernel_applies(k, (enum rule_kind)thorough)) thorough = (thorough + 1) % RULE_COUNT;
    for (int rule = 0; rule < RULE_COUNT; rule++) {
        const int way = (rule + shape) % ways;
        if (!kernel_applies(k, (enum rule_kind)rule)) continue;
        if (rule == thorough)
            check_ways(b, k, (enum rule_kind)rule, 0, ways);
        else
            check_ways(b, k, (enum rule_kind)rule, way, way + 1);
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
        assert_true(b.sums_exact == exact); /* otherwise the check is not as sharp as it says */
        check_rules(&b, test->kernel, (int)(s - shapes));
        builder_free(&b);
    }
}

int main(void) {
    for (int i = 0; i < num_shapes; i++) add_kernel_tests(shapes[i].name, right, &shapes[i]);
    return run_listed("kernels");
}
