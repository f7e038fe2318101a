/* SPDX-License-Identifier: MIT
 *
 * Admission of ids without a model: counters that saturate, long streams against plain counting, chance,
 * Bloom filters, any number of threads. tests/library/test_admission_model.c has the rest.
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

/* --- counters */

static int64_t counter(const void *counters, int32_t bytes, int64_t i) {
    return bytes == 1   ? ((const uint8_t *)counters)[i]
           : bytes == 2 ? ((const uint16_t *)counters)[i]
                        : ((const uint32_t *)counters)[i];
}

static void counters_saturate(void **state) {
    const int32_t bytes = (int32_t)(intptr_t)*state;
    const int64_t most = bytes == 4 ? 70000 : (INT64_C(1) << 8 * bytes) - 1, n = most + 1000;
    const uint32_t around[3] = {0x11111111, 0, 0x22222222};
    uint32_t memory[3];
    memcpy(memory, around, sizeof memory);
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    for (int64_t i = 0; i < n; i++) ids[i] = 4 / bytes;
    const struct embfuse_admission a = counting(memory, 12 / bytes, bytes, most);
    int64_t rejected;
    for (int part = 0; part < 3; part++) { /* one touch too few; the last one; many more */
        const int64_t count = part == 0 ? most - 1 : part == 1 ? 1 : n;
        int32_t *out = malloc((size_t)count * sizeof *out);
        assert_int_equal(
            embfuse_admit_ids(&a, ids, EMBFUSE_INT32, count, -5, 3, out, &rejected, NULL), 0);
        assert_int_equal(rejected, part == 0 ? count : 0);
        assert_int_equal(out[count - 1], part == 0 ? -5 : ids[0]);
        assert_int_equal(counter(memory, bytes, ids[0]), part == 0 ? most - 1 : most);
        free(out);
    }
    for (int64_t i = 0; i < 12 / bytes; i++)
        if (i != ids[0]) assert_int_equal(counter(memory, bytes, i), counter(around, bytes, i));
    free(ids);
}

/* --- long streams of ids */

enum {
    STREAM = 150000,
    IDS = 20000,
    PARTS = 5
}; /* a part is long enough for several threads, but one */

static int64_t *stream_of(uint64_t seed, int64_t ids) {
    int64_t *out = malloc(STREAM * sizeof *out);
    for (int64_t i = 0; i < STREAM; i++) {
        const double u = rng_unit(seed, (uint64_t)i);
        out[i] = (int64_t)((double)ids * u * u * u);
    }
    return out;
}

/* Where part k of a stream begins. */
static int64_t part_at(int k) {
    return k == PARTS ? STREAM : k == 0 ? 0 : 75000 + (k - 1) * 100;
}

static void run_stream(const struct embfuse_admission *a, const int64_t *ids, int parts,
                       int threads, int64_t *out) {
    struct embfuse_error why;
    for (int k = 0; k < parts; k++) {
        const int64_t at = parts == 1 ? 0 : part_at(k), to = parts == 1 ? STREAM : part_at(k + 1);
        fine(embfuse_admit_ids(a, ids + at, EMBFUSE_INT64, to - at, -1, threads, out + at, NULL,
                               &why),
             &why);
    }
}

/* Against counting in an array; all parts, since an id may be admitted in the middle. */
static void as_plain_counting(void **state) {
    (void)state;
    enum { THRESHOLD = 9 };
    int64_t *ids = stream_of(1, IDS), *out = malloc(STREAM * sizeof *out);
    int64_t *count = calloc(IDS, sizeof *count), rejected = 0, kept = 0;
    uint16_t *counters = calloc(IDS, sizeof *counters);
    const struct embfuse_admission a = counting(counters, IDS, 2, THRESHOLD);
    run_stream(&a, ids, PARTS, 2, out);
    for (int k = 0; k < PARTS; k++) {
        for (int64_t i = part_at(k); i < part_at(k + 1); i++) count[ids[i]]++;
        for (int64_t i = part_at(k); i < part_at(k + 1); i++) {
            const bool in = count[ids[i]] >= THRESHOLD;
            assert_int_equal(out[i], in ? ids[i] : -1);
            kept += in, rejected += !in;
        }
    }
    for (int64_t i = 0; i < IDS; i++)
        assert_int_equal(counters[i], count[i] < THRESHOLD ? count[i] : THRESHOLD);
    assert_true(kept > STREAM / 5 && rejected > STREAM / 5);
    free(ids), free(out), free(count), free(counters);
}

