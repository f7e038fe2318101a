/* SPDX-License-Identifier: MIT
 *
 * Calls of libembfuse on a small model: results by hand, arrays, states, and scratch of the caller.
 */
#include <stdlib.h>

#include "harness/device/device.h"
#include "extras/library/tests/state_case.h"

#include "extras/library/tests/library_small.h"

static void by_hand(void **state) {
    (void)state;
    struct small s;
    double lr;
    small_open(&s, NULL);
    FINE(embfuse_forward(s.model, &s.batch, s.output, &why));
    for (int d = 0; d < DIM; d++) {
        assert_float_equal(s.output[0][d], 10 + 20 + 2 * d, 0);
        assert_float_equal(s.output[1][d], 0, 0);
        assert_float_equal(s.output[2][d], 20 + 50 + 2 * d, 0);
        assert_float_equal(s.output[0][DIM + d], 100 + d, 0); /* row 0 is no padding */
        assert_float_equal(s.output[1][DIM + d], 130 + d, 0);
        assert_float_equal(s.output[2][DIM + d], 140 + d, 0);
    }
    FINE(embfuse_set(s.model, 0, "lr", 0.5, &why));
    FINE(embfuse_set(s.model, 1, "lr", 1, &why));
    FINE(embfuse_set(s.model, 1, "eps", 0, &why));
    FINE(embfuse_get(s.model, 0, "lr", &lr, &why));
    assert_float_equal(lr, 0.5, 0);
    FINE(embfuse_step(s.model, &s.batch, s.grad, &why));
    /* Row 2 of table 0 gets gradients 1 and 3. Row 3 of table 1 gets two gradients of 2/2 each. */
    for (int d = 0; d < DIM; d++) {
        assert_float_equal(s.weight[0][1][d], 10 + d - 0.5, 0);
        assert_float_equal(s.weight[0][2][d], 20 + d - 2, 0);
        assert_float_equal(s.weight[0][3][d], 30 + d, 0);
        assert_float_equal(s.weight[1][3][d], 130 + d - 1, 0);
        assert_float_equal(s.weight[1][1][d], 110 + d, 0);
    }
    assert_float_equal(s.state[3], 4, 0);
    assert_float_equal(s.state[4], 9, 0);
    embfuse_model_free(s.model);
}

/* If the caller gives no layout, the outputs of all pooled features form one matrix, and sequences follow it. */
static void pooled_and_sequences(void **state) {
    (void)state;
    float row[4][2] = {{0, 1}, {10, 11}, {20, 21}, {30, 31}}, output[2 * 4 + 3 * 2];
    const struct embfuse_table table = {.rows = 4, .dim = 2, .rule = "sgd"};
    const struct embfuse_feature features[] = {
        {.pooling = EMBFUSE_SUM}, {.pooling = EMBFUSE_NONE}, {.pooling = EMBFUSE_SUM}};
    const int64_t offsets[] = {0, 1, 2, 4, 5, 6, 7}, ids[] = {1, 2, 3, 0, 1, 2, 2};
    const struct embfuse_batch batch = {.size = sizeof batch,
                                        .bags = 2,
                                        .lookups = 7,
                                        .ids = ids,
                                        .id_type = EMBFUSE_INT64,
                                        .offsets = offsets};
    struct embfuse_model *m;
    int64_t elements;
    FINE(embfuse_model_create(&m, &table, 1, features, 3, NULL, &why));
    FINE(embfuse_bind(m, 0, 0, row, 0, &why));
    FINE(embfuse_output_elements(m, &batch, &elements, &why));
    assert_int_equal(elements, sizeof output / sizeof *output);
    FINE(embfuse_forward(m, &batch, output, &why));
    const float expected[] = {10, 11, 20, 21, 20, 21, 20, 21, 30, 31, 0, 1, 10, 11};
    for (int64_t i = 0; i < elements; i++) assert_float_equal(output[i], expected[i], 0);
    FINE(embfuse_set(m, -1, "lr", 1, &why));
    FINE(embfuse_step(m, &batch, expected, &why));
    assert_float_equal(row[1][0], 10 - 10 - 10,
                       0); /* from a pooled bag and from the last lookup of the sequence */
    assert_float_equal(row[3][1], 31 - 31, 0);
    embfuse_model_free(m);
}

