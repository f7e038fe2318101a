/* SPDX-License-Identifier: MIT
 *
 * A model that is saved and loaded has the same bits, and goes on with the same bits: every rule
 * and every way to store it, on the host and on an emulated device, arrays larger than what is read
 * at once.
 */
#include <float.h>
#include <string.h>

#include "kernels/rules.h"
#include "extras/library/tests/state_case.h"

#include "tests/support/kernel_tests.h"

/* The second model gets the state of the first one through a file. */
static void pass(struct state_case *from, struct state_case *to, const struct work_path *file) {
    struct embfuse_error why;
    if (embfuse_save(from->model, file->text, &why) || embfuse_load(to->model, file->text, &why))
        fail_msg("%s", why.text);
    const char *what = state_case_differs(from, to);
    if (what) fail_msg("differs: %s", what);
}

static bool has_device(void) {
    return registry_find(OP_STEP, "cuda_fused", &(struct error){""}) != NULL;
}

/* A place of this number, if there is a device. */
static int32_t place(int number) {
    return number % 2 && has_device() ? EMBFUSE_DEVICE : EMBFUSE_HOST;
}

enum { STORED = 16 };

/* A table stored in way 0 .. STORED-1. */
static struct embfuse_table table_of(int rule, int way, int64_t rows, int32_t dim) {
    return (struct embfuse_table){.rows = rows,
                                  .dim = dim,
                                  .weight_type = way % 4,
                                  .momentum_type = way / 4 % 2 ? EMBFUSE_BF16 : EMBFUSE_FP32,
                                  .rounding = way / 8 % 2,
                                  .rule = rule_info_of((enum rule_kind)rule)->name};
}

/* Numbers whose text is easily wrong. */
static const float numbers[8] = {0.1f,    1e-8f,       0.118105225f, FLT_TRUE_MIN,
                                 FLT_MAX, 16777217.0f, 0.9999999f,   -1.1754942e-38f};

/* Of every way to store a table, on all pairs of places. */
static void every_rule(void **state) {
    (void)state;
    for (int way = 0; way < STORED; way++) {
        struct embfuse_table tables[RULE_COUNT];
        for (int rule = 0; rule < RULE_COUNT; rule++)
            tables[rule] = table_of(rule, rule + way, 1 + rule % 7, 1 + (rule * 5 + way) % 19);
        const int places = way + way / 4;
        const struct embfuse_options options = {
            .size = sizeof options, .rounding_seed = UINT64_MAX, .place = place(places)};
        const struct embfuse_options other = {.size = sizeof other, .place = place(places / 2)};
        const struct work_path file = state_file("every_rule");
        struct state_case from, to;
        state_case_open(&from, tables, RULE_COUNT, &options, way % 3 * 16, 1);
        state_case_open(&to, tables, RULE_COUNT, &other, way % 2 * 48, 2);
        for (int32_t t = 0; t < RULE_COUNT; t++) {
            embfuse_set_steps(from.model, t, INT64_MAX / 2 - t, NULL);
            embfuse_set(from.model, t, "lr", (double)numbers[t % 8], NULL);
            embfuse_set(from.model, t, "grad_scale", 2 + t, NULL); /* of all rules, the first */
            embfuse_set(from.model, t, "decoupled_weight_decay", 1, NULL); /* and the last one */
        }
        assert_string_equal(state_case_differs(&from, &to), "bits of a row");
        pass(&from, &to, &file);
        state_case_free(&from);
        state_case_free(&to);
    }
}

/* Several chunks, whose last one is short; rows that are larger than a chunk. */
static void large(void **state) {
    (void)state;
    const struct embfuse_table tables[] = {table_of(RULE_sgd, 3, 2, (4 << 20) + 3),
                                           table_of(RULE_rowwise_adagrad, 3, 1 << 20, 5)};
    const struct embfuse_options device = {.size = sizeof device, .place = place(1)};
    struct state_case c[3];
    for (int i = 0; i < 3; i++)
        state_case_open(&c[i], tables, 2, i == 1 ? &device : NULL, i % 2 * 16, (uint64_t)i);
    for (int i = 0; i < 2; i++) {
        const struct work_path file = state_file("large");
        pass(&c[i], &c[i + 1], &file);
    }
    state_file("large"); /* it takes 10 MB */
    for (int i = 0; i < 3; i++) state_case_free(&c[i]);
}

static void step(struct state_case *c, uint64_t n) {
    state_case_draw(c, n);
    state_case_take(c);
}

/* 2k steps of all rules at once, and k, a save, a load into another model, k more with another
 * number of threads. */
static void resume(void **state) {
    enum { K = 3 };
    const bool device = ((const struct kernel_test *)*state)->param;
    if (device && !has_device()) skip();
    struct embfuse_table tables[RULE_COUNT];
    for (int rule = 0; rule < RULE_COUNT; rule++) tables[rule] = table_of(rule, rule, 15, 7);
    struct embfuse_options options = {.size = sizeof options,
                                      .place = place(device),
                                      .threads = 3,
                                      .rounding_seed = 77,
                                      .kernel = device ? "cuda_fused" : "cpu_fused"};
    const struct work_path file = state_file("resume");
    struct state_case whole, first, second;
    state_case_open(&whole, tables, RULE_COUNT, &options, 16, 1);
    state_case_open(&first, tables, RULE_COUNT, &options, 0, 2);
    options.threads = 1;
    options.rounding_seed = 1;
    state_case_open(&second, tables, RULE_COUNT, &options, 32, 3);
    for (struct state_case *c = &whole; c; c = c == &whole ? &first : NULL) {
        state_case_begin(c, 4);
        embfuse_set(c->model, -1, "lr", 0.37, NULL);
        embfuse_set(c->model, -1, "weight_decay", 0.01, NULL);
    }
    for (uint64_t n = 0; n < 2 * K; n++) step(&whole, n);
    for (uint64_t n = 0; n < K; n++) step(&first, n);
    if (!state_case_differs(&whole, &first)) fail_msg("the steps change nothing");
    pass(&first, &second, &file);
    for (uint64_t n = K; n < 2 * K; n++) step(&second, n);
    const char *what = state_case_differs(&whole, &second);
    if (what) fail_msg("differs: %s", what);
    state_case_free(&whole);
    state_case_free(&first);
    state_case_free(&second);
}

TESTS(state) {
    add_test("every rule, stored in every way", every_rule, NULL, NULL);
    add_test("arrays larger than a chunk", large, NULL, NULL);
    add_test("resume on the host", resume, NULL, NULL);
    add_test("resume on a device", resume, NULL, "device");
    return run_listed("state");
}
