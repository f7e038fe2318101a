/* SPDX-License-Identifier: MIT
 *
 * What libembfuse refuses: the status, words of the message, and that nothing changed.
 */
#include "extras/library/tests/library_small.h"

static void wrong_batches(void **state) {
    (void)state;
    static const struct {
        const char *says;
        int64_t id0, offset1, last;
    } cases[] = {
        {"feature 0, bag 0, lookup 0: id 6 is no row", 6, 2, 8},
        {"id 4294967297 is no row", 4294967297, 2, 8},
        {"offsets 3 to 2", 1, 3, 8},
        {"offsets end at 7 of 8 lookups", 1, 2, 7},
        {"offsets 7 to 9", 1, 2, 9},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct small s, kept;
        small_open(&s, NULL);
        s.ids[0] = cases[i].id0;
        s.offsets[1] = cases[i].offset1;
        s.offsets[6] = cases[i].last;
        kept = s;
        SAYS(EMBFUSE_BAD_BATCH, cases[i].says, embfuse_step(s.model, &s.batch, s.grad, &why));
        assert_int_equal(embfuse_forward(s.model, &s.batch, s.output, NULL), EMBFUSE_BAD_BATCH);
        assert_memory_equal(&s, &kept, sizeof s);
        embfuse_model_free(s.model);
    }
}

static void wrong_arguments(void **state) {
    (void)state;
    struct small s;
    small_open(&s, NULL);
    struct embfuse_model *m = s.model;
    struct embfuse_batch b = s.batch;
    SAYS(EMBFUSE_INVALID, "NULL", embfuse_step(m, &b, NULL, &why));
    assert_int_equal(embfuse_step(m, NULL, s.grad, NULL), EMBFUSE_INVALID);
    b.size = 8;
    SAYS(EMBFUSE_INVALID, "batch.size is 8", embfuse_step(m, &b, s.grad, &why));
    b = s.batch, b.bags = INT64_MAX;
    SAYS(EMBFUSE_INVALID, "bags", embfuse_step(m, &b, s.grad, &why));
    b = s.batch, b.bags = 0;
    SAYS(EMBFUSE_INVALID, "0 bags and 8 lookups", embfuse_step(m, &b, s.grad, &why));
    b = s.batch, b.ids = NULL;
    SAYS(EMBFUSE_INVALID, "ids", embfuse_step(m, &b, s.grad, &why));
    b = s.batch, b.id_type = 0;
    SAYS(EMBFUSE_INVALID, "id_type", embfuse_step(m, &b, s.grad, &why));
    SAYS(EMBFUSE_UNKNOWN, "beta1", embfuse_set(m, 0, "beta1", 0.9, &why));
    SAYS(EMBFUSE_INVALID, "no table 2", embfuse_set(m, 2, "lr", 0.9, &why));
    for (int k = 0; k < 3; k++)
        SAYS(EMBFUSE_INVALID, "lr is a number from 0 to 3.4e38 in single precision",
             embfuse_set(m, 0, "lr", (double[]){1e40, -1, 1e-50}[k], &why));
    SAYS(EMBFUSE_INVALID, "-1", embfuse_set_steps(m, 0, -1, &why));
    SAYS(EMBFUSE_INVALID, "possible", embfuse_set_steps(m, 0, INT64_MAX, &why));
    SAYS(EMBFUSE_INVALID, "out is NULL", embfuse_array_info(m, 0, 0, NULL, &why));
    SAYS(EMBFUSE_INVALID, "out is NULL", embfuse_initial(m, 0, 1, 0, NULL, &why));
    SAYS(EMBFUSE_INVALID, "out is NULL", embfuse_output_elements(m, &s.batch, NULL, &why));
    SAYS(EMBFUSE_INVALID, "name is NULL", embfuse_step_kernel(m, &s.batch, NULL, &why));
    SAYS(EMBFUSE_INVALID, "bytes is NULL", embfuse_scratch_bytes(m, &s.batch, NULL, &why));
    SAYS(EMBFUSE_INVALID, "out is NULL", embfuse_monitor_read(m, 0, 1, NULL, &why));
    SAYS(EMBFUSE_INVALID, "no table 2", embfuse_nonfinite_read(m, 2, NULL, &why));
    SAYS(EMBFUSE_INVALID, "out is NULL", embfuse_nonfinite_read(m, 0, NULL, &why));
    SAYS(EMBFUSE_INVALID, "options.nonfinite",
         embfuse_nonfinite_read(m, 0, &(struct embfuse_nonfinite_counts){0}, &why));
    SAYS(EMBFUSE_INVALID, "is NULL", embfuse_monitor_rows(m, 0, NULL, NULL, NULL, &why));
    SAYS(EMBFUSE_INVALID, "NULL", embfuse_bind(m, 0, 0, NULL, 0, &why));
    SAYS(EMBFUSE_INVALID, "overlap", embfuse_bind(m, 0, 0, s.weight, 4, &why));
    SAYS(EMBFUSE_INVALID, "multiples", embfuse_bind(m, 0, 0, (char *)s.weight + 1, 0, &why));
    SAYS(EMBFUSE_INVALID, "no array 1", embfuse_bind(m, 0, 1, s.weight, 0, &why));
    embfuse_model_free(m);
}

