/* SPDX-License-Identifier: MIT
 *
 * Tables with a part of their rows in slots beside tables in memory: after many steps over several batches all rows and
 * states have the same bits, for every kernel, policy and budget; with real gradients for kernels that sum a row in the
 * order of its lookups. Slots are in host memory over a disk, and in device memory over host memory. And after a commit,
 * in another process.
 */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/measure/runner.h"
#include "tests/batch_builder.h"
#include "tests/kernel_tests.h"
#include "tests/state_case.h"
#include "tiers/place_tier.h"

enum { RING = 5, STEPS = 13, SEED = 3 };

static const char *const specs[] = {
    "workload a\ntables 2\nrows 300\ndim 24\nbatch 24\nlength uniform 0 5\nids zipf\nalpha 1.05\n"
    "rule adam\npadding 2\n",
    "workload b\nrows 500\ndim 130\nbatch 40\nlength fixed 3\nids zipf\nalpha 0.8\nrule "
    "rowwise_adagrad\nweight_type bf16\n"};

struct test {
    struct spec_list list;
    struct workload w;
    struct row_index index[RING];
    struct place_setup setup;
    struct work_path path;
};

static void begin(struct test *x, const char *spec, enum grad_mode kind) {
    struct error err;
    const struct spec_overrides none = {0};
    *x = (struct test){.path = state_no_folder("tier_place")};
    if (spec_parse("test", spec, strlen(spec), &none, &x->list, &err) ||
        workload_generate(&x->list.specs[0], RING, kind, &x->w, &err))
        fail_msg("%s", err.text);
    for (int b = 0; b < RING; b++) x->index[b] = row_index_build(&x->w.batches[b]);
    x->setup = (struct place_setup){.shapes = x->w.tables,
                                    .num_tables = x->w.num_tables,
                                    .batches = x->w.batches,
                                    .index = x->index,
                                    .ring = RING,
                                    .threads = 2,
                                    .seed = SEED};
}

static void end(struct test *x) {
    for (int b = 0; b < RING; b++) row_index_free(&x->index[b]);
    workload_free(&x->w);
    spec_list_free(&x->list);
    state_no_folder("tier_place");
}

/* Steps from .. to-1, each on the next batch of the ring; [ahead] batches are announced while one runs. */
static int steps_ahead(const struct test *x, struct place *p, const struct kernel *k, int from,
                       int to, int ahead, struct error *err) {
    struct rule_step rules[4];
    struct place_scratch scratch;
    if (runner_scratch_open(p, k, &scratch, err)) return -1;
    int status = 0, announced = from;
    for (int step = from; step < to && status == 0; step++) {
        for (; status == 0 && ahead && announced < to && announced <= step + ahead; announced++)
            status = tier_announce(p, announced % RING, true, err);
        if (status) break;
        for (int32_t t = 0; t < x->w.num_tables; t++)
            rules[t] = rule_step(rule_default(x->w.tables[t].rule), step + 1);
        const struct place_job job = {
            .kernel = k, .batch = step % RING, .steps = rules, .scratch = &scratch};
        status = runner_step(p, &job, POISON, err);
        if (status == 0 && p->ops->intact(p, job.batch, &scratch, err)) status = -1;
    }
    p->ops->scratch_close(p, &scratch);
    return status;
}

static int steps(const struct test *x, struct place *p, const struct kernel *k, int from, int to,
                 struct error *err) {
    return steps_ahead(x, p, k, from, to, 0, err);
}

static struct table_set tables_of(const struct test *x, struct place *p) {
    struct table_set out;
    struct error err;
    if (tables_create(&out, x->w.tables, x->w.num_tables, 99, &err) ||
        place_get_tables(p, &out, &err))
        fail_msg("%s", err.text);
    return out;
}

