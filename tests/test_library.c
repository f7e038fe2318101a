/* SPDX-License-Identifier: MIT
 *
 * libembfuse gives the bits that the same kernels give when they are called directly, on the host and on an
 * emulated device; it refuses what is wrong, in one line and before it changes anything; and models
 * do not disturb each other.
 */
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "harness/device/device.h"
#include "kernels/forward.h"
#include "tests/device_case.h"
#include "tests/library_case.h"
#include "tests/shapes.h"

#include "tests/kernel_tests.h"

static struct embfuse_model *must_open(const struct library_case *c, const struct builder *b,
                                       const struct table *tables) {
    struct embfuse_error why;
    struct embfuse_model *m = library_case_open(c, b, tables, &why);
    if (!m) fail_msg("%s", why.text);
    return m;
}

static void must_be_fine(int status, const struct embfuse_error *why) {
    if (status) fail_msg("status %d: %s", status, why->text);
}

static void build_shape(int i, struct builder *b, bool exact) {
    const struct kernel *k = registry_find(OP_STEP, "cpu_fused", &(struct error){""});
    shape_build(&shapes[i], NULL, exact, b);
    builder_rules(b, k, (enum rule_kind)(i * 5 % RULE_COUNT));
    builder_storage(b, k, i * 7);
    builder_pack(b);
}

/* --- the same bits as the kernel */

static void steps_as_the_kernel(void **state) {
    const int i = (int)((const struct shape *)((const struct kernel_test *)*state)->param - shapes);
    const struct kernel *k = registry_find(OP_STEP, "cpu_fused", &(struct error){""});
    struct embfuse_error why;
    struct builder b;
    struct library_case c;
    size_t bytes;
    build_shape(i, &b, false);
    builder_start(&b);
    for (int n = 0; n < 3; n++, b.step++)
        if (builder_run(&b, k, 3)) fail_msg("%s", b.message);
    void *expected = builder_snapshot(&b, &bytes);
    b.step -= 3;
    builder_start(&b);
    library_case_begin(&c, &b);
    c.options.kernel = "cpu_fused";
    c.options.threads = 2;
    struct embfuse_model *m = must_open(&c, &b, NULL);
    for (int n = 0; n < 3; n++) must_be_fine(embfuse_step(m, &c.batch, b.in.grad, &why), &why);
    void *now = builder_snapshot(&b, &bytes);
    assert_memory_equal(now, expected, bytes);
    int64_t steps = 0;
    must_be_fine(embfuse_get_steps(m, 0, &steps, &why), &why);
    assert_int_equal(steps, b.step + 2);
    free(now);
    free(expected);
    embfuse_model_free(m);
    library_case_free(&c);
    builder_free(&b);
}

static void *filled(size_t bytes) {
    void *p = malloc(bytes + 1);
    if (!p) abort();
    return memset(p, 0x5a, bytes);
}

static void forward_as_the_kernel(void **state) {
    const int i = (int)((const struct shape *)((const struct kernel_test *)*state)->param - shapes);
    const struct kernel *k = registry_find(OP_FORWARD, "cpu_lookup_ahead", &(struct error){""});
    struct embfuse_error why;
    struct builder b;
    struct library_case c;
    build_shape(i, &b, false);
    builder_start(&b);
    const size_t bytes = (size_t)(b.in.grad_elements * dtype_bytes(b.in.grad_type));
    const size_t elements = (size_t)b.in.grad_elements, winner = sizeof(int32_t);
    char *expected = filled(bytes), *output = filled(bytes);
    int32_t *expected_winners = filled(elements * winner), *winners = filled(elements * winner);
    k->run(&b.in, NULL, b.tables.tables,
           &(struct launch){.threads = 2, .output = expected, .winners = expected_winners});
    library_case_begin(&c, &b);
    c.batch.winners = winners;
    struct embfuse_model *m = must_open(&c, &b, NULL);
    must_be_fine(embfuse_forward(m, &c.batch, output, &why), &why);
    assert_memory_equal(output, expected, bytes);
    assert_memory_equal(winners, expected_winners, elements * winner);
    free(winners);
    free(expected_winners);
    free(output);
    free(expected);
    embfuse_model_free(m);
    library_case_free(&c);
    builder_free(&b);
}

