/* SPDX-License-Identifier: MIT
 *
 * Iterations on 8 to 16,384 ranks of a cluster, only modelled by extras/ranks/cost.h, with public figures of its links. Prints
 * lines of JSON.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "extras/ranks/placing.h"

static void print_stages(const char *name, const double stage[COST_STAGES]) {
    printf(", \"%s\": {", name);
    for (int s = 0; s < COST_STAGES; s++)
        printf("%s\"%s\": %.6g", s ? ", " : "", cost_stage_names[s], stage[s]);
    printf("}");
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
        const double all = travel.lookups * x->ranks, rows = (double)shape.rows;
        parts[d].flow = flow_of(kind, x->in, &x->in->features[0], shape.dim, all_rows, travel);
        placing_part(&parts[d], x, kind, &shape, all, rows * formulas_touch(1 / rows, all),
                     rows * formulas_touch(1 / rows, kind == SHARD_DATA ? travel.lookups : all));
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
    c->stage[COST_LENGTHS] = c->stage[COST_IDS] = 0;
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

int main(void) {
    static const double lookups[] = {1, 8, 64};
    for (size_t l = 0; l < sizeof lookups / sizeof *lookups; l++)
        for (int ranks = ON_NODE; ranks <= RANKS_MOST; ranks *= 2)
            for (int e = 3; e <= 9; e++)
                for (int way = 0; way < WAYS; way++) {
                    const int64_t rows = (int64_t)pow(10, e);
                    const struct cost c = model((enum way)way, ranks, rows, lookups[l]);
                    printf("{\"ranks\": %d, \"rows\": %lld, \"lookups\": %g, "
                           "\"sharding\": \"%s\", \"seconds\": %.6g, \"lacks\": %.6g",
                           ranks, (long long)rows, lookups[l], ways[way].name, c.seconds, c.lacks);
                    print_stages("stages", c.stage);
                    printf("}\n");
                }
    return 0;
}