static void unbound_arrays(void **state) {
    (void)state;
    static const struct embfuse_table table = {.rows = ROWS, .dim = DIM, .rule = "adam"};
    struct small s;
    struct embfuse_model *m;
    small_open(&s, NULL);
    FINE(embfuse_model_create(&m, &table, 1, &good_feature, 1, NULL, &why));
    s.batch.lookups = 4;
    SAYS(EMBFUSE_INVALID, "not bound", embfuse_forward(m, &s.batch, s.output, &why));
    FINE(embfuse_bind(m, 0, 0, s.weight[0], 0, &why));
    FINE(embfuse_forward(m, &s.batch, s.output, &why));
    SAYS(EMBFUSE_INVALID, "array 1 is not bound", embfuse_step(m, &s.batch, s.grad, &why));
    embfuse_model_free(m);
    embfuse_model_free(s.model);
}

static void wrong_models(void **state) {
    (void)state;
    const struct embfuse_table good = good_table;
    const struct embfuse_feature feature = good_feature;
    struct embfuse_table t[] = {good, good, good, good, good, good, good};
    struct embfuse_feature f[] = {feature, feature, feature, feature, feature, feature};
    struct embfuse_options o[] = {{.size = 1},
                                  {.size = sizeof *o, .threads = -1},
                                  {.size = sizeof *o, .place = 7},
                                  {.size = sizeof *o, .grad_type = EMBFUSE_FP8},
                                  {.size = sizeof *o, .kernel = "cpu_magic"},
                                  {.size = sizeof *o, .kernel = "cpu_lookup"},
                                  {.size = sizeof *o, .nonfinite = -1}};
    struct embfuse_model *m = (struct embfuse_model *)&good;
    t[0].rows = 0, t[1].dim = 0, t[2].rule = "sdg", t[3].weight_type = 4, t[4].rule = NULL,
    t[5].momentum_type = EMBFUSE_FP16, t[6].rounding = 2;
    f[0].table = 1, f[1].pooling = 9, f[2].padding_id = ROWS, f[3].grad_stride = DIM - 1,
    f[4].padding_id = 1, f[5].has_padding = 2, f[2].has_padding = 1;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        const int status = embfuse_model_create(&m, &t[i], 1, &feature, 1, NULL, NULL);
        assert_int_equal(status, i == 2 || i == 4 ? EMBFUSE_UNKNOWN : EMBFUSE_INVALID);
        assert_null(m);
    }
    for (size_t i = 0; i < sizeof f / sizeof *f; i++)
        assert_int_equal(embfuse_model_create(&m, &good, 1, &f[i], 1, NULL, NULL), EMBFUSE_INVALID);
    for (size_t i = 0; i < sizeof o / sizeof *o; i++)
        assert_int_equal(embfuse_model_create(&m, &good, 1, &feature, 1, &o[i], NULL),
                         i == 4 || i == 5 ? EMBFUSE_UNKNOWN : EMBFUSE_INVALID);
    assert_int_equal(embfuse_model_create(&m, &good, 0, &feature, 1, NULL, NULL), EMBFUSE_INVALID);
    o[0] = (struct embfuse_options){.size = sizeof *o, .place = EMBFUSE_DEVICE, .nonfinite = 1};
    SAYS(EMBFUSE_REFUSED, "looks at gradients on the host",
         embfuse_model_create(&m, &good, 1, &feature, 1, o, &why));
}

