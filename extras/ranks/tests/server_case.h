/* SPDX-License-Identifier: MIT
 *
 * Servers and workers of a test: threads of this process. Workers have parts of one batch, and give
 * the gradient of the batch, or ones.
 */
#pragma once

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/measure/runner.h"
#include "extras/ranks/deal.h"
#include "extras/ranks/server.h"
#include "extras/ranks/tests/ranks_case.h"

#include "tests/support/kernel_tests.h"

enum { MOST = 8 };

struct work {
    struct builder *b;
    struct server_setup setup;
    int workers, clocks;
    struct batch slices[MOST]; /* a worker's bags */
    struct server_report servers[MOST];
    struct worker_report report[MOST];
    bool zeros, counts; /* tables begin with zeros; gradients are ones, rows must be even */
    bool holds;         /* worker 0 holds its first clock until worker 1 cannot go on */
    atomic_int reached; /* clocks that worker 1 has begun */
    atomic_bool ended;  /* worker 1 has no more clocks */
    atomic_int odd;     /* what else was wrong */
    char wrong[MOST][600];
};

/* --- what workers do with their outputs */

struct turn {
    struct work *work;
    const struct batch *slice;
    int worker, clock;
};

/* The slice's part of the batch's gradient; or ones. */
static void put_gradient(const struct turn *x, float *rows) {
    for (int64_t i = 0; i < x->slice->grad_elements; i++)
        rows[i] = x->work->counts ? 1 : batch_grad(x->slice, i);
}

/* Each row has the same number everywhere, unless a worker saw it half updated. */
static void check_even(const struct turn *x, const float *rows) {
    const struct batch *in = x->slice;
    for (int32_t f = 0; f < in->num_features; f++)
        for (int64_t r = 0; r < in->features[f].lookups; r++) {
            const float *row = rows + in->features[f].grad_offset + r * in->features[f].grad_stride;
            for (int32_t d = 1; d < in->tables[in->features[f].table].dim; d++)
                if (row[d] != row[0]) atomic_fetch_add(&x->work->odd, 1);
        }
}

static void pause_ms(long ms) {
    const struct timespec t = {0, ms * 1000000};
    nanosleep(&t, NULL);
}

/* Worker 0 waits in its first clock until worker 1 cannot go on: when it is as far ahead as it
 * may be, or at its end. */
static void hold(struct work *w) {
    const int64_t s = w->setup.staleness;
    while (s < 0 ? !atomic_load(&w->ended) : atomic_load(&w->reached) <= s) pause_ms(1);
    pause_ms(20); /* time to go too far */
    if (s >= 0 && atomic_load(&w->reached) != s + 1) atomic_fetch_add(&w->odd, 1);
}

static void react(void *ctx, const struct batch *local, void *rows) {
    struct turn *x = ctx;
    (void)local;
    if (x->worker == 1) atomic_store(&x->work->reached, x->clock + 1);
    if (x->work->holds && x->worker == 0 && x->clock == 0) hold(x->work);
    if (x->work->counts) check_even(x, rows);
    put_gradient(x, rows);
}

/* --- ranks */

static void clear(struct table_set *tables) {
    for (int32_t t = 0; t < tables->count; t++)
        memset(tables->tables[t].weight.data, 0,
               table_memory_bytes(&tables->shapes[t], TABLE_WEIGHT));
}

/* Rows of server `number` of `servers`, to their places in whole tables. */
static void collect(struct server *s, int number, int servers, struct table_set *to) {
    const struct table_set *from = server_tables(s);
    for (int32_t i = 0; i < from->count; i++)
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            const int64_t bytes = table_memory_stride(&from->shapes[i], a);
            for (int64_t r = 0; bytes && r < from->shapes[i].rows; r++)
                memcpy(array_row(&to->tables[i].array[a], number + r * servers),
                       array_row(&from->tables[i].array[a], r), (size_t)bytes);
        }
}