static void expect_same(const struct test *x, const struct table_set *a, const struct table_set *b,
                        const char *what) {
    for (int32_t t = 0; t < x->w.num_tables; t++)
        for (int k = 0; k < TABLE_ARRAYS; k++) {
            const size_t bytes = table_memory_bytes(&x->w.tables[t], k);
            if (bytes && memcmp(a->tables[t].array[k].data, b->tables[t].array[k].data, bytes))
                fail_msg("%s: table %d, array %d has other bits", what, (int)t, k);
        }
}

static struct tier_options options_of(const struct test *x, enum backend fast, enum policy policy,
                                      double budget) {
    return (struct tier_options){.fast = fast,
                                 .directory = x->path.text,
                                 .budget = budget,
                                 .policy = policy,
                                 .belady_runs = STEPS,
                                 .static_batches = RING,
                                 .depth = 16};
}

/* Over a disk where most rows move, otherwise over memory, which is quicker. */
static struct place *open_over(const struct test *x, enum backend fast, enum policy policy,
                               double budget, bool disk) {
    struct error err;
    struct tier_options o = options_of(x, fast, policy, budget);
    o.store = disk && fast == ON_HOST ? row_file_store : memory_store;
    struct place *p = place_tier_open(&o, &x->setup, &err);
    if (!p) fail_msg("%s, budget %g: %s", policy_names[policy], budget, err.text);
    return p;
}

static struct place *open_tier_on(const struct test *x, enum backend fast, enum policy policy,
                                  double budget) {
    return open_over(x, fast, policy, budget, true);
}

static struct place *open_tier(const struct test *x, enum policy policy, double budget) {
    return open_tier_on(x, ON_HOST, policy, budget);
}

/* The least budget that takes the largest batch of every table. */
static double least_budget(const struct test *x) {
    double most = 0;
    for (int b = 0; b < RING; b++)
        for (int32_t t = 0; t < x->w.num_tables; t++) {
            const int64_t rows =
                row_index_find(&x->index[b], t + 1, 0) - row_index_find(&x->index[b], t, 0);
            const double share = (double)rows / (double)x->w.tables[t].rows;
            most = share > most ? share : most;
        }
    return most + 1e-9;
}

static void expect_counts(const struct tier_counts *c, double budget, bool least) {
    assert_true(c->batches == STEPS && c->row_misses <= c->rows && c->row_misses > 0);
    assert_true(c->lookup_misses >= c->row_misses && c->lookup_misses < c->lookups);
    if (least) assert_true(c->written_back > 0);
    if (budget == 1) assert_int_equal(c->written_back, 0);
    assert_int_equal(c->store.fetched, c->row_misses);
}

/* Rows that batches have touched, as a model of one line counts them. */
static void expect_rows(const struct test *x, const struct tier_counts *c) {
    int64_t rows = 0;
    for (int step = 0; step < STEPS; step++) rows += x->index[step % RING].rows;
    assert_int_equal(c->rows, rows);
}

/* Sanitizers are slow. */
enum { EVERY = WITH_SANITIZER ? 3 : 1 };

static void with_slots(struct test *x, const struct kernel *k, const struct table_set *want) {
    const double budgets[] = {least_budget(x), 0.7, 1};
    const int aheads[] = {0, 1, 2, 4};
    struct error err;
    char what[100];
    for (int p = 0; p < POLICIES; p++)
        for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
            if (((size_t)p + b) % EVERY) continue;
            state_no_folder("tier_place");
            struct place *tier = open_over(x, k->place, (enum policy)p, budgets[b], b == 0);
            snprintf(what, sizeof what, "%s, budget %g", policy_names[p], budgets[b]);
            if (steps_ahead(x, tier, k, 0, STEPS, aheads[((size_t)p + b) % 4], &err))
                fail_msg("%s: %s", what, err.text);
            struct tier_counts c = tier_counts(tier);
            expect_counts(&c, budgets[b], b == 0);
            expect_rows(x, &c);
            struct table_set got = tables_of(x, tier);
            expect_same(x, want, &got, what);
            tables_free(&got);
            tier->ops->close(tier);
        }
}

