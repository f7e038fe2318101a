/* SPDX-License-Identifier: MIT
 *
 * What the tests of places with rows in slots share: workloads, steps on them, and tables that are
 * compared. TIER_FOLDER is the name of the test's own folder.
 */
#pragma once

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/measure/runner.h"
#include "tests/support/batch_builder.h"
#include "tests/support/kernel_tests.h"
#include "extras/tiers/tests/folder.h"
#include "extras/tiers/place_tier.h"

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

static inline void begin(struct test *x, const char *spec, enum grad_mode kind) {
    struct error err;
    const struct spec_overrides none = {0};
    *x = (struct test){.path = no_folder(TIER_FOLDER)};
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

static inline void end(struct test *x) {
    for (int b = 0; b < RING; b++) row_index_free(&x->index[b]);
    workload_free(&x->w);
    spec_list_free(&x->list);
    no_folder(TIER_FOLDER);
}

/* Steps from .. to-1, each on the next batch of the ring; [ahead] batches are announced while
 * one runs. */
static inline int steps_ahead(const struct test *x, struct place *p, const struct kernel *k,
                              int from, int to, int ahead, struct error *err) {
    struct rule_step rules[4];
    struct place_scratch scratch;
    if (runner_scratch_open(p, k, &scratch, err)) return -1;
    int status = 0, announced = from;
    for (int step = from; step < to && status == 0; step++) {
        for (; status == 0 && ahead && announced < to && announced <= step + ahead; announced++)
            status = tier_announce(p, announced % RING, err);
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

static inline int steps(const struct test *x, struct place *p, const struct kernel *k, int from,
                        int to, struct error *err) {
    return steps_ahead(x, p, k, from, to, 0, err);
}

static inline struct table_set tables_of(const struct test *x, struct place *p) {
    struct table_set out;
    struct error err;
    if (tables_create(&out, x->w.tables, x->w.num_tables, 99, &err) ||
        place_get_tables(p, &out, &err))
        fail_msg("%s", err.text);
    return out;
}

/* The place has the rows `want`, which were fetched from another place. */
static inline void expect_tables(const struct test *x, const struct table_set *want,
                                 struct place *p, const char *what) {
    struct table_set got = tables_of(x, p);
    for (int32_t t = 0; t < x->w.num_tables; t++)
        for (int k = 0; k < TABLE_ARRAYS; k++) {
            const size_t bytes = table_memory_bytes(&x->w.tables[t], k);
            if (bytes && memcmp(want->tables[t].array[k].data, got.tables[t].array[k].data, bytes))
                fail_msg("%s: table %d, array %d has other bits", what, (int)t, k);
        }
    tables_free(&got);
}

static inline void expect_places(const struct test *x, struct place *whole, struct place *p,
                                 const char *what) {
    struct table_set want = tables_of(x, whole);
    expect_tables(x, &want, p, what);
    tables_free(&want);
}

static inline struct tier_options options_of(const struct test *x, enum backend fast,
                                             enum policy policy, double budget) {
    return (struct tier_options){.fast = fast,
                                 .store = &file_store,
                                 .directory = x->path.text,
                                 .budget = budget,
                                 .policy = policy,
                                 .depth = 16};
}

/* Over a disk where most rows move, otherwise over memory, which is quicker. */
static inline struct place *open_over(const struct test *x, enum backend fast, enum policy policy,
                                      double budget, bool disk) {
    struct error err;
    struct tier_options o = options_of(x, fast, policy, budget);
    if (!disk || fast == ON_DEVICE) o.store = &memory_store;
    struct place *p = place_tier_open(&o, &x->setup, &err);
    if (!p) fail_msg("%s, budget %g: %s", policy_names[policy], budget, err.text);
    return p;
}

/* The least budget that takes the largest batch of every table. */
static inline double least_budget(const struct test *x) {
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