/* Bags 0 and 2 look up row 2 of table 0. The weight gradients use the row as it was before the step, whichever kernel
 * takes the step. */
static void gradient_of_weights(void **state) {
    (void)state;
    static const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    static const char *const kernels[] = {NULL, "cpu_hash", "cpu_dense"};
    for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++) {
        struct small s;
        float dots[8], alone[8];
        small_open(&s, &(struct embfuse_options){.size = sizeof(struct embfuse_options),
                                                 .kernel = kernels[k]});
        SAYS(EMBFUSE_INVALID, "is NULL", embfuse_weight_grad(s.model, &s.batch, s.grad, &why));
        s.batch.weight_grad = dots;
        SAYS(EMBFUSE_INVALID, "without batch.lookup_weights",
             embfuse_step(s.model, &s.batch, s.grad, &why));
        s.batch.lookup_weights = ones;
        s.batch.weight_grad = alone;
        FINE(embfuse_weight_grad(s.model, &s.batch, s.grad, &why));
        assert_float_equal(s.weight[0][1][0], 10, 0); /* no step was taken */
        s.batch.weight_grad = dots;
        FINE(embfuse_step(s.model, &s.batch, s.grad, &why));
        const float row[8] = {1, 2, 2, 5, 10, 13, 13, 14}, grad[8] = {1, 1, 3, 3, 1, 1, 1, 3};
        /* The elements of row r are 10 r + 0, 1, 2, 3. */
        for (int i = 0; i < 8; i++) assert_float_equal(dots[i], grad[i] * (40 * row[i] + 6), 1e-4);
        assert_memory_equal(alone, dots, sizeof dots);
        embfuse_model_free(s.model);
    }
}

static void names_of_hyper_parameters(void **state) {
    (void)state;
    struct small s;
    double value;
    int32_t count = 0;
    small_open(&s, NULL);
    for (const char *name; (name = embfuse_hyper_name(s.model, 1, count)); count++)
        FINE(embfuse_get(s.model, 1, name, &value, &why));
    assert_true(count >= 3); /* rowwise_adagrad has lr, eps, and those of all rules */
    assert_string_equal(embfuse_hyper_name(s.model, 1, 0), "lr");
    assert_null(embfuse_hyper_name(s.model, 1, -1));
    assert_null(embfuse_hyper_name(s.model, 2, 0));
    assert_null(embfuse_hyper_name(NULL, 0, 0));
    embfuse_model_free(s.model);
}

/* A step with a batch of no bags changes the same bits as a step with empty bags, on the host and on a device, also in
 * kernels that update all rows. A forward of no bags writes nothing. */
static void no_bags(void **state) {
    (void)state;
    static const struct embfuse_table tables[] = {{.rows = 9, .dim = 5, .rule = "adam"},
                                                  {.rows = 7, .dim = 3, .rule = "sgd"}};
    static const char *const kernels[] = {NULL,        "cpu_dense",  "cpu_sort",  "cpu_hash",
                                          "cpu_owner", "cuda_fused", "cuda_dense"};
    struct embfuse_batch none = {.size = sizeof none, .id_type = EMBFUSE_INT32};
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) {
        const char *k = kernels[i];
        const bool device = k && strncmp(k, "cuda", 4) == 0;
        const struct embfuse_options options = {
            .size = sizeof options, .kernel = k, .place = device ? EMBFUSE_DEVICE : EMBFUSE_HOST};
        struct state_case c[2];
        int64_t elements = 1;
        float output = 3;
        if (device && !registry_find(OP_STEP, k, &(struct error){""})) continue;
        for (int n = 0; n < 2; n++) {
            state_case_open(&c[n], tables, 2, &options, 0, 1);
            state_case_begin(&c[n], 2);
            state_case_draw(&c[n], 3);
        }
        const struct work_path file = state_file("no_bags");
        state_case_take(&c[0]); /* a first step, so that Adam has moments */
        FINE(embfuse_save(c[0].model, file.text, &why));
        FINE(embfuse_load(c[1].model, file.text, &why));
        none.stream = device ? device_stream() : NULL;
        FINE(embfuse_output_elements(c[0].model, &none, &elements, &why));
        assert_int_equal(elements, 0);
        FINE(embfuse_forward(c[0].model, &none, device ? NULL : &output, &why));
        assert_float_equal(output, 3, 0);
        FINE(embfuse_step(c[0].model, &none, NULL, &why));
        if (device) device_wait(none.stream, &(struct error){""});
        memset(c[1].offsets, 0, (size_t)(2 * c[1].bags + 1) * sizeof *c[1].offsets);
        c[1].batch.lookups = 0;
        state_case_take(&c[1]);
        const char *differs = state_case_differs(&c[0], &c[1]);
        if (differs) fail_msg("%s: %s", k ? k : "auto", differs);
        state_case_free(&c[0]), state_case_free(&c[1]);
    }
}