static void same_bits(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    const enum grad_mode *kind = ((const struct kernel_test *)*state)->param;
    struct error err;
    if (*kind == GRAD_REAL && !(k->traits & OWN_LOOKUPS)) skip();
    if (k->traits & STEP_PER_LOOKUP) skip(); /* not for these rules */
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        struct test x;
        begin(&x, specs[s], *kind);
        struct place *whole = place_open(k->place, &x.setup, &err);
        if (k->traits & DENSE_STEP) {
            struct place *p = open_tier_on(&x, k->place, POLICY_LRU, 1);
            assert_int_equal(steps(&x, p, k, 0, 1, &err), -1);
            assert_non_null(strstr(err.text, "changes rows that no lookup touches"));
            p->ops->close(p);
        } else {
            if (steps(&x, whole, k, 0, STEPS, &err)) fail_msg("%s", err.text);
            struct table_set want = tables_of(&x, whole);
            with_slots(&x, k, &want);
            tables_free(&want);
        }
        whole->ops->close(whole);
        end(&x);
    }
}

/* With real gradients, each batch alone. */
static void within_bounds(void **state) {
    const struct kernel *k = ((const struct kernel_test *)*state)->kernel;
    struct error err;
    if (k->traits & (DENSE_STEP | STEP_PER_LOOKUP)) skip();
    for (size_t s = 0; s < sizeof specs / sizeof *specs; s++) {
        struct test x;
        struct rule rules[4];
        struct rule_step steps[4];
        struct place_scratch scratch;
        begin(&x, specs[s], GRAD_REAL);
        const struct table_set before = {
            .count = x.w.num_tables, .shapes = x.w.tables, .seed = SEED};
        struct place *p = open_tier_on(&x, k->place, POLICY_LRU, least_budget(&x));
        if (runner_scratch_open(p, k, &scratch, &err)) fail_msg("%s", err.text);
        for (int32_t t = 0; t < x.w.num_tables; t++) {
            rules[t] = rule_default(x.w.tables[t].rule);
            steps[t] = rule_step(rules[t], 1);
        }
        for (int b = 0; b < RING; b++) {
            const struct place_job job = {
                .kernel = k, .batch = b, .steps = steps, .scratch = &scratch};
            const struct check check = {.in = &x.w.batches[b],
                                        .index = &x.index[b],
                                        .rules = rules,
                                        .step = 1,
                                        .before = tables_initial_row,
                                        .before_ctx = &before};
            struct check_result result = {0};
            if (runner_step(p, &job, POISON, &err)) fail_msg("%s", err.text);
            if (runner_check(p, &job, check, &result, &err))
                fail_msg("batch %d: %s", b, result.message[0] ? result.message : err.text);
            if (p->ops->restore(p, b, &err)) fail_msg("%s", err.text);
        }
        p->ops->scratch_close(p, &scratch);
        p->ops->close(p);
        end(&x);
    }
}

static void no_cold_caches(void **state) {
    (void)state;
    struct test x;
    struct ceiling ceilings;
    struct error err;
    begin(&x, specs[0], GRAD_REAL);
    struct place *p = open_tier_on(&x, ON_DEVICE, POLICY_LRU, 1);
    assert_int_equal(p->ops->flush(p, &err), -1);
    assert_non_null(strstr(err.text, "no cold caches and no ceilings"));
    assert_int_equal(p->ops->ceilings(p, &ceilings, &err), -1);
    p->ops->close(p);
    end(&x);
}

