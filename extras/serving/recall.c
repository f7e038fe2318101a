/* SPDX-License-Identifier: MIT
 *
 * Threads take queries, and scan the table in blocks that stay in the cache. Products are summed in fp32,
 * in the same order for every table.
 */
#include "extras/serving/recall.h"

#include <omp.h>
#include <stdlib.h>

#include "harness/memory.h"
#include "kernels/rng.h"
#include "extras/library/frozen/row.h"

enum { BLOCK = 128 }; /* rows that are widened at once */

struct near {
    float how;
    int64_t row;
};

static float dot(const float *a, const float *b, int32_t dim) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int32_t d = 0; d < dim; d++) sum += a[d] * b[d];
    return sum;
}

/* Keeps best[count] sorted, nearest first; it has room for k. Rows come in ascending order, so of equals
 * the first stays ahead. */
static int keep(struct near *best, int count, int k, struct near x) {
    if (count == k && !(x.how > best[k - 1].how)) return count;
    int at = count < k ? count : k - 1;
    for (; at > 0 && x.how > best[at - 1].how; at--) best[at] = best[at - 1];
    best[at] = x;
    return count < k ? count + 1 : k;
}

struct block {
    float *row;   /* [BLOCK][dim] */
    float *scale; /* [BLOCK] 1 / norm for the cosine, else 1 */
};

static void widen(const struct frozen *t, int64_t first, int count, enum metric metric,
                  struct block *b) {
    for (int i = 0; i < count; i++) {
        float *row = b->row + (int64_t)i * t->dim;
        frozen_row_get(t->type, frozen_row(t, first + i), t->dim, row);
        const float norm = metric == METRIC_COSINE ? sqrtf(dot(row, row, t->dim)) : 1;
        b->scale[i] = norm > 0 ? 1 / norm : 0;
    }
}

/* The k nearest rows of each query, nearest first: near[queries][k]. vector[queries][dim]; self[q]: the
 * row that does not count. */
static int search(const struct frozen *t, const float *vector, const int64_t *self, int64_t queries,
                  int k, enum metric metric, int64_t *near, struct error *err) {
    const int threads = omp_get_max_threads();
    struct near *best = array_require(queries * k, sizeof *best, "nearest rows", err);
    int *count = best ? calloc((size_t)queries + 1, sizeof *count) : NULL;
    float *room = count ? array_require((int64_t)threads * BLOCK * (t->dim + 1), sizeof *room,
                                        "blocks of rows", err)
                        : NULL;
    if (!best || !count || !room) {
        if (best && !count) fail(err, "out of memory");
        free(best);
        free(count);
        return -1;
    }
#pragma omp parallel num_threads(threads)
    {
        const int64_t thread = omp_get_thread_num(), team = omp_get_num_threads();
        float *mine = room + thread * BLOCK * (t->dim + 1);
        struct block b = {mine, mine + (int64_t)BLOCK * t->dim};
        for (int64_t first = 0; first < t->rows; first += BLOCK) {
            const int rows = (int)(t->rows - first < BLOCK ? t->rows - first : BLOCK);
            widen(t, first, rows, metric, &b);
            for (int64_t q = queries * thread / team; q < queries * (thread + 1) / team; q++)
                for (int i = 0; i < rows; i++) {
                    if (first + i == self[q]) continue;
                    const float how =
                        b.scale[i] * dot(vector + q * t->dim, b.row + i * (int64_t)t->dim, t->dim);
                    count[q] = keep(best + q * k, count[q], k, (struct near){how, first + i});
                }
        }
    }
    for (int64_t i = 0; i < queries * k; i++) near[i] = best[i].row;
    free(room);
    free(count);
    free(best);
    return 0;
}

static int64_t found(const int64_t *wanted, const int64_t *got, int k) {
    int64_t hits = 0;
    for (int i = 0; i < k; i++)
        for (int j = 0; j < k; j++) hits += wanted[i] == got[j];
    return hits;
}

int recall_at(const struct frozen *exact, const struct frozen *made, const int64_t *query,
              int64_t queries, int k, enum metric metric, double *recall, struct error *err) {
    float *vector = array_require(queries * exact->dim, sizeof *vector, "queries", err);
    int64_t *wanted = array_require(queries * k * 2, sizeof *wanted, "neighbours", err), hits = 0;
    for (int64_t q = 0; vector && q < queries; q++)
        frozen_row_get(exact->type, frozen_row(exact, query[q]), exact->dim,
                       vector + q * exact->dim);
    int64_t *got = wanted + queries * k;
    int status = vector && wanted ? 0 : -1;
    if (status == 0) status = search(exact, vector, query, queries, k, metric, wanted, err);
    if (status == 0) status = search(made, vector, query, queries, k, metric, got, err);
    for (int64_t q = 0; status == 0 && q < queries; q++)
        hits += found(wanted + q * k, got + q * k, k);
    *recall = status == 0 ? (double)hits / (double)(queries * k) : 0;
    free(vector);
    free(wanted);
    return status;
}

void recall_sample(int64_t rows, int64_t count, uint64_t seed, int64_t *query) {
    for (int64_t q = 0; q < count; q++) {
        const int64_t begin = rows * q / count, end = rows * (q + 1) / count;
        query[q] = begin + (int64_t)(rng_u64(seed, (uint64_t)q) % (uint64_t)(end - begin));
    }
}
