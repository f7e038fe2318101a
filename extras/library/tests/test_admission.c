/* SPDX-License-Identifier: MIT
 *
 * Admission of ids: long streams against plain counting, chance, Bloom filters, any number of
 * threads; the batches of a model; what is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "extras/library/embfuse.h"
#include "kernels/rng.h"

#include "extras/library/tests/says.h"

enum {
    STREAM = 150000,
    IDS = 20000,
    HALF = STREAM / 2, /* long enough for several threads */
};

static struct embfuse_admission counting(void *counters, int64_t n, int32_t bytes,
                                         int64_t threshold) {
    return (struct embfuse_admission){.size = sizeof(struct embfuse_admission),
                                      .kind = EMBFUSE_ADMIT_COUNT,
                                      .threshold = threshold,
                                      .seed = 3,
                                      .counters = counters,
                                      .num_counters = n,
                                      .counter_bytes = bytes};
}

static struct embfuse_admission by_chance(void *counters, int64_t n, int32_t bytes, double p) {
    struct embfuse_admission a = counting(counters, n, bytes, 0);
    a.kind = EMBFUSE_ADMIT_CHANCE;
    a.probability = p;
    return a;
}

static int64_t *stream_of(uint64_t seed, int64_t ids) {
    int64_t *out = malloc(STREAM * sizeof *out);
    for (int64_t i = 0; i < STREAM; i++) {
        const double u = rng_unit(seed, (uint64_t)i);
        out[i] = (int64_t)((double)ids * u * u * u);
    }
    return out;
}

/* Returns the number of rejected lookups. */
static int64_t admit_ids(const struct embfuse_admission *a, const int64_t *ids, int64_t count,
                         int threads, int64_t *out) {
    int64_t rejected = -1;
    FINE(embfuse_admit_ids(a, ids, EMBFUSE_INT64, count, -1, threads, out, &rejected, &why));
    return rejected;
}

static void run_stream(const struct embfuse_admission *a, const int64_t *ids, int threads,
                       int64_t *out) {
    for (int k = 0; k < 2; k++) admit_ids(a, ids + k * HALF, HALF, threads, out + k * HALF);
}

/* --- counters */

static int64_t counter(const void *counters, int32_t bytes, int64_t i) {
    return bytes == 1   ? ((const uint8_t *)counters)[i]
           : bytes == 2 ? ((const uint16_t *)counters)[i]
                        : ((const uint32_t *)counters)[i];
}

/* Each half is counted as a whole before its lookups are admitted. With few ids all threads want
 * the same counters, which saturate or stay far below the threshold; the counters around those of
 * the stream stay as they are. */
static void as_plain_counting(void **state) {
    (void)state;
    static const struct {
        int32_t bytes, threshold;
        int64_t ids;
    } cases[] = {{1, 9, IDS}, {1, 255, 700}, {2, 300, 700}, {2, 65535, 2}, {4, 70000, 2}};
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        const int64_t all = cases[n].ids + 2, most = cases[n].threshold;
        const int32_t bytes = cases[n].bytes;
        int64_t *ids = stream_of(n, cases[n].ids), *out = malloc(STREAM * sizeof *out);
        int64_t *count = calloc((size_t)all, sizeof *count);
        void *counters = calloc((size_t)all, sizeof(uint32_t));
        const struct embfuse_admission a = counting(counters, all, bytes, most);
        for (int64_t i = 0; i < STREAM; i++) ids[i]++;
        run_stream(&a, ids, 4, out);
        for (int64_t first = 0; first < STREAM; first += HALF) {
            for (int64_t i = first; i < first + HALF; i++) count[ids[i]]++;
            for (int64_t i = first; i < first + HALF; i++)
                assert_int_equal(out[i], count[ids[i]] >= most ? ids[i] : -1);
        }
        for (int64_t i = 0; i < all; i++)
            assert_int_equal(counter(counters, bytes, i), count[i] < most ? count[i] : most);
        free(ids), free(out), free(count), free(counters);
    }
}

/* Of chance, and of a filter with 4 hashes that is too small: whatever has enough touches is
 * admitted. Frozen counters stay. */
static void threads_do_not_matter(void **state) {
    (void)state;
    for (int filter = 0; filter < 2; filter++) {
        int64_t *ids = stream_of(2, IDS), *out[2], spare[100], count[IDS] = {0};
        uint8_t *counters[2];
        for (int k = 0; k < 2; k++) {
            counters[k] = calloc(IDS, 1);
            out[k] = malloc(STREAM * sizeof **out);
            struct embfuse_admission a = by_chance(counters[k], IDS, 1, 0.05);
            if (filter) a = counting(counters[k], 2000, 1, 20), a.hashes = 4;
            run_stream(&a, ids, k ? 4 : 1, out[k]);
            a.frozen = 1;
            admit_ids(&a, ids, 100, 1, spare);
        }
        for (int64_t i = 0; i < STREAM; i++)
            if (++count[ids[i]] >= 20 && filter) assert_int_equal(out[0][i], ids[i]);
        assert_memory_equal(counters[1], counters[0], IDS);
        assert_memory_equal(out[1], out[0], STREAM * sizeof **out);
        for (int k = 0; k < 2; k++) free(counters[k]), free(out[k]);
        free(ids);
    }
}