/* Steps, a commit, another place goes on; what came after its commit is gone. */
static void goes_on(void **state) {
    (void)state;
    struct test x;
    struct error err;
    begin(&x, specs[0], GRAD_REAL);
    const struct kernel *k = registry_find(OP_STEP, "cpu_sort", &err);
    struct place *whole = place_host_open(&x.setup, &err);
    if (steps(&x, whole, k, 0, 9, &err)) fail_msg("%s", err.text);
    struct table_set want = tables_of(&x, whole);
    struct place *p = open_tier(&x, POLICY_LRU, 0.4);
    assert_int_equal(steps(&x, p, k, 0, 4, &err), 0);
    assert_int_equal(tier_commit(p, 4, &err), 0);
    assert_int_equal(steps(&x, p, k, 4, 8, &err), 0);
    p->ops->close(p);
    p = open_tier(&x, POLICY_CLOCK, 0.5);
    assert_int_equal(steps(&x, p, k, 4, 9, &err), 0);
    struct table_set got = tables_of(&x, p);
    expect_same(&x, &want, &got, "after a commit");
    /* Restored rows are initial ones again. */
    assert_int_equal(p->ops->restore(p, 2, &err), 0);
    assert_int_equal(whole->ops->restore(whole, 2, &err), 0);
    tables_free(&got);
    tables_free(&want);
    got = tables_of(&x, p), want = tables_of(&x, whole);
    expect_same(&x, &want, &got, "restored");
    assert_int_equal(p->ops->restore(p, -1, &err), 0);
    assert_int_equal(whole->ops->restore(whole, -1, &err), 0);
    tables_free(&got);
    tables_free(&want);
    got = tables_of(&x, p), want = tables_of(&x, whole);
    expect_same(&x, &want, &got, "all restored");
    assert_true(tier_bytes(p) > 0);
    tables_free(&got);
    tables_free(&want);
    p->ops->close(p);
    whole->ops->close(whole);
    end(&x);
}

/* Batches are run as they were announced, and what goes wrong ahead is said by the run. */
static void announced(void **state) {
    (void)state;
    struct test x;
    struct error err;
    struct table_set rows;
    begin(&x, specs[0], GRAD_REAL);
    const struct kernel *k = registry_find(OP_STEP, "cpu_sort", &err);
    struct place *p = open_tier(&x, POLICY_LRU, least_budget(&x));
    assert_int_equal(tier_announce(p, 0, true, &err), 0);
    assert_int_equal(tier_announce(p, 0, true, &err), -1);
    assert_non_null(strstr(err.text, "batch 0 is announced, and has not run"));
    assert_int_equal(tier_commit(p, 1, &err), -1);
    assert_non_null(strstr(err.text, "batches are announced; run them first"));
    assert_int_equal(p->ops->restore(p, -1, &err), -1);
    assert_int_equal(tables_create(&rows, x.w.tables, x.w.num_tables, 99, &err), 0);
    assert_int_equal(place_get_tables(p, &rows, &err), -1);
    tables_free(&rows);
    assert_int_equal(steps(&x, p, k, 1, 2, &err), -1);
    assert_non_null(strstr(err.text, "batch 1 runs, and batch 0 was announced"));
    assert_int_equal(steps(&x, p, k, 0, 1, &err), 0);
    assert_int_equal(tier_commit(p, 1, &err), 0);
    /* Closed while one has its slots, and others wait for them. */
    for (int b = 0; b < RING; b++) assert_int_equal(tier_announce(p, b, true, &err), 0);
    p->ops->close(p);
    p = open_tier_on(&x, ON_DEVICE, POLICY_LRU, least_budget(&x));
    for (int b = 0; b < RING; b++) assert_int_equal(tier_announce(p, b, true, &err), 0);
    p->ops->close(p);
    p = open_tier(&x, POLICY_LRU, 0.01);
    assert_int_equal(tier_announce(p, 0, true, &err), 0);
    assert_int_equal(steps(&x, p, k, 0, 1, &err), -1);
    assert_non_null(strstr(err.text, "and the cache has 3 slots; it needs "));
    p->ops->close(p);
    end(&x);
}

static int64_t rows_in(const struct test *x, int batch, int32_t table) {
    return row_index_find(&x->index[batch], table + 1, 0) -
           row_index_find(&x->index[batch], table, 0);
}

static bool fits(const struct test *x, int batch, int32_t table, double budget) {
    return rows_in(x, batch, table) <= tier_slots(budget, x->w.tables[table].rows);
}