/* Arrays, ids and offsets are in device memory; sums are exact, so the host's bits are the device's. */
static void device_as_the_host(void **state) {
    const int i = (int)((const struct shape *)((const struct kernel_test *)*state)->param - shapes);
    const struct kernel *k = registry_find(OP_STEP, "cuda_fused", &(struct error){""});
    if (!k) skip();
    struct embfuse_error why;
    struct error err;
    struct builder b;
    struct library_case c;
    struct device_case d;
    struct device_buffer output, winners;
    shape_build(&shapes[i], k, true, &b);
    builder_rules(&b, k, (enum rule_kind)(i * 5 % RULE_COUNT));
    builder_start(&b);
    if (!b.sums_exact || kernel_refuses(k, &b.in)) {
        builder_free(&b);
        skip();
    }
    if (device_case_create(&d, &b, k, &err)) fail_msg("%s", err.text);
    const size_t bytes = (size_t)(b.in.grad_elements * dtype_bytes(b.in.grad_type));
    assert_int_equal(device_alloc(&output, bytes, "output", &err), 0);
    device_set(&output, 0x5a, &err);
    const size_t elements = (size_t)b.in.grad_elements, winner = sizeof(int32_t);
    assert_int_equal(device_alloc(&winners, elements * winner, "winners", &err), 0);
    device_set(&winners, 0x5a, &err);
    library_case_begin(&c, &b);
    c.options.place = EMBFUSE_DEVICE;
    c.batch.ids = d.batch.batch.ids;
    c.batch.offsets = d.batch.batch.offsets;
    c.batch.lookup_weights = d.batch.batch.lookup_weights;
    c.batch.stream = device_stream();
    c.batch.winners = winners.data;
    struct embfuse_model *m = must_open(&c, &b, d.tables.tables);
    must_be_fine(embfuse_forward(m, &c.batch, output.data, &why), &why);
    c.batch.winners = (int32_t *)d.batch.batch.winners;
    must_be_fine(embfuse_step(m, &c.batch, d.batch.batch.grad, &why), &why);
    c.batch.trusted = 1;
    int64_t *told = malloc((size_t)b.in.num_features * sizeof *told);
    for (int32_t f = 0; f < b.in.num_features; f++) told[f] = b.features[f].lookups;
    c.batch.feature_lookups = told;
    must_be_fine(embfuse_step(m, &c.batch, d.batch.batch.grad, &why), &why);
    device_wait(device_stream(), &err);
    char *expected = filled(bytes), *got = filled(bytes);
    if (bytes) assert_int_equal(device_get(got, output.data, bytes, &err), 0);
    int32_t *expected_winners = filled(elements * winner), *got_winners = filled(elements * winner);
    if (bytes) assert_int_equal(device_get(got_winners, winners.data, elements * winner, &err), 0);
    const struct launch how = {.threads = 1, .output = expected, .winners = expected_winners};
    registry_find(OP_FORWARD, "cpu_lookup", &err)->run(&b.in, NULL, b.tables.tables, &how);
    assert_memory_equal(got, expected, bytes);
    assert_memory_equal(got_winners, expected_winners, elements * winner);
    free(got_winners);
    free(expected_winners);
    const struct kernel *host = registry_find(OP_STEP, "cpu_fused", &err);
    for (int n = 0; n < 2; n++, b.step++)
        if (builder_run(&b, host, 1)) fail_msg("%s", b.message);
    size_t all;
    void *want = builder_snapshot(&b, &all);
    assert_int_equal(device_tables_get(&d.tables, b.tables.tables, &err), 0);
    void *have = builder_snapshot(&b, &all);
    assert_memory_equal(have, want, all);
    free(want);
    free(have);
    free(got);
    free(expected);
    free(told);
    embfuse_model_free(m);
    device_free(&output);
    device_free(&winners);
    device_case_free(&d);
    library_case_free(&c);
    builder_free(&b);
}

