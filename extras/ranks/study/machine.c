/* SPDX-License-Identifier: MIT
 *
 * What the ranks that mpirun has started can do, all at work at the same time. Prints a line of JSON for
 * extras/ranks/rank_model.py:
 *
 *   node, network       [messages, bytes, seconds] of exchanges of 8 bytes to 10 MB per pair, in the node and between
 *                       nodes apart, of the slowest rank. They follow one another, so that a shaper of the link has
 *                       used up what it lets through at once
 *   copy, rows, gather  bytes per second of a rank: a stream copy; random rows of 256 bytes, read and written, in more
 *                       memory than caches hold; such rows that are read from caches. The last rank to end
 *                       gives the time, so ranks that share a CPU get their share of its speed
 *   memory              bytes that are available to each rank of the fullest node
 *
 * All times are medians.
 */
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extras/ranks/program.h"
#include "harness/measure/ceiling.h"
#include "harness/memory.h"
#include "kernels/rng.h"
#include "kernels/shape.h"

enum {
    SIZES = 10,
    REPEATS = 7,
    MESSAGE_MOST = 16 << 20,
    BUFFER_MOST = 32 << 20, /* bytes of all messages of a rank */
    FILL = 1 << 20,         /* bytes of exchanges that are timed together, */
    TURNS_MOST = 200,       /* and their number */
    ROW = 64,               /* floats */
    FAR_MOST = 256 << 20,   /* bytes */
    NEAR_ROWS = 1 << 11,    /* 512 KiB */
    VISITS = 1 << 18,
    LANES = 16,
    AHEAD = 16 /* rows */
};

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool is_peer(const struct transport *t, int rank, bool in_node) {
    const int on_node = t->ranks / t->nodes;
    return rank != t->rank && (rank / on_node == t->rank / on_node) == in_node;
}

/* Seconds of an exchange with so many bytes for every peer. */
static int time_exchange(struct transport *t, bool in_node, size_t bytes, char *send, char *receive,
                         double *seconds, struct error *err) {
    const int turns = (int)min64(max64((int64_t)(FILL / bytes), 1), TURNS_MOST);
    struct parts out = parts_make(t->ranks);
    double times[REPEATS];
    int status = 0;
    for (int r = 0; r < t->ranks; r++)
        if (is_peer(t, r, in_node)) out.bytes[r] = bytes;
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

static int measure_link(struct transport *t, bool in_node, struct error *err) {
    int status = 0, peers = 0;
    for (int r = 0; r < t->ranks; r++) peers += is_peer(t, r, in_node);
    if (peers == 0) return 0;
    const size_t most = (size_t)min64(BUFFER_MOST / peers, MESSAGE_MOST);
    char *send = must_have(calloc(most, (size_t)peers)),
         *receive = must_have(calloc(most, (size_t)peers));
    size_t bytes = 8;
    for (int k = 0; status == 0 && k < SIZES && bytes <= most; k++, bytes *= 5) {
        double seconds = 0;
        status = time_exchange(t, in_node, bytes, send, receive, &seconds, err);
        if (t->rank == 0)
            printf("%s[%d, %zu, %.6g]", k ? ", " : "", peers, (size_t)peers * bytes, seconds);
    }
    free(send);
    free(receive);
    return status;
}

/* --- local speeds. These return the bytes that they have moved. */

struct arrays {
    float *from, *to;
    int64_t rows;
};

static double copy(const struct arrays *a) {
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < a->rows; i++)
        memcpy(a->to + i * ROW, a->from + i * ROW, ROW * sizeof *a->to);
    return 2.0 * (double)a->rows * ROW * sizeof *a->to;
}

static float *row_of_visit(float *table, int64_t rows, int64_t i) {
    return table + (int64_t)(rng_key(7, (uint64_t)i) % (uint64_t)rows) * ROW;
}

/* Reads random rows of the first `rows`; write: turns their signs and writes them back. As in kernels, rows are
 * fetched ahead. */