/* A budget that suffices for one batch, and for another one's first table but not for its second. */
static double budget_between(const struct test *x, int *small, int *large) {
    for (double budget = 0.01; budget < 1; budget += 0.002)
        for (*small = 0; *small < RING; ++*small)
            for (*large = 0; *large < RING; ++*large)
                if (fits(x, *small, 0, budget) && fits(x, *small, 1, budget) &&
                    fits(x, *large, 0, budget) && !fits(x, *large, 1, budget))
                    return budget;
    fail_msg("no such budget");
    return 0;
}

/* What has run before is not lost, and other batches run. */
static void after_a_refused_batch(void **state) {
    const enum backend fast = *(const enum backend *)((const struct kernel_test *)*state)->param;
    struct test x;
    struct error err;
    int small, large;
    begin(&x, specs[0], GRAD_EXACT);
    const struct kernel *k =
        registry_find(OP_STEP, fast == ON_HOST ? "cpu_sort" : "cuda_sort", &err);
    const double budget = budget_between(&x, &small, &large);
    struct place *whole = place_open(fast, &x.setup, &err),
                 *p = open_tier_on(&x, fast, POLICY_LRU, budget);
    for (int round = 0; round < 6; round++) {
        const int ahead = round % 3;
        for (int n = 0; n < ahead; n++)
            assert_int_equal(tier_announce(p, n ? large : small, true, &err), 0);
        assert_int_equal(steps(&x, p, k, small, small + 1, &err), 0);
        assert_int_equal(steps(&x, whole, k, small, small + 1, &err), 0);
        assert_int_equal(steps(&x, p, k, large, large + 1, &err), -1);
        assert_non_null(strstr(err.text, "table 1, with the rows of the budget: a batch touches"));
        assert_int_equal(tier_commit(p, (uint64_t)round, &err), 0);
    }
    for (int again = 0; again < 2; again++) {
        struct table_set want = tables_of(&x, whole), got = tables_of(&x, p);
        expect_same(&x, &want, &got, "beside refused batches");
        tables_free(&want);
        tables_free(&got);
        p->ops->close(p);
        if (again || fast == ON_DEVICE) break; /* whose tables are in memory */
        p = open_tier(&x, POLICY_LRU, 1);
    }
    whole->ops->close(whole);
    end(&x);
}

/* Rows are so wide that those of a batch travel in several turns, also when all are committed, read and restored. */
static void several_turns(void **state) {
    static const char spec[] = "workload c\nrows 400\ndim 4096\nbatch 250\nlength fixed 2\nids "
                               "zipf\nalpha 0.4\nrule adam\n";
    const enum backend fast = *(const enum backend *)((const struct kernel_test *)*state)->param;
    struct test x;
    struct error err;
    begin(&x, spec, GRAD_EXACT);
    const struct kernel *k =
        registry_find(OP_STEP, fast == ON_HOST ? "cpu_sort" : "cuda_sort", &err);
    struct place *whole = place_open(fast, &x.setup, &err),
                 *p = open_tier_on(&x, fast, POLICY_LFU, 0.8);
    assert_true(x.index[0].rows > 2 * (4 << 20) / tier_record_bytes(p, 0));
    if (steps(&x, whole, k, 0, 4, &err) || steps_ahead(&x, p, k, 0, 4, 1, &err) ||
        tier_commit(p, 4, &err))
        fail_msg("%s", err.text);
    for (int restored = 0; restored < 2; restored++) {
        struct table_set want = tables_of(&x, whole), got = tables_of(&x, p);
        expect_same(&x, &want, &got, restored ? "wide rows, restored" : "wide rows");
        tables_free(&want);
        tables_free(&got);
        if (p->ops->restore(p, -1, &err) || whole->ops->restore(whole, -1, &err))
            fail_msg("%s", err.text);
    }
    p->ops->close(p);
    whole->ops->close(whole);
    end(&x);
}

