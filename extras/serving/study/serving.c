/* SPDX-License-Identifier: MIT
 *
 * Requests to a mapped table, or to the same rows in a Redis server: how long one takes, and how many rows
 * come in a second. Each bag of the ids is a request; its rows are returned as fp32. Every row of every
 * request is compared with the fp32 table first. Prints a line of JSON for each way to serve each table.
 *
 *     serving mmap   FP32 IDS OFFSETS PASSES NAME...
 *     serving SOCKET FP32 IDS OFFSETS PASSES NAME...
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/step.h"
#include "harness/memory.h"
#include "extras/serving/latency.h"
#include "extras/library/frozen/row.h"
#include "extras/serving/study/store.h"

/* Requests that a client has sent before it waits for the first of their answers. */
static const int flights[] = {1, 16};
enum { FLIGHTS = sizeof flights / sizeof *flights, IN_FLIGHT_MOST = 16 };

struct study {
    const char *socket;
    struct frozen exact;
    struct workload workload;
    const struct batch *in;
    int passes;
    int64_t longest; /* lookups of a request */
};

/* One way to serve a table. */
struct way {
    const struct study *study;
    const struct frozen *table;
    struct store *store; /* NULL: mapped */
    enum store_layout layout;
    int in_flight;
    float *rows; /* [longest][dim], of an answer */
};

static int64_t lookups_of(const struct batch *in, int64_t request) {
    return in->offsets[request + 1] - in->offsets[request];
}

static int ask(const struct way *w, int64_t request, struct error *err) {
    const struct batch *in = w->study->in;
    return store_ask(w->store, w->layout, in, in->offsets[request], in->offsets[request + 1], err);
}

static int fetch(const struct way *w, int64_t request, struct error *err) {
    const struct batch *in = w->study->in;
    if (w->store)
        return ask(w, request, err) ||
                       store_receive(w->store, w->table, lookups_of(in, request), w->rows, err)
                   ? -1
                   : 0;
    struct feature feature;
    const struct batch one = frozen_one_bag(in, request, &feature);
    frozen_lookup(w->table, &one, w->rows, 1);
    return 0;
}

/* Compares every row of every request with the fp32 table, by the bound of the type. fp32: equal. */
static int verify(const struct way *w, struct error *err) {
    const struct study *s = w->study;
    const int32_t dim = s->exact.dim;
    for (int64_t r = 0; r < s->in->flat_bags; r++) {
        if (fetch(w, r, err)) return -1;
        for (int64_t i = 0; i < lookups_of(s->in, r); i++) {
            const int64_t id = batch_id(s->in, s->in->offsets[r] + i);
            const float *want = frozen_row(&s->exact, id), *got = w->rows + i * dim;
            const struct extent x = row_extent(want, dim);
            for (int32_t d = 0; d < dim; d++)
                if (!(fabs((double)got[d] - want[d]) <= frozen_bound(w->table->type, want, x, d))) {
                    fail(err, "request %lld: element %d of row %lld is %g, not %g", (long long)r, d,
                         (long long)id, got[d], want[d]);
                    return 1;
                }
        }
    }
    return 0;
}

/* Groups of in_flight requests: all are sent, then their answers are awaited in turn. The time of a
 * request begins with the first of its group, as it may wait for those before it. */
static int time_store(const struct way *w, double *seconds, struct error *err) {
    const struct batch *in = w->study->in;
    for (int64_t first = 0; first < in->flat_bags; first += w->in_flight) {
        const int64_t end = min64(first + w->in_flight, in->flat_bags);
        const double begin = latency_now();
        for (int64_t r = first; r < end; r++)
            if (ask(w, r, err)) return -1;
        for (int64_t r = first; r < end; r++) {
            if (store_receive(w->store, w->table, lookups_of(in, r), w->rows, err)) return -1;
            seconds[r] = latency_now() - begin;
        }
    }
    return 0;
}

static int measure(const struct way *w, struct latency *out, struct error *err) {
    const struct study *s = w->study;
    const int64_t requests = s->in->flat_bags;
    if (!w->store) return latency_measure(w->table, s->in, s->passes, out, err);
    double *seconds = array_require(requests * s->passes, sizeof *seconds, "times", err), all = 0;
    int status = seconds ? 0 : -1;
    for (int pass = 0; pass < s->passes && status == 0; pass++) {
        const double begin = latency_now();
        status = time_store(w, seconds + pass * requests, err);
        all += latency_now() - begin;
    }
    if (status == 0) {
        *out = latency_of(seconds, s->passes, s->in->offsets, requests);
        /* Requests overlap: the sum of their times is not the time of all. */
        out->lookups_per_second = (double)out->lookups * s->passes / all;
    }
    free(seconds);
    return status;
}

