/* SPDX-License-Identifier: MIT
 *
 * Admission to the tables of a model: a training that must be the one without the lookups that were
 * not admitted, and what is refused.
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "include/embfuse.h"
#include "kernels/rng.h"

#include "tests/library/says.h"

static struct embfuse_admission counting(void *counters, int64_t n, int64_t threshold) {
    return (struct embfuse_admission){.size = sizeof(struct embfuse_admission),
                                      .kind = EMBFUSE_ADMIT_COUNT,
                                      .threshold = threshold,
                                      .counters = counters,
                                      .num_counters = n,
                                      .counter_bytes = 1};
}

enum {
    ROWS = 300,
    DIM = 8,
    BAGS = 20,
    FEATURES = 3,
    MOST = FEATURES * BAGS * 12,
    STEPS = 30,
    THRESHOLD = 12
};

/* Features 0 and 1 read table 0, each with a padding of its own; feature 2 reads table 1, which
 * admits all. */
struct training {
    float weight[2][ROWS][DIM], state[2][ROWS], output[BAGS][FEATURES * DIM];
    int64_t ids[MOST], offsets[FEATURES * BAGS + 1], padding[FEATURES];
    struct embfuse_batch batch;
    struct embfuse_model *model;
};

static struct training *training_open(int64_t padding) {
    struct training *x = calloc(1, sizeof *x);
    const struct embfuse_table table = {.rows = ROWS, .dim = DIM, .rule = "rowwise_adagrad"};
    const struct embfuse_table tables[] = {table, table};
    const struct embfuse_feature features[] = {
        {.table = 0, .padding_id = 4, .pooling = EMBFUSE_MEAN},
        {.table = 0, .padding_id = padding},
        {.table = 1, .padding_id = -1}};
    FINE(embfuse_model_create(&x->model, tables, 2, features, FEATURES, NULL, &why));
    for (int t = 0; t < 2; t++) {
        FINE(embfuse_bind(x->model, t, 0, x->weight[t], 0, &why));
        FINE(embfuse_bind(x->model, t, 1, x->state[t], 0, &why));
        FINE(embfuse_init_states(x->model, t, &why));
        for (int64_t i = 0; i < ROWS * DIM; i++)
            x->weight[t][i / DIM][i % DIM] = (float)rng_unit(1, (uint64_t)i) - 0.5f;
    }
    for (int f = 0; f < FEATURES; f++) x->padding[f] = features[f].padding_id;
    x->batch = (struct embfuse_batch){.size = sizeof x->batch,
                                      .bags = BAGS,
                                      .ids = x->ids,
                                      .offsets = x->offsets,
                                      .id_type = EMBFUSE_INT64};
    return x;
}

static void training_free(struct training *x) {
    embfuse_model_free(x->model);
    free(x);
}

/* The lookups of batch n, low rows often; without padding and, in table 0, without rows with too
 * few touches, unless touches are NULL. */
static void training_batch(struct training *x, uint64_t n, const int64_t *touches) {
    int64_t kept = 0, drawn = 0;
    for (int q = 0; q < FEATURES * BAGS; q++) {
        const int f = q / BAGS;
        x->offsets[q] = kept;
        for (int i = (int)(12 * rng_unit(n, (uint64_t)q)); i > 0; i--, drawn++) {
            const double u = rng_unit(n + 100, (uint64_t)drawn);
            const int64_t id = (int64_t)(ROWS * u * u);
            if (!touches || f == 2 || (id != x->padding[f] && touches[id] >= THRESHOLD))
                x->ids[kept++] = id;
        }
    }
    x->offsets[FEATURES * BAGS] = x->batch.lookups = kept;
}

static void training_step(struct training *x, uint64_t n) {
    float grad[BAGS * FEATURES * DIM];
    for (int i = 0; i < BAGS * FEATURES * DIM; i++)
        grad[i] = (float)rng_unit(n + 200, (uint64_t)i) - 0.5f;
    FINE(embfuse_forward(x->model, &x->batch, x->output, &why));
    FINE(embfuse_step(x->model, &x->batch, grad, &why));
}

/* Admits the ids of the batch: both features of table 0 are counted before one is judged. With
 * frozen counters the same comes out again, in place. */