static const struct stream_case {
    const char *name;
    int32_t kind, bytes, hashes;
} stream_cases[] = {
    {"count, 1 byte", EMBFUSE_ADMIT_COUNT, 1, 0},
    {"count, 2 bytes", EMBFUSE_ADMIT_COUNT, 2, 0},
    {"count, 4 bytes", EMBFUSE_ADMIT_COUNT, 4, 0},
    {"Bloom filter", EMBFUSE_ADMIT_COUNT, 1, 4},
    {"chance, 1 byte", EMBFUSE_ADMIT_CHANCE, 1, 0},
    {"chance, 2 bytes", EMBFUSE_ADMIT_CHANCE, 2, 0},
    {"chance, 4 bytes", EMBFUSE_ADMIT_CHANCE, 4, 0},
};

static void threads_do_not_matter(void **state) {
    const struct stream_case *c = *state;
    int64_t *ids = stream_of(2, IDS), *out[3];
    uint32_t *counters[3];
    static const int threads[3] = {1, 4, 0};
    for (int k = 0; k < 3; k++) {
        counters[k] = calloc(IDS, sizeof **counters);
        out[k] = malloc(STREAM * sizeof **out);
        struct embfuse_admission a = by_chance(counters[k], IDS, c->bytes, 0.05);
        a.kind = c->kind;
        a.threshold = 20;
        a.hashes = c->hashes;
        run_stream(&a, ids, PARTS, threads[k], out[k]);
        assert_memory_equal(counters[k], counters[0], IDS * sizeof **counters);
        assert_memory_equal(out[k], out[0], STREAM * sizeof **out);
    }
    for (int k = 0; k < 3; k++) free(counters[k]), free(out[k]);
    free(ids);
}

/* All threads touch three counters far below their threshold: no touch is lost. Then none is counted. */
static void threads_meet(void **state) {
    (void)state;
    int64_t *ids = malloc(STREAM * sizeof *ids), *out = malloc(STREAM * sizeof *out);
    uint32_t counters[3] = {0};
    struct embfuse_admission a = counting(counters, 3, 4, 1000000);
    for (int64_t i = 0; i < STREAM; i++) ids[i] = i % 3;
    for (int n = 0; n < 3; n++) {
        a.frozen = n == 2;
        run_stream(&a, ids, 1, 4, out);
    }
    for (int k = 0; k < 3; k++) assert_int_equal(counters[k], 2 * STREAM / 3);
    free(ids), free(out);
}

/* --- chance */

/* Within 5 standard deviations of a binomial count. */
static void expect_share(int64_t got, int64_t of, double p) {
    const double mean = (double)of * p, most = 5 * sqrt((double)of * p * (1 - p)) + 1;
    if (!(fabs((double)got - mean) <= most))
        fail_msg("%lld of %lld; expected %g +- %g", (long long)got, (long long)of, mean, most);
}

/* Touch k admits a share p of those that are left, whatever the widths of counters. */
static void chance_of_each_touch(void **state) {
    (void)state;
    enum { N = 100000 };
    const double p = 0.2;
    int32_t *ids = malloc(N * sizeof *ids), *out = malloc(N * sizeof *out);
    uint8_t *counters = calloc(N, 1);
    int64_t left = N, rejected;
    const struct embfuse_admission a = by_chance(counters, N, 1, p);
    for (int32_t i = 0; i < N; i++) ids[i] = i;
    for (int k = 1; k <= 12; k++) {
        assert_int_equal(embfuse_admit_ids(&a, ids, EMBFUSE_INT32, N, -1, 2, out, &rejected, NULL),
                         0);
        expect_share(left - rejected, left, p);
        left = rejected;
        for (int32_t i = 0; i < N; i++) assert_int_equal(counters[i], out[i] < 0 ? k : UINT8_MAX);
    }
    free(ids), free(out), free(counters);
}

/* The same touches in one call or in many, or in another order, admit the same ids; other seeds and tables
 * admit others, independently. */