/* --- a small model for the rest: two tables, two features, 3 bags */

enum { ROWS = 6, DIM = 4, BAGS = 3 };

struct small {
    float weight[2][ROWS][DIM], state[2][ROWS], output[BAGS][2 * DIM], grad[BAGS][2 * DIM];
    int64_t ids[8], offsets[2 * BAGS + 1];
    struct embfuse_table tables[2];
    struct embfuse_feature features[2];
    struct embfuse_batch batch;
    struct embfuse_model *model;
};

static void small_open(struct small *s, const struct embfuse_options *options) {
    static const int64_t ids[8] = {1, 2, 2, 5, 0, 3, 3, 4}, offsets[] = {0, 2, 2, 4, 5, 7, 8};
    struct embfuse_error why;
    memset(s, 0, sizeof *s);
    memcpy(s->ids, ids, sizeof ids);
    memcpy(s->offsets, offsets, sizeof offsets);
    for (int t = 0; t < 2; t++)
        for (int r = 0; r < ROWS; r++)
            for (int d = 0; d < DIM; d++) s->weight[t][r][d] = (float)(100 * t + 10 * r + d);
    for (int q = 0; q < BAGS; q++)
        for (int d = 0; d < 2 * DIM; d++) s->grad[q][d] = (float)(q + 1);
    for (int t = 0; t < 2; t++) {
        s->tables[t] =
            (struct embfuse_table){.rows = ROWS, .dim = DIM, .rule = t ? "rowwise_adagrad" : "sgd"};
        s->features[t] = (struct embfuse_feature){
            .table = t, .padding_id = -1, .pooling = t ? EMBFUSE_MEAN : EMBFUSE_SUM};
    }
    s->batch = (struct embfuse_batch){.size = sizeof s->batch,
                                      .bags = BAGS,
                                      .lookups = 8,
                                      .ids = s->ids,
                                      .offsets = s->offsets,
                                      .id_type = EMBFUSE_INT64};
    must_be_fine(embfuse_model_create(&s->model, s->tables, 2, s->features, 2, options, &why),
                 &why);
    for (int t = 0; t < 2; t++)
        must_be_fine(embfuse_bind(s->model, t, 0, s->weight[t], 0, &why), &why);
    must_be_fine(embfuse_bind(s->model, 1, 1, s->state[1], 0, &why), &why);
}

/* The example by hand: feature 0 is the first DIM columns of the output, feature 1 the others. */
static void by_hand(void **state) {
    (void)state;
    struct small s;
    struct embfuse_error why;
    small_open(&s, NULL);
    must_be_fine(embfuse_forward(s.model, &s.batch, s.output, &why), &why);
    for (int d = 0; d < DIM; d++) {
        assert_float_equal(s.output[0][d], 10 + 20 + 2 * d, 0);
        assert_float_equal(s.output[1][d], 0, 0);
        assert_float_equal(s.output[2][d], 20 + 50 + 2 * d, 0);
        assert_float_equal(s.output[0][DIM + d], 100 + d, 0);
        assert_float_equal(s.output[1][DIM + d], 130 + d, 0);
        assert_float_equal(s.output[2][DIM + d], 140 + d, 0);
    }
    must_be_fine(embfuse_set(s.model, 0, "lr", 0.5, &why), &why);
    must_be_fine(embfuse_set(s.model, 1, "lr", 1, &why), &why);
    must_be_fine(embfuse_set(s.model, 1, "eps", 0, &why), &why);
    must_be_fine(embfuse_step(s.model, &s.batch, s.grad, &why), &why);
    for (int d = 0; d < DIM;
         d++) { /* row 2 of table 0: gradients 1 and 3; row 3 of table 1: 2/2 twice */
        assert_float_equal(s.weight[0][1][d], 10 + d - 0.5, 0);
        assert_float_equal(s.weight[0][2][d], 20 + d - 2, 0);
        assert_float_equal(s.weight[0][3][d], 30 + d, 0);
        assert_float_equal(s.weight[1][3][d], 130 + d - 1, 0);
        assert_float_equal(s.weight[1][1][d], 110 + d, 0);
    }
    assert_float_equal(s.state[1][3], 4, 0);
    assert_float_equal(s.state[1][4], 9, 0);
    embfuse_model_free(s.model);
}

