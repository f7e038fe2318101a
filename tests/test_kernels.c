/* SPDX-License-Identifier: MIT
 *
 * Every kernel of the registry, on every shape, with every rule, with exact and with real
 * gradients, in several ways to run it, against the oracle. No kernel is named here.
 */
#include "tests/shapes.h"

#include "tests/kernel_tests.h"

/* The kernel's rule `first` on table 0, the next one on table 1, and so on. */
static void every_way(struct builder *b, const struct kernel *k, enum rule_kind first) {
    builder_rules(b, k, first);
    for (int i = 0; i < builder_ways(k); i++) {
        const char *wrong = builder_check(b, k, builder_way[i]);
        if (wrong) fail_msg("%s", wrong);
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
        for (int rule = 0; rule < RULE_COUNT; rule++)
            if (kernel_applies(test->kernel, (enum rule_kind)rule))
                every_way(&b, test->kernel, (enum rule_kind)rule);
        builder_free(&b);
    }
}

int main(void) {
    for (int i = 0; i < num_shapes; i++) add_kernel_tests(shapes[i].name, right, &shapes[i]);
    return run_listed("kernels");
}