static void chance_is_reproducible(void **state) {
    (void)state;
    enum { RUNS = 5, ONE_TOUCH = 40000 };
    const double p = 0.1;
    int64_t *ids = stream_of(4, IDS), *out = malloc(STREAM * sizeof *out);
    uint16_t *counters[RUNS];
    for (int k = 0; k < RUNS; k++) {
        counters[k] = calloc(ONE_TOUCH, sizeof **counters);
        struct embfuse_admission a = by_chance(counters[k], ONE_TOUCH, 2, p);
        if (k == 1)
            for (int64_t i = 0; i < STREAM / 2; i++) {
                const int64_t id = ids[i];
                ids[i] = ids[STREAM - 1 - i], ids[STREAM - 1 - i] = id;
            }
        if (k == 3) a.seed++;
        if (k == 4) a.table++;
        if (k < 2) run_stream(&a, ids, k ? 1 : PARTS, 3, out);
        for (int64_t i = 0; k >= 2 && i < ONE_TOUCH; i++) out[i] = i;
        if (k >= 2) embfuse_admit_ids(&a, out, EMBFUSE_INT64, ONE_TOUCH, -1, 1, out, NULL, NULL);
    }
    assert_memory_equal(counters[1], counters[0], ONE_TOUCH * sizeof **counters);
    for (int k = 3; k < RUNS; k++) {
        int64_t both = 0;
        for (int64_t i = 0; i < ONE_TOUCH; i++)
            both += counters[2][i] == UINT16_MAX && counters[k][i] == UINT16_MAX;
        expect_share(both, ONE_TOUCH, p * p);
    }
    for (int k = 0; k < RUNS; k++) free(counters[k]);
    free(ids), free(out);
}

static void chance_at_its_ends(void **state) {
    (void)state;
    uint8_t counters[2] = {0};
    int64_t id = 1, out, rejected;
    struct embfuse_admission a = by_chance(counters, 2, 1, 1e-300);
    for (int k = 1; k <= 300; k++) {
        assert_int_equal(embfuse_admit_ids(&a, &id, EMBFUSE_INT64, 1, -1, 1, &out, &rejected, NULL),
                         0);
        assert_int_equal(rejected, k < 255);
    }
    a.probability = 1;
    id = 0;
    assert_int_equal(embfuse_admit_ids(&a, &id, EMBFUSE_INT64, 1, -1, 1, &out, &rejected, NULL), 0);
    assert_int_equal(rejected, 0);
    assert_int_equal(out, 0);
}

/* --- Bloom filters */

/* An id with enough touches is always admitted, also from a filter that is far too small. */
static void bloom_never_admits_late(void **state) {
    (void)state;
    enum { THRESHOLD = 5 };
    static const int64_t sizes[] = {1, 7, 1000, 200000};
    int64_t *ids = stream_of(5, IDS), *out = malloc(STREAM * sizeof *out);
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        int64_t *count = calloc(IDS, sizeof *count), early = 0;
        uint8_t *counters = calloc((size_t)sizes[k], 1);
        struct embfuse_admission a = counting(counters, sizes[k], 1, THRESHOLD);
        a.hashes = 3;
        run_stream(&a, ids, 1, 2, out);
        for (int64_t i = 0; i < STREAM; i++) count[ids[i]]++;
        for (int64_t i = 0; i < STREAM; i++) {
            if (count[ids[i]] >= THRESHOLD) assert_int_equal(out[i], ids[i]);
            early += count[ids[i]] < THRESHOLD && out[i] >= 0;
        }
        if (k == 0) assert_true(early > 1000); /* one counter for all */
        if (k == 3) assert_true(early < 1000);
        free(count), free(counters);
    }
    free(ids), free(out);
}

/* One touch of each of N hashed ids; two are needed. Those that are admitted share all their counters with
 * others, and are as many as the formula says. */
static void bloom_admits_early(void **state) {
    const double p = *(const double *)*state;
    enum { N = 100000 };
    int64_t *ids = malloc(N * sizeof *ids), *out = malloc(N * sizeof *out), n = 0, rejected;
    int32_t hashes = 0;
    struct embfuse_error why;
    fine(embfuse_admission_filter(N, p, &n, &hashes, &why), &why);
    const double says = pow(1 - exp(-(double)hashes * N / (double)n), hashes);
    assert_float_equal(says / p, 1, 1e-3);
    uint8_t *counters = calloc((size_t)n, 1);
    struct embfuse_admission a = counting(counters, n, 1, 2);
    a.hashes = hashes;
    for (int64_t i = 0; i < N; i++) ids[i] = (int64_t)rng_u64(9, (uint64_t)i); /* any sign */
    fine(embfuse_admit_ids(&a, ids, EMBFUSE_INT64, N, 0, 2, out, &rejected, &why), &why);
    expect_share(N - rejected, N, says);
    fine(embfuse_admit_ids(&a, ids, EMBFUSE_INT64, N, 0, 2, out, &rejected, &why), &why);
    assert_int_equal(rejected, 0);
    assert_memory_equal(out, ids, N * sizeof *ids);
    free(ids), free(out), free(counters);
}

