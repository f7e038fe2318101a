/* SPDX-License-Identifier: MIT */
#include "extras/ranks/calibrate.h"

#include <stdlib.h>
#include <string.h>

#include "harness/measure/ceiling.h"
#include "harness/memory.h"
#include "kernels/rng.h"

enum {
    SIZES = 10,
    REPEATS = 7,
    MESSAGE_MOST = 16 << 20,
    BUFFER_MOST = 32 << 20, /* bytes of all messages of a rank */
    LINK_FILL = 1 << 20,    /* bytes of exchanges that are timed together, */
    TURNS_MOST = 200,       /* and their number */
    ROW = 64,               /* floats */
    FAR_MOST = 256 << 20,   /* bytes */
    NEAR_ROWS = 1 << 11,    /* 512 KiB */
    VISITS = 1 << 18,
    LANES = 16,
    AHEAD = 16, /* rows */
    LINE = 64
};

/* --- links */

struct link calibrate_fit(const struct link_point *points, int count) {
    double aa = 0, ab = 0, bb = 0, a1 = 0, b1 = 0;
    for (int i = 0; i < count; i++) {
        const double a = points[i].messages / points[i].seconds,
                     b = points[i].bytes / points[i].seconds;
        aa += a * a, ab += a * b, bb += b * b, a1 += a, b1 += b;
    }
    const double both = aa * bb - ab * ab;
    double alpha = both > 0 ? (a1 * bb - b1 * ab) / both : 0,
           per_byte = both > 0 ? (b1 * aa - a1 * ab) / both : 0;
    if (alpha <= 0) alpha = 0, per_byte = b1 / bb;
    if (per_byte <= 0) alpha = a1 / aa, per_byte = 1e-15;
    return (struct link){alpha, 1 / per_byte};
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Seconds of an exchange with so many bytes for every peer over that link; the slowest rank's median. Exchanges follow one
 * another, so that a shaper of the link has used up what it lets through at once. */
static int time_exchange(struct transport *t, int link, size_t bytes, char *send, char *receive,
                         double *seconds, struct error *err) {
    const int on_node = t->ranks / t->nodes;
    const size_t fill = LINK_FILL / bytes;
    const int turns = fill < 1 ? 1 : fill > TURNS_MOST ? TURNS_MOST : (int)fill;
    struct parts out = parts_make(t->ranks);
    double times[REPEATS];
    int status = 0;
    for (int r = 0; r < t->ranks; r++)
        if (r != t->rank && (r / on_node == t->rank / on_node) == (link == LINK_NODE))
            out.bytes[r] = bytes;
    parts_lay_out(&out, t->ranks, 1);
    for (int k = 0; status == 0 && k < REPEATS; k++) {
        const double begin = clock_seconds();
        for (int i = 0; status == 0 && i < turns; i++)
            status = transport_exchange(t, send, &out, receive, &out, err);
        times[k] = (clock_seconds() - begin) / turns;
    }
    parts_free(&out);
    qsort(times, REPEATS, sizeof *times, by_size);
    *seconds = times[REPEATS / 2];
    return status || transport_most(t, seconds, 1, err) ? -1 : 0;
}

static int measure_link(struct transport *t, int link, struct link *out, struct error *err) {
    const int on_node = t->ranks / t->nodes;
    const int peers = link == LINK_NODE ? on_node - 1 : t->ranks - on_node;
    struct link_point points[SIZES];
    int status = 0, count = 0;
    size_t most = (size_t)BUFFER_MOST / (size_t)peers;
    if (most > MESSAGE_MOST) most = MESSAGE_MOST;
    char *send = must_have(calloc(most, (size_t)peers)),
         *receive = must_have(calloc(most, (size_t)peers));
    for (size_t bytes = 8; status == 0 && bytes <= most && count < SIZES; bytes *= 5, count++) {
        points[count] = (struct link_point){peers, (double)peers * (double)bytes, 0};
        status = time_exchange(t, link, bytes, send, receive, &points[count].seconds, err);
    }
    free(send);
    free(receive);
    if (status == 0) *out = calibrate_fit(points, count);
    return status;
}

/* --- local speeds */

/* These return the bytes that they have moved. */

static double copy_all(float *from, float *to, int64_t rows, int threads) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) memcpy(to + i * ROW, from + i * ROW, ROW * sizeof *to);
    return 2.0 * (double)rows * ROW * sizeof *to;
}

static float *row_of_visit(float *table, int64_t rows, int64_t i) {
    return table + (int64_t)(rng_key(7, (uint64_t)i) % (uint64_t)rows) * ROW;
}

/* Reads random rows of the first `rows`; write: turns their signs and writes them back. As in kernels, rows
 * are fetched ahead. */
