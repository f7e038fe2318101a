/* SPDX-License-Identifier: MIT
 *
 * Admission of ids without a model: long streams against plain counting, chance, Bloom filters, any
 * number of threads, what is refused. tests/library/test_admission_model.c has the rest.
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "include/embfuse.h"
#include "kernels/rng.h"

#include "tests/support/cmocka_cases.h"

enum {
    STREAM = 150000,
    IDS = 20000,
    PARTS = 5, /* of a stream; the first two are long enough for several threads */
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

/* Where part k of a stream begins. */
static int64_t part_at(int k) {
    return k == PARTS ? STREAM : k == 0 ? 0 : 75000 + (k - 1) * 100;
}

/* Returns the number of rejected lookups. */
static int64_t admit(const struct embfuse_admission *a, const int64_t *ids, int64_t count,
                     int threads, int64_t *out) {
    struct embfuse_error why;
    int64_t rejected = -1;
    if (embfuse_admit_ids(a, ids, EMBFUSE_INT64, count, -1, threads, out, &rejected, &why))
        fail_msg("%s", why.text);
    return rejected;
}

static void run_stream(const struct embfuse_admission *a, const int64_t *ids, int threads,
                       int64_t *out) {
    for (int k = 0; k < PARTS; k++)
        admit(a, ids + part_at(k), part_at(k + 1) - part_at(k), threads, out + part_at(k));
}

/* --- counters */

static int64_t counter(const void *counters, int32_t bytes, int64_t i) {
    return bytes == 1   ? ((const uint8_t *)counters)[i]
           : bytes == 2 ? ((const uint16_t *)counters)[i]
                        : ((const uint32_t *)counters)[i];
}

static const struct {
    int32_t bytes, threshold;
    int64_t ids;
} counts[] = {{1, 9, IDS},   {1, 255, 700}, {2, 300, 700},
              {2, 65535, 2}, {4, 70000, 2}, {4, 1000000, 3}};

/* Each part is counted as a whole before its lookups are admitted. With few ids all threads want
 * the same counters, which saturate or stay far below the threshold; the counters around those of
 * the stream stay as they are. */
static void as_plain_counting(void **state) {
    (void)state;
    for (size_t n = 0; n < sizeof counts / sizeof *counts; n++) {
        const int64_t all = counts[n].ids + 2, most = counts[n].threshold;
        const int32_t bytes = counts[n].bytes;
        int64_t *ids = stream_of(n, counts[n].ids), *out = malloc(STREAM * sizeof *out);
        int64_t *count = calloc((size_t)all, sizeof *count);
        void *counters = calloc((size_t)all, sizeof(uint32_t));
        const struct embfuse_admission a = counting(counters, all, bytes, most);
        for (int64_t i = 0; i < STREAM; i++) ids[i]++;
        run_stream(&a, ids, 4, out);
        for (int k = 0; k < PARTS; k++) {
            for (int64_t i = part_at(k); i < part_at(k + 1); i++) count[ids[i]]++;
            for (int64_t i = part_at(k); i < part_at(k + 1); i++)
                assert_int_equal(out[i], count[ids[i]] >= most ? ids[i] : -1);
        }
        for (int64_t i = 0; i < all; i++)
            assert_int_equal(counter(counters, bytes, i), count[i] < most ? count[i] : most);
        free(ids), free(out), free(count), free(counters);
    }
}

static const struct {
    int32_t kind, bytes, hashes;
} with_threads[] = {{EMBFUSE_ADMIT_COUNT, 1, 4},
                    {EMBFUSE_ADMIT_CHANCE, 1, 0},
                    {EMBFUSE_ADMIT_CHANCE, 2, 0},
                    {EMBFUSE_ADMIT_CHANCE, 4, 0}};

