/* SPDX-License-Identifier: MIT
 *
 * Admission to the tables of a model: by hand, what is refused, and a training that must be the one
 * without the lookups that were not admitted.
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "include/embfuse.h"
#include "kernels/rng.h"

#include "tests/support/cmocka_cases.h"

static void fine(int status, const struct embfuse_error *why) {
    if (status) fail_msg("status %d: %s", status, why->text);
}

static struct embfuse_admission counting(void *counters, int64_t n, int64_t threshold) {
    return (struct embfuse_admission){.size = sizeof(struct embfuse_admission),
                                      .kind = EMBFUSE_ADMIT_COUNT,
                                      .threshold = threshold,
                                      .counters = counters,
                                      .num_counters = n,
                                      .counter_bytes = 1};
}

/* --- a small model: features 0 and 1 read table 0, and have another padding; table 1 admits all */

enum { ROWS = 6, DIM = 2, BAGS = 2, FEATURES = 3 };

struct small {
    float weight[2][ROWS][DIM], output[BAGS][FEATURES * DIM], grad[BAGS][FEATURES * DIM];
    int64_t ids[9], offsets[FEATURES * BAGS + 1];
    struct embfuse_batch batch;
    struct embfuse_model *model;
};

static void small_open(struct small *s, int64_t padding) {
    static const int64_t ids[9] = {1, 0, 2, 1, 1, 5, 2, 3, 3}, offsets[] = {0, 3, 3, 5, 7, 8, 9};
    const struct embfuse_table tables[] = {{.rows = ROWS, .dim = DIM, .rule = "sgd"},
                                           {.rows = ROWS, .dim = DIM, .rule = "sgd"}};
    const struct embfuse_feature features[] = {
        {.table = 0, .padding_id = 0, .pooling = EMBFUSE_MEAN},
        {.table = 0, .padding_id = padding},
        {.table = 1, .padding_id = -1}};
    struct embfuse_error why;
    memset(s, 0, sizeof *s);
    memcpy(s->ids, ids, sizeof ids);
    memcpy(s->offsets, offsets, sizeof offsets);
    s->batch = (struct embfuse_batch){.size = sizeof s->batch,
                                      .bags = BAGS,
                                      .lookups = 9,
                                      .ids = s->ids,
                                      .offsets = s->offsets,
                                      .id_type = EMBFUSE_INT64};
    fine(embfuse_model_create(&s->model, tables, 2, features, FEATURES, NULL, &why), &why);
    for (int t = 0; t < 2; t++) {
        fine(embfuse_bind(s->model, t, 0, s->weight[t], 0, &why), &why);
        for (int r = 0; r < ROWS; r++)
            for (int d = 0; d < DIM; d++) s->weight[t][r][d] = (float)(10 * t + r + 1);
    }
}

/* Three touches: row 1 has them in this batch, over two features; row 2 has two; rows 0 and 5 are
 * padding in one feature each. With frozen counters nothing changes. Row 2 follows with the next batch. */
static void by_hand(void **state) {
    (void)state;
    static const int64_t first[] = {1, 0, 0, 1, 1, 5, 5, 3, 3};
    struct small s;
    struct embfuse_error why;
    uint8_t counters[ROWS + 1] = {0, 0, 0, 0, 0, 0, 77};
    int64_t out[9], rejected = -1;
    small_open(&s, 5);
    struct embfuse_admission a = counting(counters, ROWS, 3);
    for (; a.frozen < 3; a.frozen++) {
        fine(embfuse_admit(s.model, &a, 1, &s.batch, out, &rejected, &why), &why);
        assert_memory_equal(out, first, sizeof out);
        assert_int_equal(rejected, 2);
        assert_memory_equal(counters, "\0\3\2\0\0\0\115", ROWS + 1);
    }
    struct embfuse_batch admitted = s.batch;
    admitted.ids = out;
    fine(embfuse_forward(s.model, &admitted, s.output, &why), &why);
    assert_float_equal(s.output[0][0], 2, 0); /* the mean of row 1 alone */
    assert_float_equal(s.output[0][DIM], 4, 0);
    assert_float_equal(s.output[1][DIM], 0, 0);
    assert_float_equal(s.output[1][2 * DIM], 14, 0);
    a.frozen = 0;
    fine(embfuse_admit(s.model, &a, 1, &s.batch, s.ids, &rejected, &why), &why); /* in place */
    assert_int_equal(rejected, 0);
    assert_int_equal(s.ids[2], 2);
    assert_memory_equal(counters, "\0\3\3\0\0\0\115", ROWS + 1);
    embfuse_model_free(s.model);
}