/* A change of a rate counts from the next step on. */
static void groups_change(void **state) {
    (void)state;
    struct small s;
    struct embfuse_error why;
    double lr = 0;
    small_open(&s, NULL);
    must_be_fine(embfuse_set(s.model, -1, "lr", 0, &why), &why);
    must_be_fine(embfuse_step(s.model, &s.batch, s.grad, &why), &why);
    assert_float_equal(s.weight[0][1][0], 10, 0);
    must_be_fine(embfuse_set(s.model, 0, "lr", 0.25, &why), &why);
    must_be_fine(embfuse_step(s.model, &s.batch, s.grad, &why), &why);
    assert_float_equal(s.weight[0][1][0], 9.75, 0);
    assert_float_equal(s.weight[1][3][0], 130, 0);
    must_be_fine(embfuse_get(s.model, 0, "lr", &lr, &why), &why);
    assert_float_equal(lr, 0.25, 0);
    must_be_fine(embfuse_set(s.model, 0, "weight_decay", 0.5, &why), &why);
    must_be_fine(embfuse_step(s.model, &s.batch, s.grad, &why), &why);
    assert_float_equal(s.weight[0][1][0], 9.75 - 0.25 * (1 + 0.5 * 9.75), 0);
    embfuse_model_free(s.model);
}

