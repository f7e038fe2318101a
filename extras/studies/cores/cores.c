/* SPDX-License-Identifier: MIT
 *
 * How evenly cpu_fused shares its work on machines with more cores than this one: counted, not timed. The
 * kernel's own code decides on the ids of the workload what each thread does. Where threads take work as
 * they become free, the next piece goes to the thread with the least. The unit is a cache line of a
 * gradient, of a sum or of a row, or four ids or entries.
 *
 * Usage: cores SPEC... A speedup is the work of one thread over that of the busiest thread of each phase,
 * added up, with the work of one thread alone while the others wait. It ignores bandwidth, caches and the
 * costs of barriers: no machine is faster than that.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "harness/workload/workload.h"
#include "kernels/cpu/fused.h"

enum {
    IDS = 4,  /* ids or entries of a unit */
    SORTS = 8 /* reads and writes of an entry by the sort of a bucket */
};

static void must(int status, const struct error *err) {
    if (status == 0) return;
    fprintf(stderr, "cores: %s\n", err->text);
    exit(1);
}

/* The work of every thread in the phase at hand, and of the phases before it. */
struct clock {
    int threads;
    double *busy; /* [threads] */
    double alone, all, longest;
};

/* Ends a phase: every thread waits for the busiest. */
static void barrier(struct clock *c) {
    double most = 0;
    for (int k = 0; k < c->threads; k++) most = c->busy[k] > most ? c->busy[k] : most;
    c->longest += most;
    memset(c->busy, 0, (size_t)c->threads * sizeof *c->busy);
}

static void add(struct clock *c, int thread, double work) {
    c->busy[thread] += work;
    c->all += work;
}

/* To the thread that becomes free first. */
static void add_next(struct clock *c, double work) {
    int least = 0;
    for (int k = 1; k < c->threads; k++) least = c->busy[k] < c->busy[least] ? k : least;
    add(c, least, work);
}

static void add_evenly(struct clock *c, double work) {
    for (int k = 0; k < c->threads; k++) add(c, k, work / c->threads);
}

static void add_alone(struct clock *c, double work) {
    c->alone += work;
    c->all += work;
    c->longest += work;
}

static double lines(const struct batch *in, int32_t t) {
    return (double)((in->tables[t].dim * (int64_t)sizeof(float) + LINE - 1) / LINE);
}

/* Lookups of rows first .. first + rows - 1. */
static int64_t lookups_of(const struct batch *in, int64_t begin, int64_t end, int64_t first,
                          int64_t rows) {
    int64_t n = 0;
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = batch_id(in, i) - first;
        n += row >= 0 && row < rows;
    }
    return n;
}

static void count_small(struct clock *c, const struct fused *p, const struct batch *in) {
    for (int32_t k = 0; k < p->small.units; k++) {
        const struct small_unit *u = &p->small.unit[k];
        const int64_t n = lookups_of(in, u->begin, u->end, u->row, u->rows);
        /* a gradient and its sum; then each sum, weight and state */
        add_next(c, (double)(u->end - u->begin) / IDS +
                        (2 * (double)n + 3 * (double)u->rows) * lines(in, u->table));
    }
}

/* The listed lookups of a share's slice, and those of its rows. */
static void count_listed(const struct hot *h, const struct batch *in, struct hot_share share,
                         double *listed, double *own) {
    for (int32_t part = share.slice * h->parts; part < (share.slice + 1) * h->parts; part++) {
        const uint64_t *list = h->list + hot_part(h, part);
        uint32_t n = 0;
        for (HOT_STRETCHES(s, h, in, part)) n = h->end[part + s.feature].hot;
        for (uint32_t i = 0; i < n; i++)
            *own += (uint32_t)entry_row(list[i]) - share.first < share.rows;
        *listed += n;
    }
}

static void count_hot(struct clock *c, const struct fused *p, const struct batch *in) {
    const struct hot *h = &p->hot;
    const int32_t shares = h->slices * h->parts;
    const double row = 2 * (double)p->max_dim * sizeof(float) / LINE;
    for (int thread = 0; thread < c->threads; thread++) {
        const int32_t last = (int32_t)part_begin(shares, thread + 1, c->threads);
        for (int32_t k = (int32_t)part_begin(shares, thread, c->threads); k < last; k++) {
            double listed = 0, own = 0;
            count_listed(h, in, hot_share(h, k), &listed, &own);
            add(c, thread, listed / IDS + own * row);
        }
    }
    barrier(c);
}