/* A row that cannot be read has a slot without content: nothing is committed any more, and the last commit stays. */
static void after_a_damaged_row(void **state) {
    (void)state;
    struct test x;
    struct error err;
    char path[PATH_MAX + 20], byte;
    begin(&x, specs[0], GRAD_REAL);
    const struct kernel *k = registry_find(OP_STEP, "cpu_sort", &err);
    struct place *p = open_tier(&x, POLICY_LRU, 0.5);
    assert_int_equal(steps(&x, p, k, 0, 1, &err), 0);
    assert_int_equal(tier_commit(p, 1, &err), 0);
    struct table_set want = tables_of(&x, p);
    snprintf(path, sizeof path, "%s/rows.1", x.path.text);
    const int fd = open(path, O_RDWR);
    const int64_t first = row_index_find(&x.index[1], 1, 0);
    int64_t at = first;
    while (row_index_find(&x.index[0], 1, x.index[1].run[at].row) <
           row_index_find(&x.index[0], 1, x.index[1].run[at].row + 1))
        at++; /* one that is not in a slot */
    const int64_t place = 4096 + x.index[1].run[at].row * tier_record_bytes(p, 1);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(pread(fd, &byte, 1, place), 1);
        byte ^= 1;
        assert_int_equal(pwrite(fd, &byte, 1, place), 1);
        if (turn) break;
        assert_int_equal(steps(&x, p, k, 1, 2, &err), -1);
        assert_non_null(strstr(err.text, "is damaged: its checksum differs"));
        assert_int_equal(steps(&x, p, k, 0, 1, &err), -1);
        assert_non_null(strstr(err.text, "rows are missing after an error; open the tables again"));
        assert_int_equal(tier_commit(p, 2, &err), -1);
        p->ops->close(p);
    }
    close(fd);
    p = open_tier(&x, POLICY_LRU, 0.5);
    struct table_set got = tables_of(&x, p);
    expect_same(&x, &want, &got, "after a damaged row");
    tables_free(&want);
    tables_free(&got);
    p->ops->close(p);
    end(&x);
}

static void refused(void **state) {
    (void)state;
    struct test x;
    struct error err;
    begin(&x, specs[0], GRAD_REAL);
    const struct kernel *k = registry_find(OP_STEP, "cpu_fused", &err);
    struct tier_options o = options_of(&x, ON_HOST, POLICY_LRU, 0.01);
    struct place *p = place_tier_open(&o, &x.setup, &err);
    assert_non_null(p);
    assert_int_equal(steps(&x, p, k, 0, 1, &err), -1);
    assert_non_null(strstr(err.text, "and the cache has 3 slots; it needs "));
    p->ops->close(p);
    o.budget = 0;
    assert_null(place_tier_open(&o, &x.setup, &err));
    assert_non_null(strstr(err.text, "budget 0: a share of the rows, above 0 and up to 1"));
    o.budget = 1.5;
    assert_null(place_tier_open(&o, &x.setup, &err));
    o.budget = 1;
    x.w.tables[0].rounding = ROUND_STOCHASTIC;
    assert_null(place_tier_open(&o, &x.setup, &err));
    assert_non_null(strstr(err.text, "there are no stochastic rounding"));
    end(&x);
}

int main(void) {
    static const enum grad_mode exact = GRAD_EXACT, real = GRAD_REAL;
    static const enum backend host = ON_HOST, device = ON_DEVICE;
    add_kernel_tests("exact sums have the bits of memory", same_bits, &exact);
    add_kernel_tests("real sums have the bits of memory", same_bits, &real);
    add_kernel_tests("real sums stay within the bound", within_bounds, NULL);
    add_test("no cold caches on a device", no_cold_caches, NULL, NULL);
    add_test("goes on after a commit", goes_on, NULL, NULL);
    add_test("announced", announced, NULL, NULL);
    add_test("after a refused batch", after_a_refused_batch, NULL, &host);
    add_test("after a refused batch, on a device", after_a_refused_batch, NULL, &device);
    add_test("wide rows take several turns", several_turns, NULL, &host);
    add_test("wide rows take several turns on a device", several_turns, NULL, &device);
    add_test("after a damaged row", after_a_damaged_row, NULL, NULL);
    add_test("refused", refused, NULL, NULL);
    return run_listed("tables with rows in slots");
}
