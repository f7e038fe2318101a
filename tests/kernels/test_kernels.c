/* SPDX-License-Identifier: MIT
 *
 * Every kernel of the registry on every shape, with exact and with real gradients, against the
 * oracle. No kernel is named here.
 *
 * All rules in all ways would take too long. Each shape gets one rule of each class: one of them in
 * every way (numbers of threads, orders of an emulated device), the others in one way. Some shapes
 * get all rules; fewer where rules take turns. The choice changes from shape to shape.
 */
#include <string.h>

#include "tests/support/shapes.h"

#include "tests/support/kernel_tests.h"

/* What a kernel can tell apart: elements on their own, sums over the row before the step, or after. */
enum { CLASSES = 3 };

static int class_of(enum rule_kind rule) {
    return rule_sums_after(rule) ? 2 : rule_sums_before(rule) || rule_row_states(rule) ? 1 : 0;
}

/* That rule on table 0, the next on table 1, ...; ways to store rows also rotate. */
static void check_rule(struct builder *b, const struct kernel *k, enum rule_kind rule, int round,
                       bool every_way) {
    const int ways = builder_ways(k);
    builder_rules(b, k, rule);
    builder_storage(b, k, round + round / STORAGES + (int)rule);
    for (int way = 0; way < ways; way++) {
        if (!every_way && way != (round + (int)rule) % ways) continue;
        const char *wrong = builder_check(b, k, builder_way[way]);
        if (wrong) fail_msg("%s", wrong);
    }
}

static void check_rules(struct builder *b, const struct kernel *k, int round) {
    const bool turns = builder_rules_take_turns(k);
    int members[CLASSES] = {0}, seen[CLASSES] = {0};
    for (int r = 0; r < RULE_COUNT; r++) members[class_of(r)] += kernel_applies(k, r);
    for (int r = 0; r < RULE_COUNT; r++) {
        if (!kernel_applies(k, r)) continue;
        const int c = class_of(r), nth = seen[c]++;
        bool chosen = nth == round / CLASSES % members[c];
        /* An emulated thread costs 80 ns with AddressSanitizer, 16 us with ThreadSanitizer: one class has its turn. */
        if (turns && k->place == ON_DEVICE) chosen &= c == round / 2 % CLASSES;
        if (chosen || round % (turns ? 96 : 24) == 0)
            check_rule(b, k, r, round, chosen && c == round % CLASSES);
    }
}

/* A dense step sweeps every row, on a device with a thread each. With ThreadSanitizer that takes seconds, and the
 * sweep of a small table has the same races. */
static bool takes_too_long(const struct kernel *k, const struct builder *b) {
    enum { SWEPT_MOST = 4096 };
    int64_t rows = 0;
    for (int32_t t = 0; t < b->in.num_tables; t++) rows += b->in.tables[t].rows;
    return WITH_THREAD_SANITIZER && k->traits & DENSE_STEP && builder_emulates(k) &&
           rows > SWEPT_MOST;
}

static void right(void **state) {
    const struct kernel_test *test = *state;
    const struct shape *s = test->param;
    for (int exact = 0; exact < 2; exact++) {
        if (s->modes == (exact ? REAL_ONLY : EXACT_ONLY)) continue;
        /* Values make neither races nor wild addresses. */
        if (WITH_SANITIZER && exact && s->modes != EXACT_ONLY) continue;
        struct builder b;
        shape_build(s, test->kernel, exact, &b);
        if (takes_too_long(test->kernel, &b)) {
            builder_free(&b);
            skip();
        }
        assert_true(b.sums_exact == exact); /* otherwise the check is less sharp than it claims */
        check_rules(&b, test->kernel, 2 * (int)(s - shapes) + exact);
        builder_free(&b);
    }
}

TESTS(kernels) {
    for (int i = 0; i < num_shapes; i++) {
        /* Sanitizers are slow, and tests/kernels/test_max.c runs with them too. */
        const bool left_out = WITH_SANITIZER && strncmp(shapes[i].name, "max", 3) == 0 && i % 4;
        if (!left_out) add_kernel_tests(shapes[i].name, right, &shapes[i]);
    }
    return run_listed("kernels");
}
