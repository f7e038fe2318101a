/* SPDX-License-Identifier: MIT
 *
 * Parameter servers with threads as ranks, which deliver messages as they come. Synchronous clocks have the bits of one
 * process; no update is lost and no row is half updated; distances in clocks keep their bound; an order that
 * was recorded gives the same bits again.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "harness/measure/runner.h"
#include "harness/workload/batch_fill.h"
#include "ranks/server.h"
#include "tests/ranks_case.h"

#include "tests/kernel_tests.h"

enum { MOST = 8 };

/* A worker's bags of a batch. */
struct slice {
    struct batch in;
    const struct batch *whole;
    int64_t first;
    struct table_shape *tables;
    struct feature *features;
    int64_t *offsets, *ids;
    float *weights;
};

struct work {
    struct builder *b;
    struct server_setup setup;
    int workers, clocks;
    struct slice slices[MOST];
    struct server_report servers[MOST];
    struct worker_report report[MOST];
    struct arrivals *records; /* [servers]; NULL: none */
    const struct arrivals *replays;
    bool zeros, counts; /* tables begin with zeros; gradients are ones, rows must be even */
    bool holds;         /* worker 0 holds its first clock until nobody else goes on */
    atomic_int reached; /* clocks that worker 1 has begun */
    atomic_bool ended;  /* worker 1 has no more clocks */
    atomic_int odd;     /* what else was wrong */
    char wrong[MOST][600];
};

static struct slice slice_make(const struct batch *whole, int worker, int workers) {
    struct slice s = {.whole = whole};
    const int64_t first = sharding_bag(whole->bags, worker, workers),
                  bags = sharding_bag(whole->bags, worker + 1, workers) - first;
    s.first = first;
    s.tables = calloc((size_t)whole->num_tables, sizeof *s.tables);
    s.features = calloc((size_t)whole->num_features, sizeof *s.features);
    s.offsets = calloc((size_t)(whole->num_features * bags) + 1, sizeof *s.offsets);
    s.ids = calloc((size_t)whole->lookups + 1, sizeof *s.ids);
    s.weights = calloc((size_t)whole->lookups + 1, sizeof *s.weights);
    memcpy(s.tables, whole->tables, (size_t)whole->num_tables * sizeof *s.tables);
    memcpy(s.features, whole->features, (size_t)whole->num_features * sizeof *s.features);
    int64_t n = 0, q = 0;
    for (int32_t f = 0; f < whole->num_features; f++)
        for (int64_t b = first; b < first + bags; b++) {
            const int64_t *at = &whole->offsets[f * whole->bags + b];
            for (int64_t i = at[0]; i < at[1]; i++) {
                s.ids[n] = batch_id(whole, i);
                s.weights[n++] = whole->lookup_weights ? whole->lookup_weights[i] : 1;
            }
            s.offsets[++q] = n;
        }
    s.in = *whole;
    s.in.bags = bags;
    s.in.lookups = n;
    s.in.tables = s.tables;
    s.in.features = s.features;
    s.in.id_type = ID_INT64;
    s.in.ids = s.ids;
    s.in.offsets = s.offsets;
    s.in.lookup_weights = whole->lookup_weights ? s.weights : NULL;
    s.in.grad = NULL;
    batch_count(&s.in, s.features);
    batch_lay_out_rows(s.tables, s.features, s.in.num_features, bags);
    batch_derive_counted(&s.in, s.tables, s.features);
    return s;
}

static void slice_free(struct slice *s) {
    free(s->tables), free(s->features), free(s->offsets), free(s->ids), free(s->weights);
}

/* --- what workers do with their outputs */

struct turn {
    struct work *work;
    struct slice *slice;
    int worker, clock;
};

