/* SPDX-License-Identifier: MIT
 *
 * What calls about averages refuse, with nothing changed.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/registry.h"
#include "tests/library/average_case.h"

#include "tests/support/cmocka_cases.h"

static void fine(int status, const struct embfuse_error *why) {
    if (status) fail_msg("status %d: %s", status, why->text);
}

static void expect_refused(struct training *x, int status, const char *says) {
    struct embfuse_error why;
    struct embfuse_average kept[AVERAGES];
    memcpy(kept, x->averages, sizeof kept);
    float *data = malloc(sizeof(float) * ROWS * STRIDE);
    memcpy(data, x->data[1], sizeof(float) * ROWS * STRIDE);
    assert_int_equal(embfuse_average_before_step(x->model, x->averages, AVERAGES, &x->batch, &why),
                     status);
    if (!strstr(why.text, says)) fail_msg("'%s' lacks '%s'", why.text, says);
    if (status == EMBFUSE_INVALID) {
        assert_int_equal(embfuse_average_update(x->model, x->averages, AVERAGES, &why), status);
        assert_int_equal(embfuse_average_finish(x->model, x->averages, AVERAGES, NULL), status);
    }
    assert_memory_equal(kept, x->averages, sizeof kept);
    assert_memory_equal(data, x->data[1], sizeof(float) * ROWS * STRIDE);
    free(data);
}

static void wrong_averages(void **state) {
    (void)state;
    static const struct {
        const char *says;
        struct embfuse_average a; /* what is not 0 replaces that of a good average */
    } cases[] = {{"size is not", {.size = 8}},
                 {"no such table", {.table = TABLES}},
                 {"no such table", {.table = -1}},
                 {"kind is", {.kind = 3}},
                 {"decay is", {.decay = 1}},
                 {"decay is", {.decay = -0.5}},
                 {"decay is", {.decay = (double)NAN}},
                 {"4 bytes", {.stride = STRIDE * 4 + 2}},
                 {"4 bytes", {.data = (float *)2}},
                 {"rows overlap", {.stride = DIM * 4 - 4}},
                 {"updates is below 0", {.updates = -1}}};
    struct training *x = training_open(2);
    training_batch(x, 0);
    struct embfuse_average *last = &x->averages[AVERAGES - 1];
    const struct embfuse_average good = *last;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct embfuse_average *a = &cases[i].a;
        *last = good;
        if (a->size) last->size = a->size;
        if (a->table) last->table = a->table;
        if (a->kind) last->kind = a->kind;
        if (a->decay != 0) last->decay = a->decay;
        if (a->stride) last->stride = a->stride;
        if (a->data) last->data = a->data;
        if (a->updates) last->updates = a->updates;
        expect_refused(x, EMBFUSE_INVALID, cases[i].says);
        assert_true(isnan(x->data[0][0])); /* nor have averages before it changed */
    }
    *last = good;
    last->data = NULL;
    expect_refused(x, EMBFUSE_INVALID, "data is not NULL");
    *last = good;
    assert_int_equal(embfuse_average_update(NULL, x->averages, 1, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_average_update(x->model, NULL, 1, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_average_update(x->model, x->averages, -1, NULL), EMBFUSE_INVALID);
    struct embfuse_model *bare = training_model(NULL, "sgd", 1), *kept = x->model;
    x->model = bare;
    expect_refused(x, EMBFUSE_INVALID, "not bound");
    x->model = kept;
    embfuse_model_free(bare);
    training_free(x);
}

static void wrong_batch(void **state) {
    (void)state;
    struct training *x = training_open(2);
    training_step(x, 0), training_update(x);
    training_batch(x, 1);
    x->ids[17] = ROWS;
    expect_refused(x, EMBFUSE_BAD_BATCH, "no row");
    training_free(x);
}

/* A step that lazy averages did not hear of is noticed at the next call; full ones need none. */
static void step_without_notice(void **state) {
    (void)state;
    struct training *x = training_open(2);
    struct embfuse_error why;
    training_step(x, 0), training_update(x), training_step(x, 1);
    fine(embfuse_step(x->model, &x->batch, x->grad, &why), &why);
    expect_refused(x, EMBFUSE_INVALID, "a step was taken without");
    fine(embfuse_average_update(x->model, x->averages, 1, &why), &why);
    for (int i = 0; i < AVERAGES; i++) {
        x->averages[i].updates = 0;
        if (x->row_updates[i]) memset(x->row_updates[i], 0, ROWS * sizeof(int64_t));
    }
    training_update(x), training_step(x, 2), training_update(x), training_finish(x);
    training_expect(x);
    training_free(x);
}

/* A dense step of Adam moves rows that the batch does not look up. */
static void dense_steps(void **state) {
    (void)state;
    struct training *x = training_open(2), *kept = x;
    struct embfuse_error why;
    struct embfuse_model *dense = training_model("cpu_dense", "adam", 2), *sparse = x->model;
    for (int t = 0; t < TABLES; t++) fine(embfuse_bind(dense, t, 0, x->weight[t], 0, &why), &why);
    training_batch(x, 0);
    x->model = dense;
    expect_refused(x, EMBFUSE_REFUSED, "cpu_dense changes all rows of table 0");
    x->model = sparse;
    embfuse_model_free(dense);
    training_free(kept);
}

static void on_a_device(void **state) {
    (void)state;
    if (!registry_find(OP_STEP, "cuda_fused", &(struct error){""})) skip();
    static const struct embfuse_table table = {.rows = 2, .dim = 1, .rule = "sgd"};
    static const struct embfuse_feature feature = {.padding_id = -1};
    const struct embfuse_options options = {.size = sizeof options, .place = EMBFUSE_DEVICE};
    struct embfuse_model *m;
    struct embfuse_error why;
    struct embfuse_average a = {.size = sizeof a, .kind = EMBFUSE_SWA};
    fine(embfuse_model_create(&m, &table, 1, &feature, 1, &options, &why), &why);
    assert_int_equal(embfuse_average_update(m, &a, 1, &why), EMBFUSE_INVALID);
    assert_non_null(strstr(why.text, "on the host"));
    embfuse_model_free(m);
}

TESTS(average_refused) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_averages),      cmocka_unit_test(wrong_batch),
        cmocka_unit_test(step_without_notice), cmocka_unit_test(dense_steps),
        cmocka_unit_test(on_a_device),
    };
    return cmocka_run_group_tests_name("average_refused", tests, NULL, NULL);
}