static int64_t admit(struct training *x, uint8_t counters[ROWS], int64_t touches[ROWS]) {
    struct embfuse_admission a = counting(counters, ROWS, THRESHOLD);
    int64_t wanted[MOST], first[MOST], rejected, late = 0;
    const int64_t *end = x->offsets + BAGS;
    for (int64_t i = 0; i < x->offsets[2 * BAGS]; i++)
        touches[x->ids[i]] += x->ids[i] != x->padding[i >= *end];
    for (int64_t i = 0; i < x->batch.lookups; i++) {
        const int f = (i >= *end) + (i >= x->offsets[2 * BAGS]);
        const bool in = f == 2 || x->ids[i] == x->padding[f] || touches[x->ids[i]] >= THRESHOLD;
        wanted[i] = in ? x->ids[i] : x->padding[f];
        late += !in;
    }
    for (; a.frozen < 2; a.frozen++) {
        int64_t *out = a.frozen ? x->ids : first;
        FINE(embfuse_admit(x->model, &a, 1, &x->batch, out, &rejected, &why));
        assert_memory_equal(out, wanted, (size_t)x->batch.lookups * sizeof *wanted);
        assert_int_equal(rejected, late);
    }
    for (int r = 0; r < ROWS; r++)
        assert_int_equal(counters[r], touches[r] < THRESHOLD ? touches[r] : THRESHOLD);
    return late;
}

/* Outputs, weights and states have the bits of a training on the lookups of admitted rows alone.
 * Rows with too few touches are new in the end. */
static void trains_the_admitted(void **state) {
    (void)state;
    struct training *x = training_open(9), *y = training_open(9), *fresh = training_open(9);
    uint8_t counters[ROWS] = {0};
    int64_t touches[ROWS] = {0}, late = 0, idle = 0;
    for (uint64_t n = 0; n < STEPS; n++) {
        training_batch(x, n, NULL);
        late += admit(x, counters, touches);
        training_batch(y, n, touches);
        training_step(x, n), training_step(y, n);
        assert_memory_equal(x->output, y->output, sizeof x->output);
    }
    assert_memory_equal(x->weight, y->weight, sizeof x->weight);
    assert_memory_equal(x->state, y->state, sizeof x->state);
    for (int r = 0; r < ROWS; r++) {
        const bool in = touches[r] >= THRESHOLD;
        idle += !in;
        assert_int_equal(memcmp(x->weight[0][r], fresh->weight[0][r], DIM * sizeof(float)) == 0,
                         !in);
        assert_int_equal(x->state[0][r] == fresh->state[0][r], !in);
    }
    assert_true(late > 100 && idle > 10 && idle < ROWS / 2);
    training_free(x), training_free(y), training_free(fresh);
}

/* --- what is refused */

/* Refuses an admission with another value of one field. */
#define WRONG(words, field, value)                                                                 \
    do {                                                                                           \
        struct embfuse_admission a = counting(counters, ROWS, 3);                                  \
        a.probability = 0.5;                                                                       \
        a.kind = kind;                                                                             \
        a.field = (value);                                                                         \
        SAYS(EMBFUSE_INVALID, words, embfuse_admit(x->model, &a, 1, &x->batch, out, NULL, &why));  \
    } while (0)

static void wrong_admissions(void **state) {
    (void)state;
    struct training *x = training_open(9);
    _Alignas(4) uint8_t room[ROWS + 1] = {0};
    uint8_t *counters = room + 1;
    int64_t out[MOST], kept[MOST];
    int32_t kind = EMBFUSE_ADMIT_COUNT;
    training_batch(x, 0, NULL);
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
    SAYS(EMBFUSE_INVALID, "admission 1: its table has another",
         embfuse_admit(x->model, twice, 2, &x->batch, out, NULL, &why));
    assert_int_equal(embfuse_admit(x->model, &a, -1, &x->batch, out, NULL, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_admit(x->model, &a, 1, &x->batch, NULL, NULL, NULL), EMBFUSE_INVALID);
    x->ids[8] = ROWS;
    SAYS(EMBFUSE_BAD_BATCH, "300", embfuse_admit(x->model, &a, 1, &x->batch, out, NULL, &why));
    assert_memory_equal(out, kept, sizeof out);
    for (int i = 0; i < ROWS; i++) assert_int_equal(counters[i], 0);
    training_free(x);
    x = training_open(-1);
    training_batch(x, 0, NULL);
    SAYS(EMBFUSE_INVALID, "has no padding_id",
         embfuse_admit(x->model, &a, 1, &x->batch, out, NULL, &why));
    training_free(x);
}

TESTS(admission_model) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trains_the_admitted),
        cmocka_unit_test(wrong_admissions),
    };
    return cmocka_run_group_tests_name("admission_model", tests, NULL, NULL);
}