/* --- a training */

enum { MANY = 300, WIDE = 8, T_BAGS = 20, MOST = 2 * T_BAGS * 12, STEPS = 30, PADDING = 4 };

struct training {
    float weight[MANY][WIDE], state[MANY], output[T_BAGS][2 * WIDE];
    int64_t ids[MOST], offsets[2 * T_BAGS + 1];
    struct embfuse_batch batch;
    struct embfuse_model *model;
};

static struct training *training_open(void) {
    struct training *x = calloc(1, sizeof *x);
    const struct embfuse_table table = {.rows = MANY, .dim = WIDE, .rule = "rowwise_adagrad"};
    const struct embfuse_feature features[] = {{.padding_id = PADDING, .pooling = EMBFUSE_MEAN},
                                               {.padding_id = PADDING}};
    struct embfuse_error why;
    fine(embfuse_model_create(&x->model, &table, 1, features, 2, NULL, &why), &why);
    fine(embfuse_bind(x->model, 0, 0, x->weight, 0, &why), &why);
    fine(embfuse_bind(x->model, 0, 1, x->state, 0, &why), &why);
    fine(embfuse_init_states(x->model, 0, &why), &why);
    for (int64_t i = 0; i < MANY * WIDE; i++)
        x->weight[i / WIDE][i % WIDE] = (float)rng_unit(1, (uint64_t)i) - 0.5f;
    x->batch = (struct embfuse_batch){.size = sizeof x->batch,
                                      .bags = T_BAGS,
                                      .ids = x->ids,
                                      .offsets = x->offsets,
                                      .id_type = EMBFUSE_INT64};
    return x;
}

/* The lookups of batch n, low rows often, without those of rows with too few touches. */
static void training_batch(struct training *x, uint64_t n, const int64_t *touches,
                           int64_t threshold) {
    int64_t kept = 0, drawn = 0;
    for (int q = 0; q < 2 * T_BAGS; q++) {
        x->offsets[q] = kept;
        for (int i = (int)(12 * rng_unit(n, (uint64_t)q)); i > 0; i--, drawn++) {
            const double u = rng_unit(n + 100, (uint64_t)drawn);
            const int64_t id = (int64_t)(MANY * u * u);
            if (!touches || (id != PADDING && touches[id] >= threshold)) x->ids[kept++] = id;
        }
    }
    x->offsets[2 * T_BAGS] = x->batch.lookups = kept;
}

static void training_step(struct training *x, uint64_t n) {
    struct embfuse_error why;
    float grad[T_BAGS * 2 * WIDE];
    for (int i = 0; i < T_BAGS * 2 * WIDE; i++)
        grad[i] = (float)rng_unit(n + 200, (uint64_t)i) - 0.5f;
    fine(embfuse_forward(x->model, &x->batch, x->output, &why), &why);
    fine(embfuse_step(x->model, &x->batch, grad, &why), &why);
}

/* Outputs, weights and states have the bits of a training on the lookups of admitted rows alone. Rows with
 * too few touches are new in the end. */
static void trains_the_admitted(void **state) {
    (void)state;
    enum { THRESHOLD = 12 };
    struct training *x = training_open(), *y = training_open(), *fresh = training_open();
    uint8_t counters[MANY] = {0};
    int64_t touches[MANY] = {0}, out[MOST], rejected, late = 0, idle = 0;
    const struct embfuse_admission a = counting(counters, MANY, THRESHOLD);
    struct embfuse_error why;
    for (uint64_t n = 0; n < STEPS; n++) {
        training_batch(x, n, NULL, 0);
        for (int64_t i = 0; i < x->batch.lookups; i++) touches[x->ids[i]] += x->ids[i] != PADDING;
        fine(embfuse_admit(x->model, &a, 1, &x->batch, out, &rejected, &why), &why);
        late += rejected;
        memcpy(x->ids, out, sizeof out);
        training_batch(y, n, touches, THRESHOLD);
        training_step(x, n), training_step(y, n);
        assert_memory_equal(x->output, y->output, sizeof x->output);
    }
    assert_memory_equal(x->weight, y->weight, sizeof x->weight);
    assert_memory_equal(x->state, y->state, sizeof x->state);
    for (int r = 0; r < MANY; r++) {
        const bool in = touches[r] >= THRESHOLD;
        idle += !in;
        assert_int_equal(memcmp(x->weight[r], fresh->weight[r], sizeof x->weight[r]) == 0, !in);
        assert_int_equal(x->state[r] == fresh->state[r], !in);
    }
    assert_true(late > 100 && idle > 10 && idle < MANY / 2);
    for (int k = 0; k < 3; k++) {
        struct training *const each[] = {x, y, fresh};
        embfuse_model_free(each[k]->model);
        free(each[k]);
    }
}

