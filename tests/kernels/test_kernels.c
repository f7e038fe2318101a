/* SPDX-License-Identifier: MIT
 *
 * Every kernel of every operation on every shape against the oracle. No kernel is named here.
 *
 * All rules in all ways would take too long. A step takes one rule of each class, and tables go on
 * from it to the next rules. On a pinned shape one of the three runs on the host in every way
 * (numbers of threads, orders of an emulated device); on a large one it runs alone, in one way; on a
 * drawn one all are drawn. An emulated
 * device gets half of the drawn shapes.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/measure/runner.h"
#include "kernels/forward.h"
#include "tests/support/batch_builder.h"
#include "tests/support/shapes.h"

#include "tests/support/kernel_tests.h"

enum { DRAWS = 60 };

/* A batch to test a kernel on. */
struct trial {
    const struct kernel *k;
    const struct shape *s;
    struct builder *b;
    int round;      /* choices differ from round to round */
    bool every_way; /* whatever the rule */
};

static void fail_on(const struct trial *t, const char *what) {
    if (t->s->seed)
        fail_msg("SEED=%llu repeats it: %s", (unsigned long long)t->s->seed, what);
    else
        fail_msg("%s", what);
}

/* The way of this trial, of a number of them that belongs to `what`; in a round of every way that
 * very one. */
static bool in_turn(const struct trial *t, int way, int what, bool every_way) {
    return every_way || t->every_way || way == (t->round + what) % builder_ways(t->k);
}

/* --- steps */

/* What a kernel can tell apart: elements on their own, sums over the row before the step, or
 * after. */
enum { CLASSES = 3 };

static int class_of(enum rule_kind rule) {
    return rule_sums_after(rule) ? 2 : rule_sums_before(rule) || rule_row_states(rule) ? 1 : 0;
}

static void check_rule(const struct trial *t, enum rule_kind rule, bool every_way) {
    const bool adjusts = shape_dress(t->s, t->k, rule, t->b);
    for (int way = 0; way < builder_ways(t->k); way++) {
        if (!in_turn(t, way, (int)rule, every_way)) continue;
        const char *wrong = builder_check(t->b, t->k, builder_way[way]);
        /* Sums that may be 0 decide nothing about a rule that divides by the length of a row. */
        if (wrong && !(adjusts && !t->b->sums_exact && strstr(wrong, "undecided")))
            fail_on(t, wrong);
    }
}

static void check_rules(const struct trial *t) {
    int members[CLASSES] = {0}, seen[CLASSES] = {0};
    const bool host = t->k->place == ON_HOST;
    const bool few = t->b->in.lookups < (host ? 1000 : 200); /* fast, but races are rare */
    const bool many = t->b->in.lookups > 20000;              /* slow: one class has its turn */
    for (int r = 0; r < RULE_COUNT; r++) members[class_of(r)] += kernel_applies(t->k, r);
    for (int r = 0; r < RULE_COUNT; r++) {
        if (!kernel_applies(t->k, r)) continue;
        const int c = class_of(r), nth = seen[c]++;
        /* With a sanitizer device code is slow: one class has its turn. */
        if ((many || (builder_rules_take_turns(t->k) && !host)) && c != t->round % CLASSES)
            continue;
        if (nth == t->round / CLASSES % members[c])
            check_rule(t, r, !t->s->seed && (few || (host && !many && c == t->round % CLASSES)));
    }
}

/* A plan has only the ids: there is no gradient yet, and no table. One plan serves several steps,
 * with gradients that come to lie elsewhere; each gives the bits that the step with a plan of its
 * own gave. */
static void check_plan(const struct trial *t) {
    struct builder *b = t->b;
    struct error err;
    struct buffer scratch;
    size_t bytes;
    void *expected = builder_snapshot(b, &bytes);
    struct launch how = {.threads = 2};
    if (buffer_alloc(&scratch, t->k->scratch_bytes(&b->in, how.threads), "scratch", &err))
        fail_msg("%s", err.text);
    memset(scratch.data, POISON, scratch.bytes);
    how.scratch = scratch.data;
    struct batch early = b->in;
    early.grad = NULL;
    assert_int_equal(t->k->plan(&early, &how), 0);
    memset(&early, 0x7f, sizeof early); /* the plan keeps no pointer to its batch */
    struct rule_step *steps = malloc((size_t)b->in.num_tables * sizeof *steps);
    for (int32_t i = 0; i < b->in.num_tables; i++) steps[i] = rule_step(b->rules[i], b->step);
    const size_t grad_bytes = (size_t)(b->in.grad_elements * dtype_bytes(b->in.grad_type));
    for (int run = 0; run < 2; run++) {
        struct batch now = b->in;
        void *moved = malloc(grad_bytes + 1);
        memcpy(moved, b->in.grad, grad_bytes);
        now.grad = moved;
        builder_start(b);
        assert_int_equal(t->k->run(&now, steps, b->tables.tables, &how), 0);
        void *after = builder_snapshot(b, &bytes);
        if (memcmp(after, expected, bytes)) fail_on(t, "a plan made ahead gives other bits");
        free(after);
        free(moved);
    }
    assert_true(buffer_intact(&scratch));
    free(steps);
    buffer_free(&scratch);
    free(expected);
}

