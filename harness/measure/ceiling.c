/* SPDX-License-Identifier: MIT */
#include "harness/measure/ceiling.h"

#include <math.h>
#include <omp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/workload/permute.h"
#include "kernels/rng.h"
#include "kernels/shape.h"

enum {
    COPY_LEAST = 64 << 20,
    LINE = 64,
    VEC = 16,
    QUAD = 4,
    PINGPONG_ROUNDS = 1000,
    CHASED = 8192, /* rows, at most */
    BEST_OF = 3,
    RMW_BEST_OF = 2, /* in each order */
    GATHER_BEST_OF = 6,
    /* Distances of a prefetch that are tried: LEAST bytes, 2*LEAST, 4*LEAST ... */
    AHEAD_LEAST = 2048,
    AHEAD_STEPS = 4,
    HINTS = 2 * AHEAD_STEPS + 1,
    ROWS_LEAST = 32, /* of a ceiling */
};

/* A portable build takes the best level that the CPU can run, as kernels do. */
#if defined(__x86_64__) && !defined(__AVX2__)
#define CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define CLONES
#endif

/* Floats at any address. */
typedef float vec __attribute__((vector_size(VEC * sizeof(float)), aligned(4), may_alias));
typedef float quad __attribute__((vector_size(QUAD * sizeof(float)), aligned(4), may_alias));

double clock_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The MiB that EMBFUSE_CACHE_MIB asks for: 0 if it is not set, -1 if it is no such number. */
static int64_t wanted_cache_mib(void) {
    const char *wanted = getenv("EMBFUSE_CACHE_MIB");
    char *end;
    if (!wanted) return 0;
    const long mib = strtol(wanted, &end, 10);
    return *wanted && !*end && mib >= 1 && mib <= 1 << 20 ? mib : -1;
}

int ceiling_ready(struct error *err) {
    if (wanted_cache_mib() >= 0) return 0;
    return fail(err, "EMBFUSE_CACHE_MIB: '%.40s' is no number of MiB from 1 to %d",
                getenv("EMBFUSE_CACHE_MIB"), 1 << 20);
}

/* The C library may report all of them together (AMD) or one of them; /sys reports the first. */
int64_t ceiling_last_level_cache(int threads) {
    if (wanted_cache_mib() > 0) return wanted_cache_mib() << 20;
    long all = sysconf(_SC_LEVEL3_CACHE_SIZE);
    int64_t most =
        threads * 1024 * read_number("/sys/devices/system/cpu/cpu0/cache/index3/size", "");
    if (all <= 0) all = sysconf(_SC_LEVEL2_CACHE_SIZE);
    if (all <= 0) all = 32 << 20;
    return most > 0 && most < all ? most : all;
}

/* The number of rows whose lines take twice the bytes of the last-level caches. */
static int64_t rows_beyond_cache(int64_t cache, int32_t row_floats) {
    int64_t bytes = row_floats * (int64_t)sizeof(float);
    int64_t rows = 2 * cache / (bytes > LINE ? bytes : LINE);
    return rows > ROWS_LEAST ? rows : ROWS_LEAST;
}

/* The first float that the operation reads for a lookup. */
static int64_t gathered_float(const struct ceiling_probe *p, enum operation operation,
                              const struct batch *in, const struct row_lookup *l) {
    if (operation_gathers_rows(operation)) return l->row * p->row_floats;
    const struct feature *f = feature_at_bag(in, l->bag);
    const int64_t row =
        f->pooling == POOL_NONE ? l->lookup - f->first_lookup : l->bag - f->first_bag;
    return (f->grad_offset + row * f->grad_stride) * dtype_bytes(in->grad_type) /
           (int64_t)sizeof *p->from_rows;
}

/* Every try reads these rows, with more bytes than the last-level caches hold. So rows that fit
 * there are warm after the first try, and more of them stay mostly in memory. */