static double visit(float *table, int64_t rows, bool write) {
    float sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
        float own[LANES] = {0};
#pragma omp for schedule(static)
        for (int64_t i = 0; i < VISITS; i++) {
            float *row = row_of_visit(table, rows, i);
            const char *next = (const char *)row_of_visit(table, rows, i + AHEAD);
            for (size_t at = 0; at < ROW * sizeof *row; at += 64) __builtin_prefetch(next + at);
            for (int j = 0; j < ROW; j += LANES)
                for (int k = 0; k < LANES; k++) own[k] += row[j + k];
            for (int j = 0; write && j < ROW; j++) row[j] = -row[j];
        }
        for (int k = 0; k < LANES; k++) sum += own[k];
    }
    if (sum != 0) table[0] = 0; /* The sum is used, so that nothing is left out. */
    return (write ? 2.0 : 1.0) * VISITS * ROW * sizeof *table;
}

static double rows(const struct arrays *a) {
    return visit(a->from, a->rows, true);
}

static double gather(const struct arrays *a) {
    return visit(a->from, NEAR_ROWS, false);
}

/* Until the last rank has done its part: with more ranks than CPUs, a rank that ends early has had a CPU to itself
 * while others waited for one. */
static int measure_work(struct transport *t, const char *name,
                        double (*work)(const struct arrays *), const struct arrays *a,
                        struct error *err) {
    double times[REPEATS], bytes = 0;
    for (int k = 0; k < REPEATS; k++) {
        if (transport_barrier(t, err)) return -1;
        const double begin = clock_seconds();
        bytes = work(a);
        if (transport_barrier(t, err)) return -1;
        times[k] = clock_seconds() - begin;
    }
    qsort(times, REPEATS, sizeof *times, by_size);
    double slowest = times[REPEATS / 2];
    if (transport_most(t, &slowest, 1, err)) return -1;
    if (t->rank == 0) printf(", \"%s\": %.6g", name, bytes / slowest);
    return 0;
}

static int measure_local(struct transport *t, int threads, struct error *err) {
    /* Rows of four times the last cache are mostly in none. */
    const int64_t far = min64(4 * ceiling_last_level_cache(threads), FAR_MOST);
    struct arrays a = {.rows = far / (int64_t)(ROW * sizeof(float))};
    const size_t bytes = (size_t)a.rows * ROW * sizeof(float);
    double taken = -(double)memory_available() * t->nodes / t->ranks;
    int status = transport_most(t, &taken, 1, err);
    a.from = must_have(array_alloc(1, (int64_t)bytes));
    a.to = must_have(array_alloc(1, (int64_t)bytes));
    memset(a.from, 0, bytes);
    memset(a.to, 0, bytes);
    if (status == 0 && t->rank == 0) printf(", \"memory\": %.6g", -taken);
    if (status == 0)
        status = measure_work(t, "copy", copy, &a, err) || measure_work(t, "rows", rows, &a, err) ||
                 measure_work(t, "gather", gather, &a, err);
    free(a.from);
    free(a.to);
    return status;
}

int main(int argc, char **argv) {
    struct error err;
    struct transport *t = program_open(&argc, &argv);
    if (!t) return EXIT_USAGE;
    const int threads = argc > 1 ? atoi(argv[1]) : program_threads(t);
    t->channel = CHANNEL_CONTROL;
    transport_phase(t, "measuring the machine");
    omp_set_num_threads(threads > 0 ? threads : 1);
    if (t->rank == 0) printf("{\"ranks\": %d, \"nodes\": %d, \"node\": [", t->ranks, t->nodes);
    int status = measure_link(t, true, &err);
    if (t->rank == 0) printf("], \"network\": [");
    if (status == 0) status = measure_link(t, false, &err);
    if (t->rank == 0) printf("]");
    if (status == 0) status = measure_local(t, threads > 0 ? threads : 1, &err);
    if (status) transport_give_up(t, &err);
    if (t->rank == 0) printf("}\n");
    program_close(t);
    return EXIT_FINE;
}
