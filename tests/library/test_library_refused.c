/* SPDX-License-Identifier: MIT
 *
 * What libembfuse refuses: the status, words of the message, and that nothing changed.
 */
#include <math.h>
#include <string.h>

#include "harness/registry.h"
#include "tests/library/library_small.h"

#include "tests/support/kernel_tests.h"

static void must_be_fine(int status, const struct embfuse_error *why) {
    if (status) fail_msg("status %d: %s", status, why->text);
}

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

TESTS(library_refused) {
    add_test("wrong batches", wrong_batches, NULL, NULL);
    add_test("wrong arguments", wrong_arguments, NULL, NULL);
    add_test("arrays that are not bound", unbound_arrays, NULL, NULL);
    add_test("wrong models", wrong_models, NULL, NULL);
    add_test("max without good winners", max_without_good_winners, NULL, NULL);
    return run_listed("library refused");
}