/* What runs on the host alone, of a model on a device; and a kernel of the other place. */
static void on_a_device(void **state) {
    (void)state;
    if (!registry_find(OP_STEP, "cuda_fused", &(struct error){""})) skip();
    const struct embfuse_options host = {.size = sizeof host, .kernel = "cuda_fused"},
                                 device = {.size = sizeof device, .place = EMBFUSE_DEVICE};
    struct embfuse_average a = {.size = sizeof a, .kind = EMBFUSE_SWA};
    struct embfuse_model *m;
    SAYS(EMBFUSE_REFUSED, "runs on a device",
         embfuse_model_create(&m, &good_table, 1, &good_feature, 1, &host, &why));
    assert_int_equal(embfuse_model_create(&m, &good_table, 1, &good_feature, 1, &device, NULL), 0);
    SAYS(EMBFUSE_INVALID, "on the host", embfuse_average_update(m, &a, 1, &why));
    SAYS(EMBFUSE_INVALID, "on a device", embfuse_init_states(m, 0, &why));
    SAYS(EMBFUSE_REFUSED, "on the host", embfuse_monitor_start(m, 0, 1, &why));
    embfuse_model_free(m);
}

/* A step takes the winners that the forward of the same batch wrote. */
static void max_without_good_winners(void **state) {
    (void)state;
    const struct embfuse_table table = {.rows = 4, .dim = 1, .rule = "sgd"};
    const struct embfuse_feature feature = {.pooling = EMBFUSE_MAX};
    const int64_t ids[] = {0, 1}, offsets[] = {0, 2};
    float rows[4] = {1, 5, -2, 9}, output[1];
    int32_t winners[1];
    struct embfuse_batch batch = {.size = sizeof batch,
                                  .bags = 1,
                                  .lookups = 2,
                                  .ids = ids,
                                  .offsets = offsets,
                                  .id_type = EMBFUSE_INT64};
    struct embfuse_model *m;
    FINE(embfuse_model_create(&m, &table, 1, &feature, 1, NULL, &why));
    FINE(embfuse_bind(m, 0, 0, rows, 0, &why));
    SAYS(EMBFUSE_INVALID, "batch.winners is NULL", embfuse_step(m, &batch, output, &why));
    batch.winners = winners;
    FINE(embfuse_forward(m, &batch, output, &why));
    assert_true(output[0] == 5 && winners[0] == 1);
    winners[0] = 2;
    SAYS(EMBFUSE_BAD_BATCH, "column 0: winner 2", embfuse_step(m, &batch, output, &why));
    assert_true(rows[0] == 1 && rows[1] == 5 && rows[2] == -2);
    embfuse_model_free(m);
}

TESTS(library_refused) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_batches),  cmocka_unit_test(wrong_arguments),
        cmocka_unit_test(unbound_arrays), cmocka_unit_test(wrong_models),
        cmocka_unit_test(on_a_device),    cmocka_unit_test(max_without_good_winners),
    };
    return cmocka_run_group_tests_name("library_refused", tests, NULL, NULL);
}