/* Nor does the order of touches, as in the last run. Frozen counters stay. */
static void threads_do_not_matter(void **state) {
    (void)state;
    for (size_t n = 0; n < sizeof with_threads / sizeof *with_threads; n++) {
        static const int threads[] = {1, 4, 0, 2};
        int64_t *ids = stream_of(2, IDS), *out[4], spare[100];
        uint32_t *counters[4];
        for (int k = 0; k < 4; k++) {
            counters[k] = calloc(IDS, sizeof **counters);
            out[k] = malloc(STREAM * sizeof **out);
            struct embfuse_admission a = by_chance(counters[k], IDS, with_threads[n].bytes, 0.05);
            a.kind = with_threads[n].kind;
            a.threshold = 20;
            a.hashes = with_threads[n].hashes;
            for (int64_t i = 0; k == 3 && i < STREAM / 2; i++) {
                const int64_t id = ids[i];
                ids[i] = ids[STREAM - 1 - i], ids[STREAM - 1 - i] = id;
            }
            run_stream(&a, ids, threads[k], out[k]);
            a.frozen = 1;
            admit(&a, ids, 100, threads[k], spare);
            assert_memory_equal(counters[k], counters[0], IDS * sizeof **counters);
            if (k < 3) assert_memory_equal(out[k], out[0], STREAM * sizeof **out);
        }
        for (int k = 0; k < 4; k++) free(counters[k]), free(out[k]);
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

/* Touch k admits a share p of those that are left. Another seed or table admits others,
 * independently. */
static void chance_of_each_touch(void **state) {
    (void)state;
    enum { N = 100000, RUNS = 3 };
    const double p = 0.2;
    int64_t *ids = malloc(N * sizeof *ids), *out = malloc(N * sizeof *out), both[RUNS] = {0};
    uint8_t *counters = calloc(N, 1), *other = calloc(N, 1);
    const struct embfuse_admission a = by_chance(counters, N, 1, p);
    for (int64_t i = 0; i < N; i++) ids[i] = i;
    for (int64_t k = 1, left = N; k <= 12; k++) {
        const int64_t rejected = admit(&a, ids, N, 2, out);
        expect_share(left - rejected, left, p);
        left = rejected;
        for (int64_t i = 0; i < N; i++) assert_int_equal(counters[i], out[i] < 0 ? k : UINT8_MAX);
    }
    for (int run = 0; run < RUNS; run++) {
        struct embfuse_admission b = by_chance(other, N, 1, p);
        b.seed += run == 1, b.table += run == 2;
        memset(counters, 0, N), memset(other, 0, N);
        admit(&a, ids, N, 1, out);
        admit(&b, ids, N, 1, out);
        for (int64_t i = 0; i < N; i++)
            both[run] += counters[i] == UINT8_MAX && other[i] == UINT8_MAX;
        if (run) expect_share(both[run], N, p * p);
    }
    expect_share(both[0], N, p); /* the same seed and table: the same ids */
    free(ids), free(out), free(counters), free(other);
}

static void chance_at_its_ends(void **state) {
    (void)state;
    uint8_t counters[2] = {0};
    int64_t id = 1, out;
    struct embfuse_admission a = by_chance(counters, 2, 1, 1e-300);
    for (int k = 1; k <= 300; k++) assert_int_equal(admit(&a, &id, 1, 1, &out), k < 255);
    a.probability = 1;
    id = 0;
    assert_int_equal(admit(&a, &id, 1, 1, &out), 0);
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
        admit(&a, ids, STREAM, 2, out);
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
        const double says = pow(1 - exp(-(double)hashes * N / (double)n), hashes);
        assert_float_equal(says / probability[k], 1, 1e-3);
        uint8_t *counters = calloc((size_t)n, 1);
        struct embfuse_admission a = counting(counters, n, 1, 2);
        a.hashes = hashes;
        expect_share(N - admit(&a, ids, N, 2, out), N, says);
        assert_int_equal(admit(&a, ids, N, 2, out), 0);
        assert_memory_equal(out, ids, N * sizeof *ids);
        free(counters);
    }
    free(ids), free(out);
}

/* --- what is refused */

static void wrong_filters(void **state) {
    (void)state;
    static const struct {
        int64_t ids;
        double p;
    } wrong[] = {{0, 0.01}, {10, 0}, {10, 1}, {10, (double)NAN}, {INT64_MAX, 1e-9}};
    int64_t n = 0;
    int32_t hashes = 0;
    assert_int_equal(embfuse_admission_filter(1000, 0.01, &n, &hashes, NULL), 0);
    assert_int_equal(hashes, 7); /* the textbook: 9.6 counters for each id, 7 hashes */
    assert_in_range(n, 9580, 9620);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(embfuse_admission_filter(wrong[i].ids, wrong[i].p, &n, &hashes, NULL),
                         EMBFUSE_INVALID);
    assert_int_equal(embfuse_admission_filter(10, 0.5, NULL, &hashes, NULL), EMBFUSE_INVALID);
}

static void wrong_arguments(void **state) {
    (void)state;
    uint16_t counters[4] = {0};
    int64_t ids[3] = {1, 4, -1}, out[3] = {7, 7, 7};
    const struct embfuse_admission a = counting(counters, 4, 2, 1);
    const struct {
        int status;
        const struct embfuse_admission *a;
        const int64_t *ids;
        int32_t type, threads;
        int64_t count, padding, *out;
        const char *said;
    } wrong[] = {
        {EMBFUSE_BAD_BATCH, &a, ids, 1, 1, 3, -1, out, "lookup 1: id 4 has no counter of 4"},
        {EMBFUSE_BAD_BATCH, &a, ids, 1, 1, 3, 4, out, "lookup 2: id -1 has no counter of 4"},
        {EMBFUSE_INVALID, &a, ids, 2, 1, 1, -1, out, "id_type"},
        {EMBFUSE_INVALID, &a, ids, 1, 1, -1, -1, out, "below 0"},
        {EMBFUSE_INVALID, &a, ids, 1, -1, 1, -1, out, "below 0"},
        {EMBFUSE_INVALID, &a, NULL, 1, 1, 1, -1, out, "NULL"},
        {EMBFUSE_INVALID, &a, ids, 1, 1, 1, -1, NULL, "NULL"},
        {EMBFUSE_INVALID, NULL, ids, 1, 1, 1, -1, out, "NULL"},
        {EMBFUSE_INVALID, &a, ids, EMBFUSE_INT32, 1, 1, INT64_C(1) << 32, out, "does not fit"},
        {EMBFUSE_OK, &a, NULL, 1, 1, 0, -1, NULL, ""}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct embfuse_error why = {""};
        const int status =
            embfuse_admit_ids(wrong[i].a, wrong[i].ids, wrong[i].type, wrong[i].count,
                              wrong[i].padding, wrong[i].threads, wrong[i].out, NULL, &why);
        if (status != wrong[i].status || !strstr(why.text, wrong[i].said))
            fail_msg("call %zu: status %d, '%s'", i, status, why.text);
    }
    for (int i = 0; i < 4; i++) assert_int_equal(counters[i], 0);
    for (int i = 0; i < 3; i++) assert_int_equal(out[i], 7);
}

TESTS(admission) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_plain_counting),       cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(chance_of_each_touch),    cmocka_unit_test(chance_at_its_ends),
        cmocka_unit_test(bloom_never_admits_late), cmocka_unit_test(bloom_admits_early),
        cmocka_unit_test(wrong_filters),           cmocka_unit_test(wrong_arguments),
    };
    return cmocka_run_group_tests_name("admission", tests, NULL, NULL);
}