static void arrays_and_states(void **state) {
    (void)state;
    static const struct embfuse_table table = {
        .rows = 2, .dim = 8, .rule = "adam", .momentum_type = EMBFUSE_BF16};
    struct embfuse_model *m;
    struct embfuse_array a;
    float v[2][8] = {{1, 2}, {3, 4}};
    double initial = -1;
    FINE(embfuse_model_create(&m, &table, 1, &good_feature, 1, NULL, &why));
    assert_int_equal(embfuse_array_count(m, 0), 3);
    FINE(embfuse_array_info(m, 0, 1, &a, &why));
    assert_string_equal(a.name, "state.0");
    assert_string_equal(a.states, "m");
    assert_int_equal(a.type, EMBFUSE_BF16);
    assert_int_equal(a.row_bytes, 16);
    SAYS(EMBFUSE_INVALID, "has no array 3", embfuse_array_info(m, 0, 3, &a, &why));
    SAYS(EMBFUSE_INVALID, "is not bound", embfuse_init_states(m, 0, &why));
    embfuse_model_free(m);
    const struct embfuse_table adagrad = {.rows = 2, .dim = 8, .rule = "adagrad"};
    FINE(embfuse_model_create(&m, &adagrad, 1, &good_feature, 1, NULL, &why));
    FINE(embfuse_bind(m, 0, 1, v, 0, &why));
    FINE(embfuse_set(m, 0, "initial_accumulator", 0.5, &why));
    FINE(embfuse_init_states(m, 0, &why));
    for (int i = 0; i < 16; i++) assert_float_equal(v[i / 8][i % 8], 0.5, 0);
    FINE(embfuse_initial(m, 0, 1, 1, &initial, &why));
    assert_float_equal(initial, 0.5, 0);
    SAYS(EMBFUSE_INVALID, "no state", embfuse_initial(m, 0, 1, 8, &initial, &why));
    embfuse_model_free(m);
}

/* --- scratch */

static void scratch_of_the_caller(void **state) {
    (void)state;
    struct small s;
    size_t bytes = 0;
    small_open(&s, NULL);
    FINE(embfuse_scratch_bytes(s.model, &s.batch, &bytes, &why));
    assert_true(bytes > 0);
    char *mine = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
    SAYS(EMBFUSE_INVALID, "scratch", embfuse_set_scratch(s.model, mine + 8, bytes, &why));
    FINE(embfuse_set_scratch(s.model, mine, bytes - 1, &why));
    const float before = s.weight[0][1][0];
    SAYS(EMBFUSE_NO_MEMORY, "bytes of scratch", embfuse_step(s.model, &s.batch, s.grad, &why));
    assert_float_equal(s.weight[0][1][0], before, 0);
    FINE(embfuse_set_scratch(s.model, mine, bytes, &why));
    FINE(embfuse_step(s.model, &s.batch, s.grad, &why));
    FINE(embfuse_set_scratch(s.model, NULL, 0, &why));
    FINE(embfuse_step(s.model, &s.batch, s.grad, &why));
    embfuse_model_free(s.model);
    free(mine);
}

TESTS(library_calls) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(by_hand),
                                       cmocka_unit_test(pooled_and_sequences),
                                       cmocka_unit_test(gradient_of_weights),
                                       cmocka_unit_test(names_of_hyper_parameters),
                                       cmocka_unit_test(arrays_and_states),
                                       cmocka_unit_test(scratch_of_the_caller),
                                       cmocka_unit_test(no_bags)};
    return cmocka_run_group_tests_name("library_calls", tests, NULL, NULL);
}