/* --- chance */

/* Within 5 standard deviations of a binomial count. */
static void expect_share(int64_t got, int64_t of, double p) {
    const double mean = (double)of * p, most = 5 * sqrt((double)of * p * (1 - p)) + 1;
    if (!(fabs((double)got - mean) <= most))
        fail_msg("%lld of %lld; expected %g +- %g", (long long)got, (long long)of, mean, most);
}

/* Touch k admits a share p of those that are left; p may be 1. Another seed or table admits others,
 * independently. */
static void chance_of_each_touch(void **state) {
    (void)state;
    enum { N = 100000, RUNS = 3 };
    const double p = 0.2;
    int64_t *ids = malloc(N * sizeof *ids), *out = malloc(N * sizeof *out), both[RUNS] = {0};
    uint8_t *counters = calloc(N, 1), *other = calloc(N, 1);
    struct embfuse_admission a = by_chance(counters, N, 1, p);
    for (int64_t i = 0; i < N; i++) ids[i] = i;
    for (int64_t k = 1, left = N; k <= 12; k++) {
        const int64_t rejected = admit_ids(&a, ids, N, 2, out);
        expect_share(left - rejected, left, p);
        left = rejected;
        for (int64_t i = 0; i < N; i++) assert_int_equal(counters[i], out[i] < 0 ? k : UINT8_MAX);
    }
    for (int run = 0; run < RUNS; run++) {
        struct embfuse_admission b = by_chance(other, N, 1, p);
        b.seed += run == 1, b.table += run == 2;
        memset(counters, 0, N), memset(other, 0, N);
        admit_ids(&a, ids, N, 1, out);
        admit_ids(&b, ids, N, 1, out);
        for (int64_t i = 0; i < N; i++)
            both[run] += counters[i] == UINT8_MAX && other[i] == UINT8_MAX;
        expect_share(both[run], N, run ? p * p : p);
    }
    a.probability = 1;
    assert_int_equal(admit_ids(&a, ids, N, 1, out), 0);
    free(ids), free(out), free(counters), free(other);
}

/* --- Bloom filters */

/* One touch of each of N hashed ids; two are needed. Ids are admitted that share all their counters
 * with others; they are as many as the formula says. */
static void bloom_admits_early(void **state) {
    (void)state;
    enum { N = 100000 };
    static const double probability[] = {0.3, 0.01};
    int64_t *ids = malloc(N * sizeof *ids), *out = malloc(N * sizeof *out);
    for (int64_t i = 0; i < N; i++) ids[i] = (int64_t)rng_u64(9, (uint64_t)i); /* any sign */
    for (int k = 0; k < 2; k++) {
        int64_t n = 0;
        int32_t hashes = 0;
        assert_int_equal(embfuse_admission_filter(N, probability[k], &n, &hashes, NULL), 0);
        if (k) assert_int_equal(hashes, 7); /* the textbook */
        const double says = pow(1 - exp(-(double)hashes * N / (double)n), hashes);
        assert_float_equal(says / probability[k], 1, 1e-3);
        uint8_t *counters = calloc((size_t)n, 1);
        struct embfuse_admission a = counting(counters, n, 1, 2);
        a.hashes = hashes;
        expect_share(N - admit_ids(&a, ids, N, 2, out), N, says);
        assert_int_equal(admit_ids(&a, ids, N, 2, out), 0);
        assert_memory_equal(out, ids, N * sizeof *ids);
        free(counters);
    }
    free(ids), free(out);
}

/* --- the batches of a model */

enum { ROWS = 10, LOOKUPS = 12 };

/* Features 0 and 1 read table 0, each with a padding of its own; feature 2 reads table 1, which
 * admits all. Each has two bags of two lookups. */
struct small_batch {
    int64_t ids[LOOKUPS], offsets[7];
    struct embfuse_batch batch;
    struct embfuse_model *model;
};

static void small_batch_open(struct small_batch *x) {
    static const struct embfuse_feature features[] = {
        {.table = 0, .has_padding = 1, .padding_id = 4},
        {.table = 0, .has_padding = 1, .padding_id = 9},
        {.table = 1}};
    const struct embfuse_table table = {.rows = ROWS, .dim = 8, .rule = "sgd"},
                               tables[] = {table, table};
    *x = (struct small_batch){.ids = {1, 4, 2, 9, 1, 9, 4, 3, 5, 5, 4, 9},
                              .offsets = {0, 2, 4, 6, 8, 10, 12},
                              .batch = {.size = sizeof x->batch,
                                        .bags = 2,
                                        .lookups = LOOKUPS,
                                        .ids = x->ids,
                                        .offsets = x->offsets,
                                        .id_type = EMBFUSE_INT64}};
    FINE(embfuse_model_create(&x->model, tables, 2, features, 3, NULL, &why));
}

