/* SPDX-License-Identifier: MIT
 *
 * Parameter servers with threads as ranks, which deliver messages as they come. Synchronous clocks
 * have the bits of one process; no update is lost and no row is half updated; distances in clocks
 * keep their bound.
 */
#include "extras/ranks/tests/server_case.h"

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
    static const struct { int servers, workers; } cases[] = {{1, 1}, {2, 3}, {3, 2}, {2, 2}};
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
        struct work w = work_make(&b, cases[i].servers, cases[i].workers, 0, 3);
        w.setup.step = k;
        clear(&b.tables);
        run(&w);
        check_counts(&w);
        void *many = builder_snapshot(&b, &bytes);
        /* A step per lookup rounds in between. */
        if (!(k->traits & STEP_PER_LOOKUP) && memcmp(one, many, bytes))
            fail_msg("%d servers and %d workers: other bits than one process", cases[i].servers,
                     cases[i].workers);
        free(one), free(many);
        work_free(&w);
        builder_free(&b);
    }
}

enum { ROWS = 40, DIM = 16 };

/* Rows of zeros get 1 for every lookup: sgd with a rate of -1. */
static void build_counting(struct builder *b) {
    builder_begin(b, 43, true);
    const int32_t table = builder_table(b, ROWS, DIM);
    builder_feature(b, table, POOL_NONE, -1);
    builder_random_bags(b, 60, 6);
    builder_finish(b);
    builder_rule(b, table, RULE_sgd);
    builder_set(&b->rules[0], "lr", -1);
    builder_start(b);
}

/* No update is lost. holds: worker 0 waits in its first clock until worker 1 went as far as it may. */
static void distances_keep_their_bound(void **state) {
    (void)state;
    static const int64_t staleness[] = {0, 1, 4, STALENESS_ANY};
    for (int i = 0; i < 8; i++) {
        const int64_t most = staleness[i / 2];
        const bool holds = i % 2;
        struct builder b;
        build_counting(&b);
        struct work w = work_make(&b, holds ? 1 : 2, holds ? 2 : 3, most, 9);
        w.zeros = w.counts = true;
        w.holds = holds;
        run(&w);
        check_counts(&w);
        if (holds) assert_true(w.servers[0].clocks[most < 0 ? w.clocks - 1 : most] > 0);
        int64_t hits[ROWS] = {0};
        for (int64_t l = 0; l < b.in.lookups; l++) hits[batch_id(&b.in, l)] += w.clocks;
        for (int64_t r = 0; r < ROWS; r++) {
            const float *row = array_row(&b.tables.tables[0].weight, r);
            for (int32_t d = 0; d < DIM; d++) assert_true(row[d] == (float)hits[r]);
        }
        work_free(&w);
        builder_free(&b);
    }
}

/* --- faults */

static void faults_are_one_line(void **state) {
    (void)state;
    struct builder b;
    build_counting(&b);
    struct work w = work_make(&b, 1, 1, 0, 2);
    assert_int_not_equal(transport_threads(1, 1, 0, live, &w), 0);
    assert_non_null(strstr(w.wrong[0], "there must be a server and a worker"));
    struct table_shape few = b.in.tables[0];
    few.rows = 1;
    w.setup.shapes = &few;
    w.setup.servers = 2;
    assert_int_not_equal(transport_threads(3, 1, 0, live, &w), 0);
    assert_non_null(strstr(w.wrong[0], "take fewer servers"));
    work_free(&w);
    builder_free(&b);
}

TESTS(server) {
    add_kernel_tests_on(ON_HOST, "synchronous clocks equal one process",
                        synchronous_clocks_equal_one_process, NULL);
    add_test("distances keep their bound", distances_keep_their_bound, NULL, NULL);
    add_test("faults are one line", faults_are_one_line, NULL, NULL);
    return run_listed("server");
}