static double lines_of_run(const struct batch *in, const struct long_run *r) {
    return (r->end - r->begin) * lines(in, r->table);
}

static void count_buckets(struct clock *c, struct fused *p, const struct batch *in) {
    const int chunk = bucket_chunk(p);
    double shared = 0;
    for (int64_t k = 0; k < p->partition.buckets; k += chunk) {
        double work = 0;
        for (int64_t i = k; i < k + chunk && i < p->partition.buckets; i++) {
            const int64_t b = p->order[i];
            const int32_t t = p->partition.table_of[b];
            const double n = p->partition.begin[b + 1] - p->partition.begin[b];
            const int32_t long_runs = p->long_runs;
            if (n == 0) continue;
            const struct runs runs = index_bucket(p, NULL, b, false);
            work += n * (SORTS / IDS + lines(in, t)) + 2 * runs.count * lines(in, t);
            for (int32_t r = long_runs; r < p->long_runs; r++) { /* all threads sum them later */
                const double later = lines_of_run(in, &p->long_run[r]);
                work -= later;
                shared += later;
            }
        }
        add_next(c, work);
    }
    barrier(c);
    add_evenly(c, shared);
    if (p->hot.rows)
        add_evenly(c, (double)p->hot.rows * p->hot.slices * p->max_dim * sizeof(float) / LINE);
    for (int32_t t = 0; t < in->num_tables && p->small.units; t++)
        add_evenly(c, (double)p->small.table[t].slices * (double)in->tables[t].rows * lines(in, t));
    barrier(c);
}

/* The bound of the speedup on so many threads. slices_only: as if each slice were one thread's. */
static double speedup(const struct batch *in, int threads, bool slices_only, double *alone) {
    struct fused p;
    struct buffer memory;
    struct error err;
    struct clock c = {.threads = threads, .busy = calloc((size_t)threads, sizeof *c.busy)};
    const int shares = slices_only ? 1 : threads;
    must(buffer_alloc(&memory, fused_lay_out(&p, in, shares, IN_PLAN, NULL), "scratch", &err),
         &err);
    fused_lay_out(&p, in, shares, IN_PLAN, memory.data);
    fused_prepare(&p, in, shares);
#pragma omp parallel num_threads(1)
    fused_index(&p, in, IN_PLAN);
    add_evenly(&c, 2.0 * (double)p.partition.lookups / IDS); /* counted, then put into buckets */
    barrier(&c);
    if (p.hot.rows) add_alone(&c, (double)p.hot.sample_most / IDS);
    add_alone(&c, (double)p.partition.buckets * (threads + 2) / IDS);
    if (p.hot.rows) count_hot(&c, &p, in);
    count_small(&c, &p, in);
    count_buckets(&c, &p, in);
    buffer_free(&memory);
    free(c.busy);
    *alone = c.alone / c.longest;
    return c.all / c.longest;
}

static void show(const struct spec *spec) {
    static const int threads[] = {2, 8, 16, 32, 64};
    enum { COLUMNS = sizeof threads / sizeof *threads };
    struct workload w;
    struct error err;
    must(workload_generate(spec, 1, GRAD_EXACT, &w, &err), &err);
    for (int slices_only = 1; slices_only >= 0; slices_only--) {
        double alone = 0;
        printf("| %s | %s |", slices_only ? spec->name : "", slices_only ? "a thread" : "several");
        for (int k = 0; k < COLUMNS; k++)
            printf(" %.1f |", speedup(&w.batches[0], threads[k], slices_only, &alone));
        printf(" %.0f %% |\n", 100 * alone);
        fflush(stdout);
    }
    workload_free(&w);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: cores SPEC...\n");
        return 1;
    }
    printf("| workload | a slice is work of | 2 threads | 8 | 16 | 32 | 64 | alone, of 64 |\n"
           "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (int k = 1; k < argc; k++) {
        struct spec_list list;
        struct error err;
        must(spec_read(argv[k], NULL, &list, &err), &err);
        for (int s = 0; s < list.count; s++) show(&list.specs[s]);
        spec_list_free(&list);
    }
    return 0;
}