static int open_gather(struct ceiling_probe *p, enum operation operation, const struct batch *in,
                       const struct row_index *index, int32_t t) {
    int64_t first = index->run[row_index_find(index, t, 0)].first,
            lookups = index->run[row_index_find(index, t + 1, 0)].first - first;
    const bool rows = operation_gathers_rows(operation);
    p->from_rows = rows ? p->table : in->grad;
    p->gather_floats =
        rows ? p->row_floats /* whole ones: no read beyond the end */
             : (int32_t)(p->dim * dtype_bytes(in->grad_type) / (int64_t)sizeof *p->from_rows);
    if (lookups == 0) return 0;
    p->num_gathered = rows_beyond_cache(p->last_level_cache, p->gather_floats);
    p->gather = malloc((size_t)p->num_gathered * sizeof *p->gather);
    if (!p->gather) return -1;
    for (int64_t i = 0; i < p->num_gathered; i++) {
        const int64_t drawn = (int64_t)(rng_unit(1, (uint64_t)i) * (double)lookups);
        p->gather[i] = gathered_float(p, operation, in, &index->lookup[first + drawn]);
    }
    return 0;
}

/* One row out of each part of the table. */
static int draw_ascending(struct ceiling_probe *p, int64_t table_rows) {
    const double part = (double)table_rows / (double)p->num_rows;
    p->ascending = malloc((size_t)p->num_rows * sizeof *p->ascending);
    for (int64_t i = 0; p->ascending && i < p->num_rows; i++)
        p->ascending[i] =
            (int64_t)fmin(((double)i + rng_unit(2, (uint64_t)i)) * part, (double)(table_rows - 1));
    return p->ascending ? 0 : -1;
}

void ceiling_close(struct ceiling_probe *p) {
    buffer_free(&p->from);
    buffer_free(&p->to);
    free(p->rows);
    free(p->ascending);
    free(p->gather);
    memset(p, 0, sizeof *p);
}

/* One try of a ceiling: a hint, and a part of the rows. */
struct try {
    struct ceiling_hint hint;
    int part, parts;
};

static double copy_gbs(const struct ceiling_probe *p, const struct try *try) {
    (void)try;
    size_t n = p->from.bytes / sizeof(double);
    const double *from = p->from.data;
    double *to = p->to.data, begin = clock_seconds();
#pragma omp parallel for simd schedule(static) num_threads(p->threads)
    for (size_t i = 0; i < n; i++) to[i] = from[i];
    return 2e-9 * (double)p->from.bytes / (clock_seconds() - begin);
}

static void prefetch(const float *row, int32_t dim, struct ceiling_hint hint) {
    for (const char *b = (const char *)row, *end = (const char *)(row + dim); b < end; b += LINE)
        if (hint.into == CEILING_L1)
            __builtin_prefetch(b, 0, 3);
        else
            __builtin_prefetch(b, 0, 2);
}

static double rmw_gbs(const struct ceiling_probe *p, const struct try *try) {
    const struct ceiling_hint hint = try->hint;
    const int64_t first = p->num_rows * try->part / try->parts,
                  end = p->num_rows * (try->part + 1) / try->parts,
                  prefetched = hint.into == CEILING_NOWHERE ? 0 : end - hint.ahead;
    static volatile float one = 1; /* the compiler must not know */
    float factor = one;
    const int64_t *rows = hint.ascending ? p->ascending : p->rows;
    int32_t dim = p->row_floats;
    double begin = clock_seconds();
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t i = first; i < end; i++) {
        if (i < prefetched) prefetch(p->table + rows[i + hint.ahead] * dim, dim, hint);
        float *row = p->table + rows[i] * dim;
#pragma omp simd
        for (int32_t d = 0; d < dim; d++) row[d] *= factor;
    }
    double bytes = 2.0 * sizeof(float) * dim * (double)(end - first);
    return 1e-9 * bytes / (clock_seconds() - begin);
}

