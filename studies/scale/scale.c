/* SPDX-License-Identifier: MIT
 *
 * Iterations on several ranks, predicted by ranks/cost.h. Prints lines of JSON:
 *
 *   scale here [REPS]   1 to 8 ranks that are threads of this machine, measured and predicted. Links and local speeds
 *                       are calibrated for every number of ranks; the local work comes from an
 *                       iteration of one rank. No other measured time goes into a prediction
 *   scale map           8 to 16,384 ranks of a cluster, only modelled, with public figures of its links
 */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/measure/runner.h"
#include "harness/memory.h"
#include "harness/registry.h"
#include "harness/workload/workload.h"
#include "ranks/calibrate.h"
#include "ranks/place_ranks.h"
#include "ranks/placing.h"

static int stop(const struct error *err) {
    fprintf(stderr, "scale: %s\n", err->text);
    return EXIT_USAGE;
}

static void print_stages(const char *name, const double stage[COST_STAGES]) {
    printf(", \"%s\": {", name);
    for (int s = 0; s < COST_STAGES; s++)
        printf("%s\"%s\": %.6g", s ? ", " : "", cost_stage_names[s], stage[s]);
    printf("}");
}

/* --- here */

enum { REPS = 9, REPS_MOST = 1000 };

static const char here_spec[] =
    "workload here\ntables 8\nrows 100000\ndim 64\nbatch 4096\nlength fixed 8\nids zipf\n"
    "alpha 1.05\nrule adagrad\n";

static const char *const shardings[] = {"table", "row", "row-modulo", "column", "data"};
enum { KINDS = sizeof shardings / sizeof *shardings };

struct here {
    const struct workload *workload;
    const struct row_index *index;
    struct rule_step *steps;
    int reps;
    struct machine machine;
    struct step_times times[KINDS]; /* the median of each */
    struct error err;
};

