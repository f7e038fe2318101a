/* SPDX-License-Identifier: MIT */
#include "harness/ceiling.h"

#include <omp.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "harness/permute.h"

enum {
    COPY_LEAST = 64 << 20,
    ROWS_MOST = 1 << 18,
    ROWS_AHEAD = 32,
    PINGPONG_ROUNDS = 1000,
    BEST_OF = 3
};

double clock_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int64_t last_level_cache(void) {
    int64_t bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (bytes <= 0) bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    return bytes > 0 ? bytes : 32 << 20;
}

int64_t *ceiling_rows(int64_t table_rows, int64_t count) {
    int64_t *rows = malloc((size_t)count * sizeof *rows);
    struct permute spread = permute_make(1, table_rows);
    for (int64_t i = 0; rows && i < count; i++) rows[i] = permute_at(&spread, i);
    return rows;
}

int ceiling_open(struct ceiling_probe *p, float *table, int64_t table_rows, int32_t dim,
                 int threads, struct error *err) {
    memset(p, 0, sizeof *p);
    p->threads = threads;
    p->last_level_cache = last_level_cache();
    p->dim = dim;
    p->table = table;
    p->num_rows = table_rows < ROWS_MOST ? table_rows : ROWS_MOST;
    size_t bytes = (size_t)(2 * p->last_level_cache);
    if (bytes < COPY_LEAST) bytes = COPY_LEAST;
    if (buffer_alloc(&p->from, bytes, "the copy ceiling", err)) return -1;
    if (buffer_alloc(&p->to, bytes, "the copy ceiling", err)) goto out;
    p->rows = ceiling_rows(table_rows, p->num_rows);
    if (!p->rows) {
        fail(err, "out of memory");
        goto out;
    }
    memset(p->from.data, 1, bytes);
    memset(p->to.data, 1, bytes);
    return 0;
out:
    ceiling_close(p);
    return -1;
}

void ceiling_close(struct ceiling_probe *p) {
    buffer_free(&p->from);
    buffer_free(&p->to);
    free(p->rows);
    memset(p, 0, sizeof *p);
}

static double copy_gbs(const struct ceiling_probe *p) {
    size_t n = p->from.bytes / sizeof(double);
    const double *from = p->from.data;
    double *to = p->to.data, begin = clock_seconds();
#pragma omp parallel for simd schedule(static) num_threads(p->threads)
    for (size_t i = 0; i < n; i++) to[i] = from[i];
    return 2e-9 * (double)p->from.bytes / (clock_seconds() - begin);
}

static double rmw_gbs(const struct ceiling_probe *p) {
    static volatile float one = 1; /* the compiler must not know */
    float factor = one;
    int32_t dim = p->dim;
    double begin = clock_seconds();
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (int64_t i = 0; i < p->num_rows; i++) {
        if (i + ROWS_AHEAD < p->num_rows) {
            const char *next = (const char *)(p->table + p->rows[i + ROWS_AHEAD] * dim);
            for (int32_t b = 0; b < dim * (int32_t)sizeof(float); b += 64)
                __builtin_prefetch(next + b, 0, 3);
        }
        float *row = p->table + p->rows[i] * dim;
#pragma omp simd
        for (int32_t d = 0; d < dim; d++) row[d] *= factor;
    }
    double bytes = 2.0 * sizeof(float) * dim * (double)p->num_rows;
    return 1e-9 * bytes / (clock_seconds() - begin);
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

/* A ceiling is the best of a few tries: what disturbs one can only slow it. */
static double best(double (*gbs)(const struct ceiling_probe *), const struct ceiling_probe *p) {
    double most = 0;
    for (int k = 0; k < BEST_OF; k++) {
        double now = gbs(p);
        if (now > most) most = now;
    }
    return most;
}

struct ceiling ceiling_measure(const struct ceiling_probe *p) {
    struct ceiling c = {.copy_gbs = best(copy_gbs, p), .rmw_gbs = best(rmw_gbs, p)};
    c.pingpong_ns = pingpong_ns(p);
    return c;
}

void ceiling_flush_caches(const struct ceiling_probe *p) {
    char *line = p->to.data;
#pragma omp parallel for schedule(static) num_threads(p->threads)
    for (size_t b = 0; b < p->to.bytes; b += 64) line[b]++;
}