static int serve(const struct way *w, const char *store, int64_t bytes, struct error *err) {
    struct latency l;
    int status = verify(w, err);
    if (status == 0) status = measure(w, &l, err);
    if (status) return status;
    printf("{\"store\": \"%s\", \"type\": \"%s\", \"in_flight\": %d, \"requests\": %lld, "
           "\"lookups\": %lld, \"bytes_per_row\": %.6g, \"p50_us\": %.6g, \"p99_us\": %.6g, "
           "\"lookups_per_s\": %.6g}\n",
           store, frozen_type_name(w->table->type), w->in_flight, (long long)l.requests,
           (long long)l.lookups, (double)bytes / (double)w->table->rows, l.p50 * 1e6, l.p99 * 1e6,
           l.lookups_per_second);
    fflush(stdout);
    return 0;
}

static int serve_stored(struct way *w, struct error *err) {
    static const char *const names[] = {[STORE_KEYS] = "Redis MGET", [STORE_HASH] = "Redis HMGET"};
    int status = 0;
    w->store = store_open(w->study->socket, err);
    if (!w->store) return -1;
    for (int layout = STORE_KEYS; layout <= STORE_HASH && status == 0; layout++) {
        int64_t bytes;
        w->layout = (enum store_layout)layout;
        status = store_fill(w->store, w->layout, w->table, &bytes, err);
        for (int f = 0; f < FLIGHTS && status == 0; f++) {
            w->in_flight = flights[f];
            status = serve(w, names[layout], bytes, err);
        }
    }
    store_close(w->store);
    return status;
}

static int serve_table(const struct study *s, const char *name, struct error *err) {
    struct frozen t;
    if (frozen_open(name, FROZEN_LOOKUP | FROZEN_VERIFY, &t, err)) return -1;
    struct way w = {.study = s, .table = &t, .in_flight = 1};
    w.rows = array_require(s->longest * t.dim + 1, sizeof *w.rows, "an answer", err);
    int status = w.rows ? 0 : -1;
    if (status == 0 && (t.rows != s->exact.rows || t.dim != s->exact.dim))
        status = fail(err, "%s: not of the shape of the fp32 table", name);
    if (status == 0)
        status = s->socket ? serve_stored(&w, err) : serve(&w, "mmap", t.rows * t.row_bytes, err);
    free(w.rows);
    frozen_close(&t);
    return status;
}

/* Exit status. */
static int run(int argc, char **argv, struct error *err) {
    struct study s = {.socket = strcmp(argv[1], "mmap") == 0 ? NULL : argv[1],
                      .passes = atoi(argv[5])};
    const struct batch_files files = {.ids = argv[3], .offsets = argv[4]};
    if (s.passes < 1 || s.passes > 1000) return fail(err, "PASSES is 1 to 1000"), EXIT_USAGE;
    if (frozen_open(argv[2], FROZEN_SCAN, &s.exact, err)) return EXIT_USAGE;
    int status = s.exact.type == FP32 ? 0 : fail(err, "%s: not fp32", argv[2]);
    if (status == 0)
        status = batch_read_one(&files, s.exact.rows, s.exact.dim, POOL_NONE, -1, &s.workload, err);
    if (status == 0) {
        s.in = &s.workload.batches[0];
        for (int64_t r = 0; r < s.in->flat_bags; r++)
            s.longest = lookups_of(s.in, r) > s.longest ? lookups_of(s.in, r) : s.longest;
        for (int i = 6; i < argc && status == 0; i++) status = serve_table(&s, argv[i], err);
        workload_free(&s.workload);
    }
    frozen_close(&s.exact);
    return status < 0 ? EXIT_USAGE : status > 0 ? EXIT_WRONG_RESULT : EXIT_FINE;
}

int main(int argc, char **argv) {
    struct error err;
    if (argc < 7) {
        fprintf(stderr, "usage: serving mmap|SOCKET FP32 IDS OFFSETS PASSES NAME...\n");
        return EXIT_USAGE;
    }
    const int status = run(argc, argv, &err);
    if (status) fprintf(stderr, "serving: %s\n", err.text);
    return status;
}
