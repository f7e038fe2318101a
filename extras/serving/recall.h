/* SPDX-License-Identifier: MIT
 *
 * Do the nearest neighbours of rows stay the same when a table is rounded? recall@k, as in the benchmarks
 * of nearest-neighbour search (Aumueller et al. 2017, "ANN-Benchmarks"): of the k rows that are nearest
 * in the exact table, the share that is among the k nearest in the other table. The query is a row of
 * the exact table, and is not its own neighbour. The search is exact, over all rows; of equally near rows
 * the one with the lower number is nearer.
 */
#pragma once

#include "extras/library/frozen/frozen.h"

enum metric { METRIC_INNER_PRODUCT, METRIC_COSINE, METRICS };
enum { NEIGHBOURS_MAX = 1000 };

/* recall@k over these query rows; a zero row has cosine 0 with every row. The tables have the same rows
 * and dim, and k < rows. -1: out of memory, with err. */
int recall_at(const struct frozen *exact, const struct frozen *made, const int64_t *query,
              int64_t queries, int k, enum metric metric, double *recall, struct error *err);

/* Query rows, one at a random place in each of `count` equal parts of the table, count <= rows:
 * query[count], ascending. */
void recall_sample(int64_t rows, int64_t count, uint64_t seed, int64_t *query);
