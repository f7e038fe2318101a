/* SPDX-License-Identifier: MIT
 *
 * Rows that owe something for steps that they missed. A training that touches few rows, and then catches up, has the
 * rows of one whose steps are dense: bit for bit where no decay rounds, otherwise within roundings.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "extras/library/embfuse.h"
#include "extras/library/tests/state_case.h"

#include "extras/library/tests/says.h"

enum { TABLES = 2, STEPS = 20 };

static void case_open(struct state_case *c, const char *kernel, const char *rule) {
    const struct embfuse_table tables[TABLES] = {{.rows = 900, .dim = 24, .rule = rule},
                                                 {.rows = 70, .dim = 5, .rule = rule}};
    const struct embfuse_options options = {.size = sizeof options, .kernel = kernel, .threads = 2};
    state_case_open(c, tables, TABLES, &options, 0, 1);
    state_case_begin(c, 1);
}

static void decay(struct state_case *c, double lr, double weight_decay) {
    FINE(embfuse_set(c->model, -1, "lr", lr, &why));
    FINE(embfuse_set(c->model, -1, "weight_decay", weight_decay, &why));
}

/* Batch n, whose gradients have sums that do not round. */
static void draw(struct state_case *c, uint64_t n) {
    state_case_draw(c, n);
    for (int64_t k = 0; k < c->bags * (24 + 5); k++) c->grad[k] = floorf(c->grad[k] * 16) / 64;
}

static void train(struct state_case *c, uint64_t from, uint64_t steps) {
    for (uint64_t n = from; n < from + steps; n++) {
        draw(c, n);
        state_case_take(c);
    }
}

static void expect_same_output(struct state_case *a, struct state_case *b) {
    float output[2][12 * (24 + 5)];
    FINE(embfuse_forward(a->model, &a->batch, output[0], &why));
    FINE(embfuse_forward(b->model, &b->batch, output[1], &why));
    assert_memory_equal(output[0], output[1], sizeof output[0]);
}

/* Half of a weight is kept in each step, exactly. */
static void as_dense_steps(void **state) {
    static const char *const lazy[] = {"cpu_fused", "cpu_sort", "cpu_hash"};
    (void)state;
    for (size_t i = 0; i < sizeof lazy / sizeof *lazy; i++) {
        struct state_case few, all;
        case_open(&few, lazy[i], "rowwise_adagrad_global_decay");
        case_open(&all, "cpu_dense", "rowwise_adagrad_global_decay");
        decay(&few, 0.5, 1), decay(&all, 0.5, 1);
        FINE(embfuse_catch_up(few.model, NULL,
                              &why)); /* before the first step there is nothing to do */
        for (uint64_t n = 0; n < STEPS; n += 5) {
            train(&few, n, 5), train(&all, n, 5);
            assert_non_null(state_case_differs(&few, &all));
            draw(&few, n + 5), draw(&all, n + 5);
            FINE(embfuse_catch_up(few.model, &few.batch, &why));
            expect_same_output(&few, &all);
        }
        FINE(embfuse_catch_up(few.model, NULL, &why));
        assert_null(state_case_differs(&few, &all));
        FINE(embfuse_catch_up(few.model, NULL, &why));
        assert_null(state_case_differs(&few, &all));
        state_case_free(&few);
        state_case_free(&all);
    }
}

/* A decay that rounds: in the dense training once in each step, and as often in a power. */
static void nearly_as_dense_steps(void **state) {
    struct state_case few, all;
    (void)state;
    case_open(&few, "auto", "rowwise_adagrad_global_decay");
    case_open(&all, "cpu_dense", "rowwise_adagrad_global_decay");
    decay(&few, 0.01, 0.3), decay(&all, 0.01, 0.3);
    train(&few, 0, STEPS), train(&all, 0, STEPS);
    FINE(embfuse_catch_up(few.model, NULL, &why));
    for (int t = 0; t < TABLES; t++)
        for (int64_t i = 0; i < few.tables[t].rows * few.tables[t].dim; i++) {
            const float got = ((const float *)(const void *)few.arrays[t][0].data)[i],
                        want = ((const float *)(const void *)all.arrays[t][0].data)[i];
            if (!(fabsf(got - want) <= 4 * STEPS * 0x1p-24f)) fail_msg("%.9g, not %.9g", got, want);
        }
    state_case_free(&few);
    state_case_free(&all);
}

/* Adam along the moments of the last touch: what was paid is not paid twice. */
static void paid_once(void **state) {
    struct state_case c, d;
    (void)state;
    case_open(&c, "auto", "adam_lazy_global");
    case_open(&d, "auto", "adam_lazy_global");
    train(&c, 0, STEPS), train(&d, 0, STEPS);
    FINE(embfuse_catch_up(c.model, NULL, &why));
    assert_non_null(state_case_differs(&c, &d));
    FINE(embfuse_catch_up(d.model, NULL, &why));
    FINE(embfuse_catch_up(d.model, &d.batch, &why));
    assert_null(state_case_differs(&c, &d));
    state_case_free(&c);
    state_case_free(&d);
}

static void refused(void **state) {
    struct state_case c;
    (void)state;
    case_open(&c, "auto", "adam");
    SAYS(EMBFUSE_REFUSED, "table 0: with adam no row owes", embfuse_catch_up(c.model, NULL, &why));
    state_case_free(&c);
    case_open(&c, "auto", "adam_lazy_global");
    FINE(embfuse_set_steps(c.model, 1, 3, &why));
    SAYS(EMBFUSE_INVALID, "a table has taken no step", embfuse_catch_up(c.model, NULL, &why));
    SAYS(EMBFUSE_INVALID, "model is NULL", embfuse_catch_up(NULL, NULL, &why));
    state_case_free(&c);
}

TESTS(catch_up) {
    ADD_TEST(as_dense_steps);
    ADD_TEST(nearly_as_dense_steps);
    ADD_TEST(paid_once);
    ADD_TEST(refused);
    return run_listed("catch_up");
}