static int serve(struct work *w, struct transport *t, struct error *err) {
    struct server *s;
    int status = server_open(&s, t, &w->setup, err);
    if (status == 0 && w->zeros) clear(server_tables(s));
    if (status == 0) status = server_serve(s, err);
    if (status == 0) collect(s, t->rank, w->setup.servers, &w->b->tables);
    w->servers[t->rank] = server_report(s);
    server_close(s);
    return status;
}

static int labour(struct work *w, struct transport *t, struct error *err) {
    const int worker = t->rank - w->setup.servers;
    struct worker *own;
    int status = worker_open(&own, t, &w->setup, err);
    for (int c = 0; status == 0 && c < w->clocks; c++) {
        struct turn turn = {w, &w->slices[worker], worker, c};
        status = worker_clock(own, turn.slice, react, &turn, err);
    }
    if (status == 0) status = worker_end(own, err);
    if (worker == 1) atomic_store(&w->ended, true);
    w->report[worker] = worker_report(own);
    worker_close(own);
    return status;
}

static int live(struct transport *t, void *ctx) {
    struct work *w = ctx;
    struct error err = {""};
    const int status = t->rank < w->setup.servers ? serve(w, t, &err) : labour(w, t, &err);
    if (status) snprintf(w->wrong[t->rank], sizeof w->wrong[0], "%.599s", err.text);
    return status;
}

static struct work work_make(struct builder *b, int servers, int workers, int64_t staleness,
                             int clocks) {
    struct error err;
    struct work w = {.b = b, .workers = workers, .clocks = clocks};
    w.setup = (struct server_setup){.servers = servers,
                                    .shapes = b->in.tables,
                                    .rules = b->rules,
                                    .num_tables = b->in.num_tables,
                                    .seed = 5,
                                    .staleness = staleness,
                                    .step = registry_find(OP_STEP, "cpu_fused", &err),
                                    .forward = registry_find(OP_FORWARD, "cpu_lookup", &err),
                                    .gradient = registry_find(OP_GRADIENT, "cpu_merged", &err),
                                    .threads = 1};
    const struct deal deal = deal_of(NULL, &b->in);
    for (int i = 0; i < workers; i++)
        deal_cut(&deal, &b->in, sharding_bag(b->in.features[0].bags, i, workers),
                 sharding_bag(b->in.features[0].bags, i + 1, workers), &w.slices[i]);
    return w;
}

static void work_free(struct work *w) {
    for (int i = 0; i < w->workers; i++) deal_free(&w->slices[i]);
}

static void run(struct work *w) {
    if (transport_threads(w->setup.servers + w->workers, 1, 0, live, w))
        for (int r = 0; r < w->setup.servers + w->workers; r++)
            if (*w->wrong[r] && !strstr(w->wrong[r], "another rank"))
                fail_msg("rank %d: %s", r, w->wrong[r]);
    assert_int_equal(atomic_load(&w->odd), 0);
}

/* Every push is counted, at its server and by its distance; no worker is ahead by more than the
 * bound. */
static void check_counts(const struct work *w) {
    int64_t pushed = 0, applied = 0;
    for (int i = 0; i < w->workers; i++) {
        assert_int_equal(w->report[i].clocks, w->clocks);
        pushed += w->report[i].pushed;
    }
    for (int s = 0; s < w->setup.servers; s++) {
        const struct server_report *x = &w->servers[s];
        int64_t versions = 0, clocks = 0;
        for (int d = 0; d < DISTANCES; d++) {
            versions += x->versions[d], clocks += x->clocks[d];
            if (w->setup.staleness >= 0 && d > w->setup.staleness)
                assert_int_equal(x->clocks[d], 0);
        }
        assert_int_equal(x->pushes, w->workers * w->clocks);
        assert_int_equal(x->pulls, w->workers * w->clocks);
        assert_int_equal(versions, x->pushes);
        assert_int_equal(clocks, x->pulls);
        if (w->setup.staleness == 0) assert_int_equal(x->versions[0], x->pushes);
        applied += x->rows;
    }
    assert_int_equal(pushed, applied);
}