/* The sum of gathered rows first .. end - 1. */
CLONES static float gather(const struct ceiling_probe *p, int64_t first, int64_t end,
                           struct ceiling_hint hint) {
    int64_t prefetched = hint.into == CEILING_NOWHERE ? 0 : end - hint.ahead;
    vec sum[4] = {{0}};
    quad few = {0};
    float total = 0;
    int32_t dim = p->gather_floats;
    for (int64_t i = first; i < end; i++) {
        if (i < prefetched) prefetch(p->from_rows + p->gather[i + hint.ahead], dim, hint);
        const float *row = p->from_rows + p->gather[i];
        int32_t d = 0;
        for (; d + 4 * VEC <= dim; d += 4 * VEC)
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) sum[v] += *(const vec *)(row + d + v * VEC);
        for (; d + VEC <= dim; d += VEC) sum[0] += *(const vec *)(row + d);
        for (; d + QUAD <= dim; d += QUAD) few += *(const quad *)(row + d);
        for (; d < dim; d++) total += row[d];
    }
    sum[0] += (sum[1] + sum[2]) + sum[3];
    for (int k = 0; k < VEC; k++) total += sum[0][k];
    for (int k = 0; k < QUAD; k++) total += few[k];
    return total;
}

static double gather_gbs(const struct ceiling_probe *p, const struct try *try) {
    static volatile float seen; /* keeps the compiler from removing the unused sum */
    const int64_t first = p->num_gathered * try->part / try->parts,
                  rows = p->num_gathered * (try->part + 1) / try->parts - first;
    float total = 0;
    double begin = clock_seconds();
#pragma omp parallel num_threads(p->threads) reduction(+ : total)
    {
        int me = omp_get_thread_num(), threads = omp_get_num_threads();
        total +=
            gather(p, first + rows * me / threads, first + rows * (me + 1) / threads, try->hint);
    }
    double seconds = clock_seconds() - begin;
    seen = total;
    (void)seen;
    return 1e-9 * sizeof(float) * p->gather_floats * (double)rows / seconds;
}

/* The address of each row depends on what the one before holds, as far as the compiler knows. */
static double latency_ns(const struct ceiling_probe *p) {
    static volatile int64_t zero = 0;
    const int64_t none = zero, rows = p->num_rows < CHASED ? p->num_rows : CHASED;
    int64_t on = 0;
    double begin = clock_seconds();
    for (int64_t i = 0; i < rows; i++) {
        int32_t bits;
        memcpy(&bits, p->table + (p->rows[i] + on) * p->row_floats, sizeof bits);
        on = bits & none;
    }
    zero = on;
    return 1e9 * (clock_seconds() - begin) / (double)rows;
}

/* All ways to prefetch, in no order. Without prefetch costs least in the nearer caches. */
static struct ceiling_hint hint_of(int k, int32_t row_floats, bool ascending) {
    const int64_t row = row_floats * (int64_t)sizeof(float);
    const int64_t ahead = ((int64_t)AHEAD_LEAST << k / 2) / row;
    if (k == HINTS - 1) return (struct ceiling_hint){CEILING_NOWHERE, 0, ascending};
    return (struct ceiling_hint){k % 2 ? CEILING_L2 : CEILING_L1, ahead > 1 ? ahead : 1, ascending};
}

/* Finds the fastest ways: each way has a part of the rows, and after the first round, which finds the caches
 * cold, another part. */
static void choose_hints(const struct ceiling_probe *p,
                         double (*gbs)(const struct ceiling_probe *, const struct try *),
                         int32_t row_floats, bool ascending, struct ceiling_hint *best) {
    double most[CEILING_HINTS] = {0};
    for (int k = 0; k < 2 * HINTS; k++) {
        struct try try = {hint_of(k % HINTS, row_floats, ascending), (k + k / HINTS) % HINTS,
                          HINTS};
        double now = gbs(p, &try);
        if (k < HINTS) continue;
        for (int b = 0; b < CEILING_HINTS; b++) { /* sorts it in */
            if (now <= most[b]) continue;
            const struct ceiling_hint worse = best[b];
            const double less = most[b];
            best[b] = try.hint, most[b] = now;
            try.hint = worse, now = less;
        }
    }
}