/* Both features of table 0 are counted before one is judged. What is rejected is padding then. */
static void lookups_become_padding(void **state) {
    (void)state;
    static const int64_t want[LOOKUPS] = {1, 4, 4, 4, 1, 9, 9, 9, 5, 5, 4, 9};
    static const uint8_t counts[ROWS] = {0, 2, 1, 1, 1, 0, 0, 0, 0, 1};
    struct small_batch x;
    uint8_t counters[ROWS] = {0};
    int64_t rejected;
    const struct embfuse_admission a = counting(counters, ROWS, 1, 2);
    small_batch_open(&x);
    FINE(embfuse_admit(x.model, &a, 1, &x.batch, x.ids, &rejected, &why)); /* in place */
    assert_memory_equal(x.ids, want, sizeof want);
    assert_memory_equal(counters, counts, sizeof counts);
    assert_int_equal(rejected, 4);
    embfuse_model_free(x.model);
}

/* --- what is refused */

static void wrong_ids(void **state) {
    (void)state;
    uint16_t counters[4] = {0};
    int64_t ids[3] = {1, 4, -1}, out[3] = {7, 7, 7}, n;
    int32_t hashes;
    const struct embfuse_admission a = counting(counters, 4, 2, 1);
    const struct {
        int status;
        const int64_t *ids;
        int32_t type, threads;
        int64_t count, padding;
        const char *said;
    } wrong[] = {{EMBFUSE_BAD_BATCH, ids, 1, 1, 3, -1, "lookup 1: id 4 has no counter of 4"},
                 {EMBFUSE_BAD_BATCH, ids, 1, 1, 3, 4, "lookup 2: id -1 has no counter of 4"},
                 {EMBFUSE_INVALID, ids, 0, 1, 1, -1, "id_type"},
                 {EMBFUSE_INVALID, ids, 1, 1, -1, -1, "below 0"},
                 {EMBFUSE_INVALID, ids, 1, -1, 1, -1, "below 0"},
                 {EMBFUSE_INVALID, NULL, 1, 1, 1, -1, "NULL"},
                 {EMBFUSE_INVALID, ids, EMBFUSE_INT32, 1, 1, INT64_C(1) << 32, "does not fit"}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        SAYS(wrong[i].status, wrong[i].said,
             embfuse_admit_ids(&a, wrong[i].ids, wrong[i].type, wrong[i].count, wrong[i].padding,
                               wrong[i].threads, out, NULL, &why));
    for (int i = 0; i < 4; i++) assert_int_equal(counters[i], 0);
    for (int i = 0; i < 3; i++) assert_int_equal(out[i], 7);
    static const double probabilities[] = {0, 1, (double)NAN};
    for (int i = 0; i < 3; i++)
        assert_int_equal(embfuse_admission_filter(10, probabilities[i], &n, &hashes, NULL),
                         EMBFUSE_INVALID);
}

/* Refuses an admission with another value of one field. */
#define WRONG(words, field, value)                                                                 \
    do {                                                                                           \
        struct embfuse_admission a = good;                                                         \
        a.field = (value);                                                                         \
        SAYS(EMBFUSE_INVALID, words, embfuse_admit(x.model, &a, 1, &x.batch, x.ids, NULL, &why));  \
    } while (0)

static void wrong_admissions(void **state) {
    (void)state;
    struct small_batch x, before;
    _Alignas(4) uint8_t room[ROWS + 1] = {0};
    struct embfuse_admission good = counting(room + 1, ROWS, 1, 3);
    small_batch_open(&x);
    before = x;
    WRONG("size is not", size, 8);
    WRONG("no such table", table, 2);
    WRONG("has no padding", table, 1);
    WRONG("kind is", kind, 3);
    WRONG("threshold is", threshold, 256);
    WRONG("hashes is 0 to 64", hashes, 65);
    WRONG("counter_bytes", counter_bytes, 3);
    WRONG("not aligned", counter_bytes, 2);
    WRONG("more rows than", num_counters, ROWS - 1);
    WRONG("no counters", counters, NULL);
    WRONG("reserved", reserved, 1);
    const struct embfuse_admission twice[] = {good, good};
    SAYS(EMBFUSE_INVALID, "admission 1: its table has another",
         embfuse_admit(x.model, twice, 2, &x.batch, x.ids, NULL, &why));
    good = by_chance(room + 1, ROWS, 1, 0.5);
    WRONG("probability is", probability, (double)NAN);
    WRONG("hashes is 0", hashes, 1);
    assert_memory_equal(&x, &before, sizeof x);
    x.ids[8] = ROWS;
    SAYS(EMBFUSE_BAD_BATCH, "10", embfuse_admit(x.model, &good, 1, &x.batch, x.ids, NULL, &why));
    for (int i = 0; i < ROWS; i++) assert_int_equal(room[i + 1], 0);
    embfuse_model_free(x.model);
}

TESTS(admission) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_plain_counting),
                                       cmocka_unit_test(threads_do_not_matter),
                                       cmocka_unit_test(chance_of_each_touch),
                                       cmocka_unit_test(bloom_admits_early),
                                       cmocka_unit_test(wrong_ids),
                                       cmocka_unit_test(lookups_become_padding),
                                       cmocka_unit_test(wrong_admissions)};
    return cmocka_run_group_tests_name("admission", tests, NULL, NULL);
}