static double visit(float *table, int64_t rows, bool write, int threads) {
    float sum = 0;
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        float own[LANES] = {0};
#pragma omp for schedule(static)
        for (int64_t i = 0; i < VISITS; i++) {
            float *row = row_of_visit(table, rows, i);
            const char *next = (const char *)row_of_visit(table, rows, i + AHEAD);
            for (size_t at = 0; at < ROW * sizeof *row; at += LINE) __builtin_prefetch(next + at);
            for (int j = 0; j < ROW; j += LANES)
                for (int k = 0; k < LANES; k++) own[k] += row[j + k];
            for (int j = 0; write && j < ROW; j++) row[j] = -row[j];
        }
        for (int k = 0; k < LANES; k++) sum += own[k];
    }
    /* The sum is used, so that nothing is left out. */
    if (sum != 0) table[0] = 0;
    return (write ? 2.0 : 1.0) * VISITS * ROW * sizeof *table;
}

enum local { COPY, ROWS, GATHER, LOCALS };

struct arrays {
    float *from, *to;
    int64_t rows;
};

static double work(enum local what, const struct arrays *a, int threads) {
    return what == COPY   ? copy_all(a->from, a->to, a->rows, threads)
           : what == ROWS ? visit(a->from, a->rows, true, threads)
                          : visit(a->from, NEAR_ROWS, false, threads);
}

/* Bytes per second of a rank, until the last one has done its part: with more ranks than CPUs, a rank that
 * ends early has had a CPU to itself while others waited for one. */
static int time_work(struct transport *t, enum local what, const struct arrays *a, int threads,
                     double *speed, struct error *err) {
    double times[REPEATS], bytes = 0;
    for (int k = 0; k < REPEATS; k++) {
        if (transport_barrier(t, err)) return -1;
        const double begin = clock_seconds();
        bytes = work(what, a, threads);
        if (transport_barrier(t, err)) return -1;
        times[k] = clock_seconds() - begin;
    }
    qsort(times, REPEATS, sizeof *times, by_size);
    double slowest = times[REPEATS / 2];
    if (transport_most(t, &slowest, 1, err)) return -1;
    *speed = bytes / slowest;
    return 0;
}

static int measure_local(struct transport *t, int threads, double speed[LOCALS],
                         struct error *err) {
    /* Rows of four times the last cache are mostly in none. */
    const int64_t cache = ceiling_last_level_cache(threads),
                  far = 4 * cache < FAR_MOST ? 4 * cache : FAR_MOST,
                  rows = far / (int64_t)(ROW * sizeof(float));
    const size_t bytes = (size_t)rows * ROW * sizeof(float);
    const struct arrays a = {must_have(array_alloc(1, bytes)), must_have(array_alloc(1, bytes)),
                             rows};
    int status = 0;
    memset(a.from, 0, bytes);
    memset(a.to, 0, bytes);
    for (int what = 0; status == 0 && what < LOCALS; what++)
        status = time_work(t, (enum local)what, &a, threads, &speed[what], err);
    free(a.from);
    free(a.to);
    return status;
}

int calibrate(struct transport *t, int threads, struct machine *out, struct error *err) {
    const int on_node = t->ranks / t->nodes;
    double speed[LOCALS] = {0}, taken = -(double)memory_available() / on_node;
    *out = (struct machine){.ranks = t->ranks, .nodes = t->nodes};
    t->channel = CHANNEL_CONTROL;
    transport_phase(t, "calibration");
    if (transport_most(t, &taken, 1, err) || measure_local(t, threads, speed, err)) return -1;
    out->memory = (int64_t)-taken;
    out->copy = speed[COPY];
    out->rows = speed[ROWS];
    out->gather = speed[GATHER];
    for (int k = 0; k < LINKS; k++) out->link[k] = (struct link){0, speed[COPY]};
    if (on_node > 1 && measure_link(t, LINK_NODE, &out->link[LINK_NODE], err)) return -1;
    out->link[LINK_NETWORK] = out->link[LINK_NODE];
    if (t->nodes > 1 && measure_link(t, LINK_NETWORK, &out->link[LINK_NETWORK], err)) return -1;
    if (on_node == 1) out->link[LINK_NODE] = out->link[LINK_NETWORK];
    return 0;
}

/* --- of several calibrations */

static void keep_larger(double *best, double now) {
    if (now > *best) *best = now;
}

static double megabyte(struct link l) {
    return l.alpha + 1e6 / l.speed;
}

void calibrate_keep_best(struct machine *best, const struct machine *now) {
    if (best->ranks == 0) *best = *now;
    for (int k = 0; k < LINKS; k++)
        if (megabyte(now->link[k]) < megabyte(best->link[k])) best->link[k] = now->link[k];
    keep_larger(&best->copy, now->copy);
    keep_larger(&best->rows, now->rows);
    keep_larger(&best->gather, now->gather);
}