int ceiling_open(struct ceiling_probe *p, enum operation operation, const struct batch *in,
                 const struct row_index *index, int32_t t, const struct array *weight, int threads,
                 struct error *err) {
    int64_t table_rows = array_float_rows(weight, in->tables[t].rows);
    memset(p, 0, sizeof *p);
    p->row_floats = array_row_floats(weight);
    p->threads = threads;
    p->last_level_cache = ceiling_last_level_cache(threads);
    p->dim = in->tables[t].dim;
    p->table = weight->data;
    p->num_rows = rows_beyond_cache(p->last_level_cache, p->row_floats);
    if (p->num_rows > table_rows) p->num_rows = table_rows;
    size_t bytes = (size_t)p->last_level_cache;
    if (bytes < COPY_LEAST) bytes = COPY_LEAST;
    if (buffer_alloc(&p->from, bytes, "the copy ceiling", err)) return -1;
    if (buffer_alloc(&p->to, 2 * bytes, "the copy ceiling", err))
        goto out; /* flushes caches, too */
    p->rows = permute_some(table_rows, p->num_rows);
    if (!p->rows || (2 * p->num_rows <= table_rows && draw_ascending(p, table_rows)) ||
        open_gather(p, operation, in, index, t)) {
        fail(err, "out of memory");
        goto out;
    }
    memory_fill(p->from.data, 1, p->from.bytes);
    memory_fill(p->to.data, 1, p->to.bytes);
    struct ceiling_hint of_rows[CEILING_HINTS];
    for (int order = 0; order < CEILING_HINTS; order++) {
        choose_hints(p, rmw_gbs, p->row_floats, p->ascending && order, of_rows);
        p->rmw_hint[order] = of_rows[0];
    }
    if (p->num_gathered) choose_hints(p, gather_gbs, p->gather_floats, false, p->gather_hint);
    return 0;
out:
    ceiling_close(p);
    return -1;
}

static double pingpong_ns(const struct ceiling_probe *p) {
    if (p->threads < 2) return -1;
    static _Alignas(256) atomic_int ball;
    atomic_store(&ball, 0);
    double begin = clock_seconds();
#pragma omp parallel num_threads(2)
    {
        int me = omp_get_thread_num(), players = omp_get_num_threads();
        for (int k = 0; k < PINGPONG_ROUNDS && players == 2; k++) {
            while (atomic_load_explicit(&ball, memory_order_acquire) != 2 * k + me) {
            }
            atomic_store_explicit(&ball, 2 * k + me + 1, memory_order_release);
        }
    }
    return 1e9 * (clock_seconds() - begin) / (2 * PINGPONG_ROUNDS);
}

/* A ceiling is the best of a few tries: disturbances can only slow a try. */
static double best(double (*gbs)(const struct ceiling_probe *, const struct try *), int tries,
                   const struct ceiling_probe *p, const struct ceiling_hint *hints, int count) {
    double most = 0;
    for (int k = 0; k < tries; k++) {
        double now = gbs(p, &(struct try){hints[k % count], 0, 1});
        if (now > most) most = now;
    }
    return most;
}

struct ceiling ceiling_measure(const struct ceiling_probe *p) {
    struct ceiling c = {.copy_gbs = best(copy_gbs, BEST_OF, p, p->rmw_hint, 1)};
    c.random_gbs = best(rmw_gbs, RMW_BEST_OF, p, &p->rmw_hint[0], 1);
    c.rmw_gbs = fmax(c.random_gbs, best(rmw_gbs, RMW_BEST_OF, p, &p->rmw_hint[1], 1));
    c.latency_ns = latency_ns(p);
    if (p->num_gathered)
        c.gather_gbs = best(gather_gbs, GATHER_BEST_OF, p, p->gather_hint, CEILING_HINTS);
    c.pingpong_ns = pingpong_ns(p);
    return c;
}

double ceiling_lines_in_flight(const struct ceiling *c, int threads) {
    return c->random_gbs / 2 * c->latency_ns / LINE / threads; /* half of the bytes are written */
}

void ceiling_flush_caches(const struct ceiling_probe *p) {
    char *line = p->to.data;
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (size_t b = 0; b < p->to.bytes; b += 64) line[b]++;
}