/* The slice's part of the batch's gradient; or ones. */
static void put_gradient(const struct turn *x, float *rows) {
    const struct batch *in = &x->slice->in, *whole = x->slice->whole;
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *own = &in->features[f], *all = &whole->features[f];
        const bool sequence = own->pooling == POOL_NONE;
        const int64_t count = sequence ? own->lookups : in->bags;
        const int64_t first = sequence ? whole->offsets[f * whole->bags + x->slice->first] -
                                             whole->offsets[f * whole->bags]
                                       : x->slice->first;
        for (int64_t r = 0; r < count; r++)
            for (int32_t d = 0; d < in->tables[own->table].dim; d++) {
                float *to = rows + own->grad_offset + r * own->grad_stride + d;
                const int64_t from = all->grad_offset + (first + r) * all->grad_stride + d;
                *to = x->work->counts ? 1 : batch_grad(whole, from);
            }
    }
}

/* Each row has the same number everywhere, if nobody saw it half updated. */
static void check_even(const struct turn *x, const float *rows) {
    const struct batch *in = &x->slice->in;
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

/* Worker 0 waits in its first clock until worker 1 cannot go on: when it is as far ahead as it may be, or at its end.
 * A wait of 30 s shows that it stands too early. */
static void hold(struct work *w) {
    const int64_t s = w->setup.staleness;
    for (int ms = 0; s < 0 ? !atomic_load(&w->ended) : atomic_load(&w->reached) <= s; ms++) {
        if (ms == 30000) atomic_fetch_add(&w->odd, 1000000);
        if (ms == 30000) return;
        pause_ms(1);
    }
    pause_ms(20);
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

/* Rows of shards, to their places in whole tables. */
static void collect(struct server *s, struct table_set *to) {
    const struct shard *shards;
    const struct table_set *from = server_tables(s, &shards);
    for (int32_t i = 0; i < from->count; i++)
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            const int64_t bytes = table_memory_stride(&from->shapes[i], a);
            for (int64_t r = 0; bytes && r < from->shapes[i].rows; r++)
                memcpy(array_row(&to->tables[shards[i].table].array[a],
                                 shards[i].row + r * (1 + shards[i].row_skip)),
                       array_row(&from->tables[i].array[a], r), (size_t)bytes);
        }
}

static int serve(struct work *w, struct transport *t, struct error *err) {
    struct server_setup setup = w->setup;
    struct server *s;
    if (w->records) setup.record = &w->records[t->rank];
    if (w->replays) setup.replay = &w->replays[t->rank];
    int status = server_open(&s, t, &setup, err);
    if (status == 0 && w->zeros) clear(server_tables(s, NULL));
    if (status == 0) status = server_serve(s, err);
    if (status == 0) collect(s, &w->b->tables);
    w->servers[t->rank] = server_report(s);
    server_close(s);
    return status;
}

static int labour(struct work *w, struct transport *t, struct error *err) {
    const int worker = t->rank - w->setup.servers;
    struct worker *own;
    int64_t versions[MOST] = {0};
    int status = worker_open(&own, t, &w->setup, err);
    for (int c = 0; status == 0 && c < w->clocks; c++) {
        struct turn turn = {w, &w->slices[worker], worker, c};
        status = worker_clock(own, &turn.slice->in, react, &turn, err);
        for (int s = 0; s < w->setup.servers; s++) {
            if (worker_version(own, s) < versions[s]) atomic_fetch_add(&w->odd, 1);
            versions[s] = worker_version(own, s);
        }
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
    if (status) snprintf(w->wrong[t->rank], sizeof w->wrong[0], "%s", err.text);
    return status;
}

static struct work work_make(struct builder *b, int servers, int workers, const char *sharding,
                             int64_t staleness, int clocks) {
    struct error err;
    struct work w = {.b = b, .workers = workers, .clocks = clocks};
    w.setup = (struct server_setup){.servers = servers,
                                    .sharding = sharding,
                                    .shapes = b->in.tables,
                                    .rules = b->rules,
                                    .num_tables = b->in.num_tables,
                                    .seed = 5,
                                    .staleness = staleness,
                                    .step = registry_find(OP_STEP, "cpu_fused", &err),
                                    .forward = registry_find(OP_FORWARD, "cpu_lookup", &err),
                                    .gradient = registry_find(OP_GRADIENT, "cpu_merged", &err),
                                    .threads = 1,
                                    .patience = 60};
    for (int i = 0; i < workers; i++) w.slices[i] = slice_make(&b->in, i, workers);
    return w;
}

static void work_free(struct work *w) {
    for (int i = 0; i < w->workers; i++) slice_free(&w->slices[i]);
}

static void run(struct work *w) {
    if (transport_threads(w->setup.servers + w->workers, 1, 0, live, w))
        for (int r = 0; r < w->setup.servers + w->workers; r++)
            if (*w->wrong[r] && !strstr(w->wrong[r], "another rank"))
                fail_msg("rank %d: %s", r, w->wrong[r]);
    assert_int_equal(atomic_load(&w->odd), 0);
}

/* Every push is counted, at its server and by its distance; nobody is ahead by more than the bound. */
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

/* --- tests */

static void build(struct builder *b, bool exact, bool weighted) {
    builder_begin(b, exact ? 41 : 42, exact);
    b->weighted = weighted;
    ranks_case(b, 31, POOL_SUM, 5, 2);
}

/* Steps of one process on the whole batch. Returns a copy of the tables, which are in b->tables. */
static void *one_process(struct builder *b, const struct kernel *k, int steps, size_t *bytes) {
    struct error err;
    tables_free(&b->tables);
    assert_int_equal(tables_create(&b->tables, b->in.tables, b->in.num_tables, 5, &err), 0);
    const size_t scratch_bytes = k->scratch_bytes ? k->scratch_bytes(&b->in, 2) : 0;
    void *scratch = aligned_alloc(KERNEL_ALIGN, (scratch_bytes / KERNEL_ALIGN + 1) * KERNEL_ALIGN);
    const struct launch how = {.threads = 2, .scratch = scratch};
    for (int n = 1; n <= steps; n++) {
        struct rule_step of[8];
        for (int32_t t = 0; t < b->in.num_tables; t++) of[t] = rule_step(b->rules[t], n);
        if (k->plan) assert_int_equal(k->plan(&b->in, &how), 0);
        assert_int_equal(k->run(&b->in, of, b->tables.tables, &how), 0);
    }
    free(scratch);
    return builder_snapshot(b, bytes);
}

static void synchronous_clocks_equal_one_process(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    static const struct {
        const char *sharding;
        int servers, workers;
    } cases[] = {{"row", 1, 1},
                 {"row", 2, 3},
                 {"row-modulo", 3, 2},
                 {"table,row,row-modulo", 2, 2},
                 {"table", 5, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct builder b;
        build(&b, true, i % 2);
        const enum rule_kind wanted[] = {RULE_rowwise_adagrad, RULE_adam, RULE_adagrad};
        for (int32_t t = 0; t < 3; t++)
            builder_rule(&b, t, kernel_applies(k, wanted[t]) ? wanted[t] : RULE_sgd);
        builder_start(&b);
        assert_true(b.sums_exact);
        size_t bytes;
        void *one = one_process(&b, k, 3, &bytes);
        struct work w = work_make(&b, cases[i].servers, cases[i].workers, cases[i].sharding, 0, 3);
        w.setup.step = k;
        clear(&b.tables);
        run(&w);
        check_counts(&w);
        void *many = builder_snapshot(&b, &bytes);
        /* A step per lookup rounds in between. */
        if (!(k->traits & STEP_PER_LOOKUP) && memcmp(one, many, bytes))
            fail_msg("%s, %d servers and %d workers: other bits than one process",
                     cases[i].sharding, cases[i].servers, cases[i].workers);
        free(one), free(many);
        work_free(&w);
        builder_free(&b);
    }
}

/* Rows of zeros get 1 for every lookup: sgd with a rate of -1. */
static void build_counting(struct builder *b) {
    builder_begin(b, 43, true);
    const int32_t table = builder_table(b, 40, 16);
    builder_feature(b, table, POOL_NONE, -1);
    builder_random_bags(b, 60, 6);
    builder_finish(b);
    builder_rule(b, table, RULE_sgd);
    builder_set(&b->rules[0], "lr", -1);
    builder_start(b);
}

static void no_update_is_lost(void **state) {
    (void)state;
    static const int64_t staleness[] = {0, 1, 3, STALENESS_ANY};
    for (size_t i = 0; i < sizeof staleness / sizeof *staleness; i++) {
        struct builder b;
        build_counting(&b);
        struct work w = work_make(&b, 2, 3, "row-modulo", staleness[i], 20);
        w.zeros = w.counts = true;
        run(&w);
        check_counts(&w);
        int64_t hits[40] = {0};
        for (int64_t l = 0; l < b.in.lookups; l++) hits[batch_id(&b.in, l)] += w.clocks;
        for (int64_t r = 0; r < 40; r++)
            for (int32_t d = 0; d < 16; d++)
                assert_true(((float *)array_row(&b.tables.tables[0].weight, r))[d] ==
                            (float)hits[r]);
        work_free(&w);
        builder_free(&b);
    }
}

static void distances_keep_their_bound(void **state) {
    (void)state;
    static const int64_t staleness[] = {0, 1, 4, STALENESS_ANY};
    for (size_t i = 0; i < sizeof staleness / sizeof *staleness; i++) {
        struct builder b;
        build_counting(&b);
        struct work w = work_make(&b, 1, 2, "row", staleness[i], 9);
        w.zeros = w.counts = w.holds = true;
        run(&w);
        check_counts(&w);
        /* Worker 1 went as far as it could. */
        assert_true(w.servers[0].clocks[staleness[i] < 0 ? 8 : staleness[i]] > 0);
        work_free(&w);
        builder_free(&b);
    }
}

/* Rounding makes the order of steps visible. */
static void a_recorded_order_gives_the_same_bits(void **state) {
    (void)state;
    struct builder b;
    size_t bytes;
    build(&b, false, true);
    for (int32_t t = 0; t < 3; t++) builder_rule(&b, t, RULE_adagrad);
    builder_start(&b);
    struct arrivals records[2] = {{0}};
    struct work w = work_make(&b, 2, 3, "row", STALENESS_ANY, 12);
    w.records = records;
    run(&w);
    void *first = builder_snapshot(&b, &bytes);
    assert_int_equal(records[0].count, 3 * (2 * 12 + 1));
    for (int again = 0; again < 3; again++) {
        struct work replay = w;
        replay.records = NULL;
        replay.replays = records;
        clear(&b.tables);
        run(&replay);
        void *second = builder_snapshot(&b, &bytes);
        assert_memory_equal(first, second, bytes);
        free(second);
    }
    /* All workers in turn, from the first or from the last. */
    struct arrivals rounds[2][2];
    for (int way = 0; way < 2; way++)
        for (int s = 0; s < 2; s++) {
            rounds[way][s] = (struct arrivals){calloc(75, sizeof(int32_t)), 75};
            for (int n = 0; n < 75; n++) rounds[way][s].worker[n] = way ? 2 - n % 3 : n % 3;
        }
    /* Another order gives other bits, but not to synchronous clocks. */
    for (int64_t staleness = STALENESS_ANY; staleness <= 0; staleness++) {
        void *turned[2];
        for (int way = 0; way < 2; way++) {
            for (int s = 0; s < 2; s++)
                for (int64_t n = 0; n < records[s].count; n++)
                    records[s].worker[n] = 2 - records[s].worker[n];
            struct work other = w;
            other.setup.staleness = staleness;
            other.records = NULL;
            other.replays = staleness ? records : rounds[way];
            run(&other);
            turned[way] = builder_snapshot(&b, &bytes);
        }
        assert_int_equal(memcmp(turned[0], turned[1], bytes) == 0, staleness == 0);
        free(turned[0]), free(turned[1]);
    }
    free(first);
    free(records[0].worker), free(records[1].worker);
    for (int i = 0; i < 4; i++) free(rounds[i / 2][i % 2].worker);
    work_free(&w);
    builder_free(&b);
}

/* Rows train from the pull on that is their third touch; synchronous, so that pulls of a clock come before its
 * pushes. */
static void rows_train_when_admitted(void **state) {
    (void)state;
    struct builder b;
    const struct embfuse_admission admission = {.kind = EMBFUSE_ADMIT_COUNT, .threshold = 3};
    build_counting(&b);
    struct work w = work_make(&b, 2, 1, "row", 0, 5);
    w.setup.admission = &admission;
    w.zeros = w.counts = true;
    run(&w);
    int64_t hits[40] = {0}, refused = 0;
    for (int64_t l = 0; l < b.in.lookups; l++) hits[batch_id(&b.in, l)]++;
    for (int64_t r = 0; r < 40; r++) {
        refused += 2 * hits[r];
        assert_true(((float *)array_row(&b.tables.tables[0].weight, r))[5] == (float)(3 * hits[r]));
    }
    assert_int_equal(w.report[0].refused, refused);
    assert_int_equal(w.report[0].lookups, 5 * b.in.lookups);
    work_free(&w);
    builder_free(&b);
}

/* --- faults */

static int live_beside_a_silent_server(struct transport *t, void *ctx) {
    struct work *w = ctx;
    if (t->rank >= w->setup.servers) return live(t, ctx);
    while (!*w->wrong[1]) pause_ms(1);
    return 0;
}

static int live_with_other_tables(struct transport *t, void *ctx) {
    struct work *w = ctx, other = *w;
    if (t->rank == 0) return live(t, ctx);
    struct table_shape shapes[8];
    memcpy(shapes, w->setup.shapes, (size_t)w->setup.num_tables * sizeof *shapes);
    shapes[0].rows++;
    other.setup.shapes = shapes;
    const int status = live(t, &other);
    memcpy(w->wrong[1], other.wrong[1], sizeof w->wrong[1]);
    return status;
}

static void faults_are_one_line(void **state) {
    (void)state;
    struct builder b;
    build_counting(&b);
    struct work w = work_make(&b, 1, 1, "row", 0, 2);
    w.setup.patience = 0.2;
    assert_int_not_equal(transport_threads(2, 1, 0, live_beside_a_silent_server, &w), 0);
    assert_string_equal(w.wrong[1], "server 0 has not answered for 0.2 s");
    w.setup.patience = 60;
    memset(w.wrong, 0, sizeof w.wrong);
    assert_int_not_equal(transport_threads(2, 1, 0, live_with_other_tables, &w), 0);
    assert_non_null(strstr(w.wrong[0], "worker 0 has other tables"));
    w.setup.sharding = "column";
    assert_int_not_equal(transport_threads(2, 1, 0, live, &w), 0);
    assert_non_null(strstr(w.wrong[0], "cut it by table, row or row-modulo, not column"));
    assert_int_not_equal(transport_threads(1, 1, 0, live, &w), 0);
    assert_non_null(strstr(w.wrong[0], "there must be a server and a worker"));
    work_free(&w);
    builder_free(&b);
}

int main(void) {
    add_kernel_tests_on(ON_HOST, "synchronous clocks equal one process",
                        synchronous_clocks_equal_one_process, NULL);
    add_test("no update is lost", no_update_is_lost, NULL, NULL);
    add_test("distances keep their bound", distances_keep_their_bound, NULL, NULL);
    add_test("a recorded order gives the same bits", a_recorded_order_gives_the_same_bits, NULL,
             NULL);
    add_test("rows train when admitted", rows_train_when_admitted, NULL, NULL);
    add_test("faults are one line", faults_are_one_line, NULL, NULL);
    return run_listed("server");
}