static int by_seconds(const void *a, const void *b) {
    const struct step_times *x = a, *y = b;
    return (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

static int time_sharding(struct here *h, struct transport *t, int k, struct error *err) {
    const struct workload *w = h->workload;
    const struct ranks_options options = {.sharding = shardings[k]};
    const struct place_setup setup = {.shapes = w->tables,
                                      .num_tables = w->num_tables,
                                      .batches = w->batches,
                                      .index = h->index,
                                      .ring = 1,
                                      .threads = 1,
                                      .seed = w->seed};
    struct place *p = place_ranks_open(t, &options, ON_HOST, &setup, err);
    if (!p) return -1;
    struct place_scratch scratch = {0};
    const struct place_job job = {.kernel = registry_find(OP_STEP, "cpu_fused", err),
                                  .forward = registry_find(OP_FORWARD, "cpu_lookup_ahead", err),
                                  .steps = h->steps,
                                  .scratch = &scratch};
    struct step_times *all = must_have(calloc((size_t)h->reps + 1, sizeof *all));
    int status = runner_scratch_open(p, job.kernel, &scratch, err);
    for (int i = -1; status == 0 && i < h->reps; i++) /* the first one warms up */
        status = p->ops->time(p, &job, false, &all[i < 0 ? 0 : i], err);
    qsort(all, (size_t)h->reps, sizeof *all, by_seconds);
    h->times[k] = all[h->reps / 2];
    free(all);
    p->ops->scratch_close(p, &scratch);
    p->ops->close(p);
    return status;
}

static int live(struct transport *t, void *ctx) {
    struct here *h = ctx;
    struct machine machine;
    struct error own = {""}, *err = t->rank ? &own : &h->err;
    if (calibrate(t, 1, &machine, err)) return -1;
    if (t->rank) return ranks_follow(t, err);
    h->machine = machine;
    int status = 0;
    for (int k = 0; status == 0 && k < KINDS; k++) status = time_sharding(h, t, k, err);
    return ranks_dismiss(t, &own) || status ? -1 : 0;
}

static void measured_stages(const struct step_times *t, double stage[COST_STAGES]) {
    stage[COST_LENGTHS] = 0; /* with the ids */
    stage[COST_IDS] = t->exchange[EXCHANGE_IDS].seconds;
    stage[COST_LOOKUP] = t->forward;
    stage[COST_OUTPUT] = t->exchange[EXCHANGE_OUTPUT].seconds;
    stage[COST_GRADIENT] = t->exchange[EXCHANGE_GRADIENT].seconds;
    stage[COST_UPDATE] = t->plan;
    for (int s = 0; s < STAGE_COUNT; s++) stage[COST_UPDATE] += t->stage[s];
}

/* What an iteration of one rank tells of a sharding: its local work against the calibrated speeds. */
struct local {
    double copy, rows, route; /* speed / calibrated speed; of routing, / that of a copy */
    double grouping;          /* seconds of a lookup */
};

static int predict_one(const struct here *h, int k, const struct local *local, int ranks,
                       struct machine *m, struct cost *c, struct error *err) {
    const struct planner_options options = {.ring = 1};
    const int cores = omp_get_num_procs();
    *m = h->machine;
    m->route = m->copy * local->route;
    m->copy *= local->copy;
    m->rows *= local->rows;
    m->gather *= local->rows;
    m->grouping = local->grouping * (ranks > cores ? (double)ranks / cores : 1);
    return planner_cost(shardings[k], m, h->workload->batches, h->index, &options, c, err);
}

/* The local work that makes the prediction of one rank right. */
static int fit(const struct here *h, int k, struct local *local, struct error *err) {
    struct machine m;
    struct cost c;
    double measured[COST_STAGES];
    measured_stages(&h->times[k], measured);
    *local = (struct local){1, 1, 1, 0};
    if (predict_one(h, k, local, 1, &m, &c, err)) return -1;
    local->copy = c.stage[COST_GRADIENT] / measured[COST_GRADIENT];
    local->rows = c.stage[COST_LOOKUP] / measured[COST_LOOKUP];
    local->route = c.stage[COST_IDS] / measured[COST_IDS];
    if (predict_one(h, k, local, 1, &m, &c, err)) return -1;
    const double rest = measured[COST_UPDATE] - c.stage[COST_UPDATE];
    local->grouping = rest > 0 ? rest / (double)h->workload->batches[0].lookups : 0;
    return 0;
}

/* local: [KINDS], fitted on one rank. */
static int predict(const struct here *h, struct local *local, int ranks, struct error *err) {
    for (int k = 0; k < KINDS; k++) {
        struct machine m;
        struct cost c;
        double measured[COST_STAGES];
        if ((ranks == 1 && fit(h, k, &local[k], err)) ||
            predict_one(h, k, &local[k], ranks, &m, &c, err))
            return -1;
        measured_stages(&h->times[k], measured);
        printf("{\"what\": \"here\", \"ranks\": %d, \"cores\": %d, \"sharding\": \"%s\", "
               "\"measured\": %.6g, \"predicted\": %.6g, \"alpha\": %.4g, \"speed\": %.4g, "
               "\"copy\": %.4g, \"rows\": %.4g, \"gather\": %.4g, \"grouping\": %.4g, "
               "\"route\": %.4g",
               ranks, omp_get_num_procs(), shardings[k], h->times[k].seconds, c.seconds,
               m.link[LINK_NODE].alpha, m.link[LINK_NODE].speed, m.copy, m.rows, m.gather,
               m.grouping, m.route);
        print_stages("stages", c.stage);
        print_stages("measured_stages", measured);
        printf("}\n");
    }
    fflush(stdout);
    return 0;
}

static int here(int reps) {
    struct spec_list list;
    struct workload w;
    struct error err;
    const struct spec_overrides none = {0};
    if (spec_parse("here", here_spec, sizeof here_spec - 1, &none, &list, &err) ||
        workload_generate(&list.specs[0], 1, GRAD_REAL, &w, &err))
        return stop(&err);
    struct row_index index = row_index_build(&w.batches[0]);
    struct rule_step *steps = must_have(calloc((size_t)w.num_tables, sizeof *steps));
    for (int32_t t = 0; t < w.num_tables; t++)
        steps[t] = rule_step(rule_default(w.tables[t].rule), 1);
    struct local local[KINDS];
    int status = 0;
    for (int ranks = 1; status == 0 && ranks <= 8; ranks *= 2) {
        struct here h = {.workload = &w, .index = &index, .steps = steps, .reps = reps};
        status = transport_threads(ranks, 1, 0, live, &h);
        if (status || predict(&h, local, ranks, &h.err)) status = stop(&h.err);
    }
    free(steps);
    row_index_free(&index);
    workload_free(&w);
    spec_list_free(&list);
    return status;
}

/* --- a cluster */

/* The tables, all alike, of DLRM-DCNv2 in MLPerf: 26 features, 128 columns, fp16 on the wire; fp32 rows. */
enum { FEATURES = 26, DIM = 128, BAGS = 1024 /* of a rank */, ON_NODE = 8, RANKS_MOST = 16384 };

/* A node of 8 H100, and InfiniBand NDR with a card for each. Speeds that are seen: NVLink 370 GB/s, InfiniBand
 * 48 GB/s of 50 (NVIDIA/nccl-tests issues 212, 267, 290). An MPI message takes 1 to 2 us, a call of NCCL 10 to
 * 30 us. Memory at its nominal 3350 GB/s (the figure of HugeCTR's planner): local work is a lower bound. */
static const struct machine h100 = {.link = {{1e-6, 370e9}, {1.5e-6, 48e9}},
                                    .copy = 3350e9,
                                    .rows = 3350e9,
                                    .gather = 3350e9,
                                    .call = 20e-6,
                                    .memory = (int64_t)80 << 30};

/* Ways on the map: kinds of the suite, and flows of other systems. */
enum way { TABLE, ROW, ROW_ALL, COLUMN, TABLE_ROW, DATA, DATA_DENSE, WAYS };

static const struct {
    const char *name;
    enum sharding_kind kind;
} ways[WAYS] = {[TABLE] = {"table", SHARD_TABLE},
                [ROW] = {"row", SHARD_ROW},
                [ROW_ALL] = {"row, all-gather", SHARD_ROW},
                [COLUMN] = {"column", SHARD_COLUMN},
                [TABLE_ROW] = {"table-row, two hops", SHARD_TABLE_ROW},
                [DATA] = {"data, sparse", SHARD_DATA},
                [DATA_DENSE] = {"data, all-reduce", SHARD_DATA}};

/* What the parts of a table need if all rows are equally likely. */
static struct need *expected_parts(const struct placing *x, enum sharding_kind kind, bool all_rows,
                                   double lookups) {
    const struct table_shape *whole = &x->in->tables[0];
    const int count = kind == SHARD_TABLE ? 1 : kind == SHARD_TABLE_ROW ? x->on_node : x->ranks;
    const bool by_rows = sharding_by_rows(kind);
    const int64_t block = (whole->rows + count - 1) / count;
    struct need *parts = must_have(calloc((size_t)count, sizeof *parts));
    for (int d = 0; d < count; d++) {
        struct table_shape shape = *whole;
        if (by_rows) {
            const int64_t left = whole->rows - d * block;
            shape.rows = left < block ? left : block;
        }
        if (kind == SHARD_COLUMN)
            shape.dim = (int32_t)(sharding_bag(DIM, d + 1, count) - sharding_bag(DIM, d, count));
        if (shape.rows <= 0 || shape.dim <= 0) continue;
        const double share = (double)shape.rows / (double)whole->rows;
        const struct travel travel = {.bags = BAGS,
                                      .lookups = BAGS * lookups * share,
                                      .touching = BAGS * formulas_touch(share, lookups)};
        const double all = travel.lookups * x->ranks;
        parts[d].flow = flow_of(kind, x->in, &x->in->features[0], shape.dim, all_rows, travel);
        placing_part(&parts[d], x, kind, &shape, all,
                     (double)shape.rows * formulas_touch(1 / (double)shape.rows, all));
    }
    return parts;
}

/* Output and gradient of rows over a node: summed in the node, then one copy to each other node, and back (TorchRec's
 * reduce-scatter and all-to-all; for the backward all-to-all and all-gather). */
static double two_hops(const struct machine *m) {
    const double bytes = (double)FEATURES * BAGS * DIM * 2;
    return m->call + m->link[LINK_NODE].alpha * (ON_NODE - 1) +
           bytes * (ON_NODE - 1) / m->link[LINK_NODE].speed + (m->nodes > 1 ? m->call : 0) +
           m->link[LINK_NETWORK].alpha * (m->nodes - 1) +
           bytes * (m->nodes - 1) / m->nodes / m->link[LINK_NETWORK].speed;
}

/* An all-reduce of gradients of all rows: 2 (W-1)/W of them over the slowest link, in 2 log2(W) messages; and a
 * pass over them to clear, to add and to apply. */
static void all_reduce(const struct machine *m, double rows, double lookups, struct cost *c) {
    const double bytes = FEATURES * rows * DIM * 2,
                 link = m->nodes > 1 ? m->link[LINK_NETWORK].speed : m->link[LINK_NODE].speed;
    c->stage[COST_LENGTHS] = c->stage[COST_IDS] = c->stage[COST_OUTPUT] = 0;
    c->stage[COST_GRADIENT] = m->call + 2 * log2(m->ranks) * m->link[LINK_NETWORK].alpha +
                              2 * (m->ranks - 1.0) / m->ranks * bytes / link;
    c->stage[COST_UPDATE] = FEATURES * BAGS * lookups * DIM * 2 / m->gather + 2 * bytes / m->copy +
                            4 * FEATURES * rows * DIM * 4 / m->rows;
}

static struct cost model(enum way way, int ranks, int64_t rows, double lookups) {
    struct machine m = h100;
    m.ranks = ranks;
    m.nodes = ranks / ON_NODE;
    const enum sharding_kind kind = ways[way].kind;
    struct table_shape tables[FEATURES];
    struct feature features[FEATURES];
    struct table_needs needs[FEATURES];
    memset(tables, 0, sizeof tables);
    memset(features, 0, sizeof features);
    memset(needs, 0, sizeof needs);
    for (int t = 0; t < FEATURES; t++) {
        tables[t] =
            (struct table_shape){.rows = rows, .dim = DIM, .rule = RULE_adagrad, .features = 1};
        features[t] = (struct feature){.table = t, .pooling = POOL_SUM, .padding_id = -1};
    }
    const struct batch form = {.num_tables = FEATURES,
                               .num_features = FEATURES,
                               .bags = (int64_t)BAGS * ranks,
                               .tables = tables,
                               .features = features,
                               .id_type = ID_INT32,
                               .grad_type = FP16};
    struct placing x = {.machine = &m,
                        .in = &form,
                        .ring = 1,
                        .ranks = ranks,
                        .nodes = m.nodes,
                        .on_node = ON_NODE,
                        .tables = FEATURES,
                        .needs = needs};
    int kinds[FEATURES];
    int32_t places[FEATURES];
    x.kind = kinds;
    x.place = places;
    x.loads = must_have(calloc((size_t)ranks, sizeof *x.loads));
    struct need *parts = expected_parts(&x, kind, way == ROW_ALL, lookups);
    placing_clear(&x);
    for (int t = 0; t < FEATURES; t++) {
        needs[t].parts[kind] = parts;
        placing_put(&x, t, kind, t % placing_places(&x, (int)kind));
    }
    struct cost c = placing_cost(&x);
    if (way == TABLE_ROW) c.stage[COST_OUTPUT] = c.stage[COST_GRADIENT] = two_hops(&m);
    if (way == DATA_DENSE) all_reduce(&m, (double)rows, lookups, &c);
    c.seconds = 0;
    for (int s = 0; s < COST_STAGES; s++) c.seconds += c.stage[s];
    /* A gradient of all rows lies beside them. */
    if (way == DATA_DENSE) {
        const double lacks =
            x.loads[0].tables + FEATURES * (double)rows * DIM * 2 - (double)m.memory;
        c.lacks = lacks > 0 ? lacks * ranks : 0;
    }
    free(parts);
    free(x.loads);
    return c;
}

static int map(void) {
    static const double lookups[] = {1, 8, 64};
    for (size_t l = 0; l < sizeof lookups / sizeof *lookups; l++)
        for (int ranks = ON_NODE; ranks <= RANKS_MOST; ranks *= 2)
            for (int e = 3; e <= 9; e++)
                for (int way = 0; way < WAYS; way++) {
                    const int64_t rows = (int64_t)pow(10, e);
                    const struct cost c = model((enum way)way, ranks, rows, lookups[l]);
                    printf("{\"what\": \"map\", \"ranks\": %d, \"rows\": %lld, \"lookups\": %g, "
                           "\"sharding\": \"%s\", \"seconds\": %.6g, \"lacks\": %.6g",
                           ranks, (long long)rows, lookups[l], ways[way].name, c.seconds, c.lacks);
                    print_stages("stages", c.stage);
                    printf("}\n");
                }
    return 0;
}

int main(int argc, char **argv) {
    char *end = "";
    const long reps = argc > 2 ? strtol(argv[2], &end, 10) : REPS;
    if (argc == 2 && strcmp(argv[1], "map") == 0) return map();
    if (argc >= 2 && argc <= 3 && strcmp(argv[1], "here") == 0 && *end == 0 && reps >= 1 &&
        reps <= REPS_MOST)
        return here((int)reps);
    fprintf(stderr, "usage: scale here [REPS] | scale map\n");
    return EXIT_USAGE;
}