/* --- what is refused */

/* Refuses an admission with another value of one field. */
#define WRONG(words, field, value)                                                                 \
    do {                                                                                           \
        struct embfuse_admission a = counting(counters, ROWS, 3);                                  \
        a.probability = 0.5;                                                                       \
        a.kind = kind;                                                                             \
        a.field = (value);                                                                         \
        assert_int_equal(embfuse_admit(s.model, &a, 1, &s.batch, out, NULL, &why),                 \
                         EMBFUSE_INVALID);                                                         \
        if (!strstr(why.text, words)) fail_msg("'%s' lacks '%s'", why.text, words);                \
    } while (0)

static void wrong_admissions(void **state) {
    (void)state;
    struct small s;
    struct embfuse_error why;
    _Alignas(4) uint8_t room[ROWS + 1] = {0};
    uint8_t *counters = room + 1;
    int64_t out[9], kept[9];
    int32_t kind = EMBFUSE_ADMIT_COUNT;
    small_open(&s, 5);
    memset(out, 0x5a, sizeof out), memcpy(kept, out, sizeof out);
    WRONG("size is not", size, 8);
    WRONG("no such table", table, 2);
    WRONG("no such table", table, -1);
    WRONG("has no padding_id", table, 1);
    WRONG("kind is", kind, 3);
    WRONG("threshold is", threshold, 256);
    WRONG("threshold is", threshold, -1);
    WRONG("hashes is 0 to 64", hashes, 65);
    WRONG("hashes is 0 to 64", hashes, -1);
    WRONG("counter_bytes", counter_bytes, 3);
    WRONG("not aligned", counter_bytes, 2);
    WRONG("more rows than", num_counters, ROWS - 1);
    WRONG("no counters", num_counters, -1);
    WRONG("no counters", counters, NULL);
    WRONG("reserved", reserved, 1);
    kind = EMBFUSE_ADMIT_CHANCE;
    WRONG("probability is", probability, 1.5);
    WRONG("probability is", probability, (double)NAN);
    WRONG("probability is", probability, 0);
    WRONG("hashes is 0", hashes, 1);
    const struct embfuse_admission a = counting(counters, ROWS, 3), twice[] = {a, a};
    assert_int_equal(embfuse_admit(s.model, twice, 2, &s.batch, out, NULL, &why), EMBFUSE_INVALID);
    assert_non_null(strstr(why.text, "admission 1: its table has another"));
    assert_int_equal(embfuse_admit(s.model, &a, -1, &s.batch, out, NULL, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_admit(s.model, &a, 1, &s.batch, NULL, NULL, NULL), EMBFUSE_INVALID);
    s.ids[8] = ROWS;
    assert_int_equal(embfuse_admit(s.model, &a, 1, &s.batch, out, NULL, &why), EMBFUSE_BAD_BATCH);
    assert_memory_equal(out, kept, sizeof out);
    for (int i = 0; i < ROWS; i++) assert_int_equal(counters[i], 0);
    embfuse_model_free(s.model);
    small_open(&s, -1);
    assert_int_equal(embfuse_admit(s.model, &a, 1, &s.batch, out, NULL, &why), EMBFUSE_INVALID);
    assert_non_null(strstr(why.text, "has no padding_id"));
    embfuse_model_free(s.model);
}

TESTS(admission_model) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(trains_the_admitted),
        cmocka_unit_test(wrong_admissions),
    };
    return cmocka_run_group_tests_name("admission_model", tests, NULL, NULL);
}