static void filters_by_hand(void **state) {
    (void)state;
    int64_t n = 0;
    int32_t hashes = 0;
    assert_int_equal(embfuse_admission_filter(1000, 0.01, &n, &hashes, NULL), 0);
    assert_int_equal(hashes, 7); /* the textbook: 9.6 counters for each id, 7 hashes */
    assert_in_range(n, 9580, 9620);
    assert_int_equal(embfuse_admission_filter(0, 0.01, &n, &hashes, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_admission_filter(10, 0, &n, &hashes, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_admission_filter(10, 1, &n, &hashes, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_admission_filter(10, (double)NAN, &n, &hashes, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_admission_filter(INT64_MAX, 1e-9, &n, &hashes, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_admission_filter(10, 0.5, NULL, &hashes, NULL), EMBFUSE_INVALID);
}

/* --- what is refused */

static void wrong_arguments(void **state) {
    (void)state;
    uint16_t counters[4] = {0};
    int64_t ids[3] = {1, 4, -1}, out[3] = {7, 7, 7};
    struct embfuse_error why;
    const struct embfuse_admission a = counting(counters, 4, 2, 1);
    assert_int_equal(embfuse_admit_ids(&a, ids, EMBFUSE_INT64, 3, -1, 1, out, NULL, &why),
                     EMBFUSE_BAD_BATCH);
    assert_string_equal(why.text, "lookup 1: id 4 has no counter of 4");
    assert_int_equal(embfuse_admit_ids(&a, ids, EMBFUSE_INT64, 3, 4, 1, out, NULL, &why),
                     EMBFUSE_BAD_BATCH);
    assert_string_equal(why.text, "lookup 2: id -1 has no counter of 4");
    assert_int_equal(embfuse_admit_ids(&a, ids, 2, 1, -1, 1, out, NULL, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_admit_ids(&a, ids, 1, -1, -1, 1, out, NULL, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_admit_ids(&a, ids, 1, 1, -1, -1, out, NULL, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_admit_ids(&a, NULL, 1, 1, -1, 1, out, NULL, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_admit_ids(&a, ids, 1, 1, -1, 1, NULL, NULL, NULL), EMBFUSE_INVALID);
    assert_int_equal(embfuse_admit_ids(NULL, ids, 1, 1, -1, 1, out, NULL, NULL), EMBFUSE_INVALID);
    assert_int_equal(
        embfuse_admit_ids(&a, ids, EMBFUSE_INT32, 1, INT64_C(1) << 32, 1, out, NULL, NULL),
        EMBFUSE_INVALID);
    for (int i = 0; i < 4; i++) assert_int_equal(counters[i], 0);
    for (int i = 0; i < 3; i++) assert_int_equal(out[i], 7);
    assert_int_equal(embfuse_admit_ids(&a, NULL, EMBFUSE_INT64, 0, -1, 1, NULL, NULL, &why), 0);
}

TESTS(admission) {
    enum { CASES = sizeof stream_cases / sizeof *stream_cases };
    static const double probabilities[] = {0.3, 0.01};
    const struct CMUnitTest others[] = {
        case_test("counters of 1 byte saturate", counters_saturate, (void *)1),
        case_test("counters of 2 bytes saturate", counters_saturate, (void *)2),
        case_test("counters of 4 bytes saturate", counters_saturate, (void *)4),
        cmocka_unit_test(as_plain_counting),
        cmocka_unit_test(threads_meet),
        cmocka_unit_test(chance_of_each_touch),
        cmocka_unit_test(chance_is_reproducible),
        cmocka_unit_test(chance_at_its_ends),
        cmocka_unit_test(bloom_never_admits_late),
        case_test("Bloom filter admits early, 0.3", bloom_admits_early, &probabilities[0]),
        case_test("Bloom filter admits early, 0.01", bloom_admits_early, &probabilities[1]),
        cmocka_unit_test(filters_by_hand),
        cmocka_unit_test(wrong_arguments),
    };
    struct CMUnitTest tests[CASES + sizeof others / sizeof *others];
    for (int i = 0; i < CASES; i++)
        tests[i] = case_test(stream_cases[i].name, threads_do_not_matter, &stream_cases[i]);
    memcpy(tests + CASES, others, sizeof others);
    return cmocka_run_group_tests_name("admission", tests, NULL, NULL);
}