static void check_step(const struct trial *t) {
    check_rules(t);
    if (t->k->plan && t->k->place == ON_HOST) check_plan(t);
}

/* --- other operations */

/* Weights for a batch without: some are 0. */
static void weigh(struct builder *b) {
    static const float some[] = {0.5f, 0, -1, 2, 1};
    if (b->in.lookup_weights) return;
    float *w = malloc((size_t)b->in.lookups * sizeof *w);
    assert_true(w || b->in.lookups == 0);
    for (int64_t i = 0; i < b->in.lookups; i++) w[i] = some[i % 5];
    b->in.lookup_weights = w;
    builder_recount(b);
}

static void check_output(const struct trial *t) {
    char text[400], said[500];
    if (t->k->operation == OP_WEIGHT_GRAD) {
        if (has_pooling(&t->b->in, POOL_MAX)) return; /* it takes no weights */
        weigh(t->b);
    }
    for (int way = 0; way < builder_ways(t->k); way++) {
        if (!in_turn(t, way, 0, !t->s->seed)) continue;
        shape_dress(t->s, t->k, (enum rule_kind)way, t->b);
        builder_start(t->b);
        if (output_run(t->b, t->k, builder_way[way], NULL, text) == 0) continue;
        snprintf(said, sizeof said, "%s: %s", builder_name_way(t->k, builder_way[way]), text);
        fail_on(t, said);
    }
}

/* --- shapes */

static void check_shape(const struct shape *s, const struct kernel *k, int round, bool every_way) {
    for (int exact = 0; exact < 2; exact++) {
        if (s->modes == (exact ? REAL_ONLY : EXACT_ONLY)) continue;
        /* Values make neither races nor wild addresses. */
        if (WITH_SANITIZER && exact && s->modes != EXACT_ONLY) continue;
        struct builder b;
        const struct trial t = {k, s, &b, 2 * round + exact, every_way};
        shape_build(s, k, exact, &b);
        if (b.sums_exact != exact) fail_on(&t, "the check is less sharp than it claims");
        (k->operation == OP_STEP ? check_step : check_output)(&t);
        builder_free(&b);
    }
}

static bool takes(const struct kernel *k, const struct shape *s) {
    const bool sorts =
        k->place == ON_DEVICE && k->operation == OP_STEP && k->traits & DETERMINISTIC;
    return sorts || !(s->flags & SHAPE_LARGE);
}

static int drawn_round(uint64_t seed) {
    return (int)shape_choice(seed, 0, 1000);
}

static void right_on_pinned(void **state) {
    const struct kernel_test *test = *state;
    const struct shape *s = test->param;
    check_shape(s, test->kernel, s->seed ? drawn_round(s->seed) : (int)(s - shapes), false);
}

static uint64_t running; /* the seed, until its shape has passed: a crash has no other message */

static void tell_crash(void) {
    if (running) print_message("# stopped at SEED=%llu\n", (unsigned long long)running);
    running = 0;
}

static void right_on_drawn(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    const struct draws d = shape_draws(DRAWS);
    tell_crash();
    for (uint64_t seed = d.first; seed < d.first + d.count; seed++) {
        if (builder_emulates(k) && !d.repeated && seed / 2 % 2) continue;
        const struct shape s = shape_drawn(seed);
        running = seed;
        check_shape(&s, k, drawn_round(seed), d.repeated);
        running = 0;
    }
}

TESTS(kernels) {
    for (int o = 0; o < OPERATIONS; o++) {
        add_operation_tests((enum operation)o, "drawn shapes", right_on_drawn, NULL);
        if (shape_draws(DRAWS).repeated) continue;
        const int apart = o == OP_STEP ? 1 : SHAPE_STEP;
        for (int i = 0; i < num_shapes; i += apart)
            for (const struct registered *r = registry(); r->kernel; r++)
                if ((int)r->kernel->operation == o && takes(r->kernel, &shapes[i]))
                    add_test(shapes[i].name, right_on_pinned, r->kernel, &shapes[i]);
    }
    const int status = run_listed("kernels");
    tell_crash();
    return status;
}