/* Row 2 of table 0 is looked up by bags 0 and 2: the dots see it before the step. */
static void gradient_of_weights(void **state) {
    (void)state;
    static const float ones[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    const struct embfuse_options dense = {.size = sizeof dense, .kernel = "cpu_dense"};
    struct small s;
    struct embfuse_error why;
    float dots[8];
    small_open(&s, NULL);
    s.batch.weight_grad = dots;
    assert_int_equal(embfuse_step(s.model, &s.batch, s.grad, &why), EMBFUSE_INVALID);
    s.batch.lookup_weights = ones;
    must_be_fine(embfuse_step(s.model, &s.batch, s.grad, &why), &why);
    const float row[8] = {1, 2, 2, 5, 10, 13, 13, 14}, bag[8] = {1, 1, 3, 3, 1, 1, 1, 3};
    for (int i = 0; i < 8;
         i++) /* elements of row r: 10 r + 0, 1, 2, 3; means of 1, 2 and 1 lookups */
        assert_float_equal(dots[i],
                           (i < 4    ? bag[i]
                            : i == 4 ? 1
                            : i < 7  ? 2 / 2.0f
                                     : 3) *
                               (40 * row[i] + 6),
                           1e-4);
    embfuse_model_free(s.model);
    small_open(&s, &dense);
    s.batch.weight_grad = dots;
    s.batch.lookup_weights = ones;
    assert_int_equal(embfuse_step(s.model, &s.batch, s.grad, &why), EMBFUSE_REFUSED);
    embfuse_model_free(s.model);
}

static void arrays_are_described(void **state) {
    (void)state;
    static const struct embfuse_table table = {.rows = 3,
                                               .dim = 8,
                                               .rule = "adam",
                                               .weight_type = EMBFUSE_BF16,
                                               .momentum_type = EMBFUSE_BF16};
    static const struct embfuse_feature feature = {.padding_id = -1};
    struct embfuse_error why;
    struct embfuse_model *m;
    struct embfuse_array a;
    must_be_fine(embfuse_model_create(&m, &table, 1, &feature, 1, NULL, &why), &why);
    assert_int_equal(embfuse_array_count(m, 0), 3);
    assert_int_equal(embfuse_array_count(m, 1), -1);
    must_be_fine(embfuse_array_info(m, 0, 0, &a, &why), &why);
    assert_string_equal(a.name, "weight");
    assert_int_equal(a.row_bytes, 16);
    must_be_fine(embfuse_array_info(m, 0, 1, &a, &why), &why);
    assert_string_equal(a.name, "state.0");
    assert_string_equal(a.states, "m");
    assert_int_equal(a.type, EMBFUSE_BF16);
    must_be_fine(embfuse_array_info(m, 0, 2, &a, &why), &why);
    assert_string_equal(a.states, "v");
    assert_int_equal(a.type, EMBFUSE_FP32);
    assert_int_equal(embfuse_array_info(m, 0, 3, &a, &why), EMBFUSE_INVALID);
    embfuse_model_free(m);
}

/* States of a new table. */
static void states_begin(void **state) {
    (void)state;
    static const struct embfuse_table table = {.rows = 2, .dim = 2, .rule = "adagrad"};
    static const struct embfuse_feature feature = {.padding_id = -1};
    struct embfuse_error why;
    struct embfuse_model *m;
    float sum[2][2] = {{1, 2}, {3, 4}};
    double initial = -1;
    must_be_fine(embfuse_model_create(&m, &table, 1, &feature, 1, NULL, &why), &why);
    assert_int_equal(embfuse_init_states(m, 0, &why), EMBFUSE_INVALID);
    must_be_fine(embfuse_bind(m, 0, 1, sum, 0, &why), &why);
    must_be_fine(embfuse_initial(m, 0, 1, 1, &initial, &why), &why);
    must_be_fine(embfuse_init_states(m, 0, &why), &why);
    for (int i = 0; i < 4; i++) assert_float_equal(sum[i / 2][i % 2], (float)initial, 0);
    assert_int_equal(embfuse_initial(m, 0, 0, 0, &initial, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_initial(m, 0, 1, 2, &initial, &why), EMBFUSE_INVALID);
    embfuse_model_free(m);
}

/* --- scratch */

static void scratch_of_the_caller(void **state) {
    (void)state;
    struct small s;
    struct embfuse_error why;
    size_t bytes = 0;
    small_open(&s, NULL);
    must_be_fine(embfuse_scratch_bytes(s.model, &s.batch, &bytes, &why), &why);
    assert_true(bytes > 0);
    char *mine = aligned_alloc(256, (bytes + 255) / 256 * 256 + 256);
    assert_int_equal(embfuse_set_scratch(s.model, mine + 8, bytes, &why), EMBFUSE_INVALID);
    must_be_fine(embfuse_set_scratch(s.model, mine, bytes - 1, &why), &why);
    const float before = s.weight[0][1][0];
    assert_int_equal(embfuse_step(s.model, &s.batch, s.grad, &why), EMBFUSE_NO_MEMORY);
    assert_non_null(strstr(why.text, "bytes of scratch"));
    assert_float_equal(s.weight[0][1][0], before, 0);
    must_be_fine(embfuse_set_scratch(s.model, mine, bytes, &why), &why);
    must_be_fine(embfuse_step(s.model, &s.batch, s.grad, &why), &why);
    must_be_fine(embfuse_set_scratch(s.model, NULL, 0, &why), &why);
    must_be_fine(embfuse_step(s.model, &s.batch, s.grad, &why), &why);
    embfuse_model_free(s.model);
    free(mine);
}

/* --- what is wrong: the status, words of the message, and that nothing changed */

static void wrong_batches(void **state) {
    (void)state;
    static const struct {
        const char *says;
        int status;
        int64_t id0, offset1, last;
    } cases[] = {
        {"feature 0, bag 0, lookup 0: id 6 is no row", EMBFUSE_BAD_BATCH, 6, 2, 8},
        {"feature 0, bag 0, lookup 0: id -1 is no row", EMBFUSE_BAD_BATCH, -1, 2, 8},
        {"id 4294967297 is no row", EMBFUSE_BAD_BATCH, 4294967297, 2, 8},
        {"offsets 3 to 2", EMBFUSE_BAD_BATCH, 1, 3, 8},
        {"offsets end at 7 of 8 lookups", EMBFUSE_BAD_BATCH, 1, 2, 7},
        {"offsets 7 to 9", EMBFUSE_BAD_BATCH, 1, 2, 9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct small s, kept;
        struct embfuse_error why;
        small_open(&s, NULL);
        s.ids[0] = cases[i].id0;
        s.offsets[1] = cases[i].offset1;
        s.offsets[6] = cases[i].last;
        kept = s;
        assert_int_equal(embfuse_step(s.model, &s.batch, s.grad, &why), cases[i].status);
        if (!strstr(why.text, cases[i].says)) fail_msg("'%s' lacks '%s'", why.text, cases[i].says);
        assert_int_equal(embfuse_forward(s.model, &s.batch, s.output, NULL), cases[i].status);
        assert_memory_equal(&s, &kept, sizeof s);
        embfuse_model_free(s.model);
    }
}

static void wrong_arguments(void **state) {
    (void)state;
    struct small s;
    struct embfuse_error why;
    double value;
    small_open(&s, NULL);
    struct embfuse_batch b = s.batch;
    assert_int_equal(embfuse_step(s.model, &b, NULL, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_forward(s.model, &b, NULL, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_step(NULL, &b, s.grad, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_step(s.model, NULL, s.grad, NULL), EMBFUSE_INVALID);
    b.size = 8;
    assert_int_equal(embfuse_step(s.model, &b, s.grad, &why), EMBFUSE_INVALID);
    assert_non_null(strstr(why.text, "batch.size is 8"));
    b = s.batch, b.bags = 0;
    assert_int_equal(embfuse_step(s.model, &b, s.grad, &why), EMBFUSE_INVALID);
    b = s.batch, b.bags = INT64_MAX;
    assert_int_equal(embfuse_step(s.model, &b, s.grad, &why), EMBFUSE_INVALID);
    b = s.batch, b.ids = NULL;
    assert_int_equal(embfuse_step(s.model, &b, s.grad, &why), EMBFUSE_INVALID);
    b = s.batch, b.id_type = 2;
    assert_int_equal(embfuse_step(s.model, &b, s.grad, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_set(s.model, 0, "beta1", 0.9, &why), EMBFUSE_UNKNOWN);
    assert_int_equal(embfuse_set(s.model, -1, "beta1", 0.9, &why), EMBFUSE_UNKNOWN);
    assert_int_equal(embfuse_set(s.model, 2, "lr", 0.9, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_set(s.model, 0, "lr", (double)NAN, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_set(s.model, 0, "lr", 1e40, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_get(s.model, 0, "beta1", &value, &why), EMBFUSE_UNKNOWN);
    assert_int_equal(embfuse_set_steps(s.model, 0, -1, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_bind(s.model, 0, 0, NULL, 0, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_bind(s.model, 0, 0, s.weight, 4, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_bind(s.model, 0, 0, (char *)s.weight + 1, 0, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_bind(s.model, 0, 1, s.weight, 0, &why), EMBFUSE_INVALID);
    embfuse_model_free(s.model);
    embfuse_model_free(NULL);
}

static void unbound_arrays(void **state) {
    (void)state;
    static const struct embfuse_table table = {.rows = ROWS, .dim = DIM, .rule = "adam"};
    static const struct embfuse_feature feature = {.padding_id = -1};
    struct small s;
    struct embfuse_error why;
    struct embfuse_model *m;
    small_open(&s, NULL);
    must_be_fine(embfuse_model_create(&m, &table, 1, &feature, 1, NULL, &why), &why);
    s.batch.lookups = 4;
    assert_int_equal(embfuse_forward(m, &s.batch, s.output, &why), EMBFUSE_INVALID);
    must_be_fine(embfuse_bind(m, 0, 0, s.weight[0], 0, &why), &why);
    must_be_fine(embfuse_forward(m, &s.batch, s.output, &why), &why);
    assert_int_equal(embfuse_step(m, &s.batch, s.grad, &why), EMBFUSE_INVALID);
    assert_non_null(strstr(why.text, "array 1 is not bound"));
    embfuse_model_free(m);
    embfuse_model_free(s.model);
}

static void wrong_models(void **state) {
    (void)state;
    static const struct embfuse_table good = {.rows = ROWS, .dim = DIM, .rule = "sgd"};
    static const struct embfuse_feature feature = {.padding_id = -1};
    struct embfuse_table t[] = {good, good, good, good, good, good};
    struct embfuse_feature f[] = {feature, feature, feature, feature};
    struct embfuse_options o[] = {{.size = 1},
                                  {.size = sizeof *o, .threads = -1},
                                  {.size = sizeof *o, .place = 7},
                                  {.size = sizeof *o, .grad_type = EMBFUSE_FP8},
                                  {.size = sizeof *o, .kernel = "cpu_magic"},
                                  {.size = sizeof *o, .kernel = "cpu_lookup"},
                                  {.size = sizeof *o, .reserved = 1}};
    struct embfuse_model *m = (struct embfuse_model *)&good;
    struct embfuse_error why;
    t[0].rows = 0, t[1].dim = 0, t[2].rule = "sdg", t[3].weight_type = 4, t[4].rule = NULL,
    t[5].momentum_type = EMBFUSE_FP16;
    f[0].table = 1, f[1].pooling = 9, f[2].padding_id = ROWS, f[3].grad_stride = DIM - 1;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        const int status = embfuse_model_create(&m, &t[i], 1, &feature, 1, NULL, &why);
        assert_int_equal(status, i == 2 || i == 4 ? EMBFUSE_UNKNOWN : EMBFUSE_INVALID);
        assert_null(m);
    }
    for (size_t i = 0; i < sizeof f / sizeof *f; i++)
        assert_int_equal(embfuse_model_create(&m, &good, 1, &f[i], 1, NULL, &why), EMBFUSE_INVALID);
    for (size_t i = 0; i < sizeof o / sizeof *o; i++)
        assert_int_equal(embfuse_model_create(&m, &good, 1, &feature, 1, &o[i], &why),
                         i == 4 || i == 5 ? EMBFUSE_UNKNOWN : EMBFUSE_INVALID);
    assert_int_equal(embfuse_model_create(&m, &good, 0, &feature, 1, NULL, &why), EMBFUSE_INVALID);
    assert_int_equal(embfuse_model_create(NULL, &good, 1, &feature, 1, NULL, &why),
                     EMBFUSE_INVALID);
    if (registry_find(OP_STEP, "cuda_fused", &(struct error){""})) {
        const struct embfuse_options device = {.size = sizeof device, .kernel = "cuda_fused"};
        assert_int_equal(embfuse_model_create(&m, &good, 1, &feature, 1, &device, &why),
                         EMBFUSE_REFUSED);
        assert_non_null(strstr(why.text, "runs on a device"));
    }
}

/* A step takes the winners that the forward of the same batch wrote. */
static void max_without_good_winners(void **state) {
    (void)state;
    const struct embfuse_table table = {.rows = 4, .dim = 1, .rule = "sgd"};
    const struct embfuse_feature feature = {.pooling = EMBFUSE_MAX, .padding_id = 3};
    const int64_t ids[] = {0, 1, 2, 3}, offsets[] = {0, 2, 4};
    const float weights[] = {1, 1, 1, 1}, grad[] = {8, 16};
    float rows[] = {1, 5, -2, 9}, output[2];
    int32_t winners[2];
    struct embfuse_batch batch = {.size = sizeof batch,
                                  .bags = 2,
                                  .lookups = 4,
                                  .ids = ids,
                                  .offsets = offsets,
                                  .id_type = EMBFUSE_INT64};
    struct embfuse_model *m;
    struct embfuse_error why;
    must_be_fine(embfuse_model_create(&m, &table, 1, &feature, 1, NULL, &why), &why);
    must_be_fine(embfuse_bind(m, 0, 0, rows, 0, &why), &why);
    must_be_fine(embfuse_set(m, 0, "lr", 0.5, &why), &why);
    assert_int_equal(embfuse_forward(m, &batch, output, &why), EMBFUSE_INVALID);
    assert_non_null(strstr(why.text, "batch.winners is NULL"));
    assert_int_equal(embfuse_step(m, &batch, grad, &why), EMBFUSE_INVALID);
    batch.winners = winners;
    must_be_fine(embfuse_forward(m, &batch, output, &why), &why);
    assert_true(output[0] == 5 && winners[0] == 1 && output[1] == -2 && winners[1] == 0);
    winners[1] = 1;
    assert_int_equal(embfuse_step(m, &batch, grad, &why), EMBFUSE_BAD_BATCH);
    assert_non_null(strstr(why.text, "bag 1 of 2 lookups, column 0: winner 1, but that lookup is"));
    winners[1] = 0;
    batch.lookup_weights = weights;
    assert_int_equal(embfuse_step(m, &batch, grad, &why), EMBFUSE_REFUSED);
    batch.lookup_weights = NULL;
    must_be_fine(embfuse_step(m, &batch, grad, &why), &why);
    assert_true(rows[0] == 1 && rows[1] == 1 && rows[2] == -10 && rows[3] == 9);
    embfuse_model_free(m);
}

static void every_status_has_words(void **state) {
    (void)state;
    for (int i = -2; i < 12; i++) {
        assert_non_null(embfuse_strerror(i));
        assert_true(strlen(embfuse_strerror(i)) > 3);
    }
    assert_int_equal(embfuse_version(), EMBFUSE_VERSION);
    char text[40];
    snprintf(text, sizeof text, "%d.%d.%d", EMBFUSE_VERSION_MAJOR, EMBFUSE_VERSION_MINOR,
             EMBFUSE_VERSION_PATCH);
    assert_string_equal(embfuse_version_text(), text);
}

/* --- two threads, each with models of its own */

static void *many_steps(void *out) {
    struct small s;
    static const struct embfuse_options one = {.size = sizeof one, .threads = 1};
    for (int n = 0; n < 20; n++) {
        small_open(&s, &one);
        for (int i = 0; i < 20; i++)
            must_be_fine(embfuse_step(s.model, &s.batch, s.grad, NULL),
                         &(struct embfuse_error){"in a thread"});
        embfuse_model_free(s.model);
    }
    memcpy(out, s.weight, sizeof s.weight);
    return NULL;
}

static void models_in_threads(void **state) {
    (void)state;
    if (WITH_THREAD_SANITIZER) skip(); /* it would need an OpenMP whose threads it can follow */
    pthread_t thread[2];
    float weight[3][2][ROWS][DIM];
    many_steps(weight[2]);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, many_steps, weight[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    for (int i = 0; i < 2; i++) assert_memory_equal(weight[i], weight[2], sizeof weight[2]);
}

int main(void) {
    for (int i = 0; i < num_shapes; i += SHAPE_STEP) {
        char name[100];
        snprintf(name, sizeof name, "step as the kernel: %s", shapes[i].name);
        add_test(name, steps_as_the_kernel, NULL, &shapes[i]);
        snprintf(name, sizeof name, "forward as the kernel: %s", shapes[i].name);
        add_test(name, forward_as_the_kernel, NULL, &shapes[i]);
        snprintf(name, sizeof name, "device as the host: %s", shapes[i].name);
        add_test(name, device_as_the_host, NULL, &shapes[i]);
    }
    add_test("by hand", by_hand, NULL, NULL);
    add_test("rates change between steps", groups_change, NULL, NULL);
    add_test("gradient of per-sample weights", gradient_of_weights, NULL, NULL);
    add_test("arrays are described", arrays_are_described, NULL, NULL);
    add_test("states begin as the rule says", states_begin, NULL, NULL);
    add_test("scratch of the caller", scratch_of_the_caller, NULL, NULL);
    add_test("wrong batches", wrong_batches, NULL, NULL);
    add_test("wrong arguments", wrong_arguments, NULL, NULL);
    add_test("arrays that are not bound", unbound_arrays, NULL, NULL);
    add_test("wrong models", wrong_models, NULL, NULL);
    add_test("every status has words", every_status_has_words, NULL, NULL);
    add_test("max without good winners", max_without_good_winners, NULL, NULL);
    add_test("models in threads", models_in_threads, NULL, NULL);
    return run_listed("library");
}
