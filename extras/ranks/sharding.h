/* SPDX-License-Identifier: MIT
 *
 * Each table is cut into shards, and each shard lies on one rank. The
 * words are TorchRec's (table-wise, row-wise ...; torchrec/distributed/types.py).
 *
 *   table       the whole table on one rank
 *   row         blocks of ceil(rows/ranks) rows; late ranks may have fewer rows, or none
 *   row-modulo  row r on rank r % ranks
 *   column      blocks of columns; the same rows on every rank. For rules on single elements
 *   table-row   blocks of rows over the ranks of one node
 *   data        every rank has the whole table, and applies the gradients of all ranks; those are sent as
 *               they are, as with a sparse gradient in PyTorch's DistributedDataParallel
 *   data-dense  the same with dense gradients, which the ranks add up: extras/ranks/dense.h
 *
 * Bags are cut into blocks: rank s has bags sharding_bag(s) .. sharding_bag(s+1)-1 of each feature.
 */
#pragma once

#include "kernels/kernel.h"
#include "harness/error.h"

enum sharding_kind {
    SHARD_TABLE,
    SHARD_ROW,
    SHARD_ROW_MODULO,
    SHARD_COLUMN,
    SHARD_TABLE_ROW,
    SHARD_DATA,
    SHARD_DATA_DENSE,
    SHARDINGS
};

extern const char *const sharding_names[SHARDINGS];

/* Rows row, row + 1 + row_skip, ... and columns column, column + 1, ... of a table. */
struct shard {
    int32_t table;
    int rank;
    int64_t row, row_skip, rows;
    int32_t column, columns;
};

struct row_blocks {
    int64_t rows; /* of a block; the first one is on rank `first` */
    int first;
};

struct sharding {
    int ranks, nodes;
    int32_t num_tables;
    enum sharding_kind *kind; /* [num_tables] */
    int32_t count;
    struct shard *shards;      /* [count], by rank, then table */
    int32_t *first;            /* [ranks + 1] the first shard of each rank */
    int32_t *part;             /* [num_tables][ranks] the shard of a table on a rank, or -1 */
    struct row_blocks *blocks; /* [num_tables] of tables that are cut into blocks of rows */
};

/* text: one word for all tables, or a word for each, separated by commas. table@2 lies on rank 2, table-row@1 on node
 * 1. Other tables of these kinds are placed largest first, each on the rank (node) with the fewest bytes so far.
 * extras/ranks/plan.py writes such words. */
int sharding_make(struct sharding *out, const char *text, const struct table_shape *shapes,
                  int32_t num_tables, int ranks, int nodes, struct error *err);
void sharding_free(struct sharding *s);

/* Copies a sharding with the shards of some tables only. keep: [num_tables] */
void sharding_select(const struct sharding *from, const bool *keep, struct sharding *out);

/* NULL, or why a table cannot be cut in this way for a step: column, and the step needs more of a row than single
 * elements, whatever their columns. Its rule sums over the row or has states of the row, its gradients are adjusted, or
 * its rounding draws by the column. */
const char *sharding_refuses(enum sharding_kind kind, const struct table_shape *shape);

/* The shape of a shard, as a table of its own rank. */
struct table_shape sharding_shape(const struct sharding *s, const struct shard *part,
                                  const struct table_shape *shapes);

/* First bag of a rank if `bags` bags are split evenly; rank = ranks gives `bags`. */
static inline int64_t sharding_bag(int64_t bags, int rank, int ranks) {
    return bags * rank / ranks;
}

/* The number of a row in a shard; -1: it lies elsewhere. */
static inline int64_t shard_row(const struct shard *s, int64_t row) {
    const int64_t behind = row - s->row;
    if (behind < 0 || (s->row_skip && behind % (1 + s->row_skip))) return -1;
    const int64_t local = behind / (1 + s->row_skip);
    return local < s->rows ? local : -1;
}

/* The rank that has a row of a table that is cut by rows. */
static inline int sharding_owner(const struct sharding *s, int32_t table, int64_t row) {
    const struct row_blocks *b = &s->blocks[table];
    return s->kind[table] == SHARD_ROW_MODULO ? (int)(row % s->ranks)
                                              : b->first + (int)(row / b->rows);
}

/* True if every rank has the whole table. Then its forward looks up own bags. */
static inline bool sharding_copies(enum sharding_kind kind) {
    return kind == SHARD_DATA || kind == SHARD_DATA_DENSE;
}

/* True if a rank owns some of the rows, so that it needs a part of the lookups. */
static inline bool sharding_by_rows(enum sharding_kind kind) {
    return kind == SHARD_ROW || kind == SHARD_ROW_MODULO || kind == SHARD_TABLE_ROW;
}
