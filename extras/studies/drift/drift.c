/* SPDX-License-Identifier: MIT
 *
 * How far variants of a step drift from the step of the suite, over many steps with the same ids and gradients:
 *
 *   one_by_one       one step for each lookup, not one for the sum of a row's gradients
 *   dense            rows without lookups take a step with a gradient of 0
 *   WEIGHTS/MOMENTA  tables of these types, with either rounding
 *
 * Prints a line of JSON for each rule, variant and number of steps: the RMS distance of the weights from
 * those of the suite's step in fp32, over the RMS distance that the latter have moved. Only the rows that some
 * batch looks up count, except for `dense`. Serial code for a row, rule_apply(), takes all steps: every
 * kernel gives its bits. Usage: drift [STEPS]
 */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/row_index.h"
#include "harness/workload/spec.h"
#include "harness/workload/tables.h"
#include "harness/workload/workload.h"

enum { RING = 8, STEPS = 1000, ROWS = 2000, DIM = 16 };

static const char text[] =
    "workload drift\nrows 2000\ndim 16\nbatch 128\nlength uniform 1 9\nids zipf\nalpha 1.05\n";

struct variant {
    const char *name;
    bool one_by_one, dense;
    enum dtype weight, momentum;
    enum rounding rounding;
};

/* The first is what the others are compared with. */
static const struct variant variants[] = {
    {"reference", false, false, FP32, FP32, ROUND_NEAREST},
    {"one_by_one", true, false, FP32, FP32, ROUND_NEAREST},
    {"dense", false, true, FP32, FP32, ROUND_NEAREST},
    {"bf16/fp32 nearest", false, false, BF16, FP32, ROUND_NEAREST},
    {"bf16/fp32 stochastic", false, false, BF16, FP32, ROUND_STOCHASTIC},
    {"fp16/fp32 nearest", false, false, FP16, FP32, ROUND_NEAREST},
    {"fp16/fp32 stochastic", false, false, FP16, FP32, ROUND_STOCHASTIC},
    {"fp8/fp32 nearest", false, false, FP8, FP32, ROUND_NEAREST},
    {"fp8/fp32 stochastic", false, false, FP8, FP32, ROUND_STOCHASTIC},
    {"fp32/bf16 nearest", false, false, FP32, BF16, ROUND_NEAREST},
    {"fp32/bf16 stochastic", false, false, FP32, BF16, ROUND_STOCHASTIC},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

/* One table in floats: [rows][width] of each array. */
struct model {
    struct table_shape shape;
    struct rule rule;
    float *array[TABLE_ARRAYS];
};

static void *must(void *p) {
    if (!p) abort();
    return p;
}

static struct row_memory row_of(const struct model *m, int64_t row) {
    struct row_memory r;
    for (int a = 0; a < TABLE_ARRAYS; a++)
        r.array[a] = m->array[a] + row * table_array_width(&m->shape, a);
    return r;
}

/* Weights in [-1/2, 1/2), multiples of 1/16, which all types hold; states as in a new table. */
static struct model model_open(const struct variant *v, enum rule_kind kind, int64_t rows) {
    struct model m = {.shape = {.rows = rows,
                                .dim = DIM,
                                .rule = kind,
                                .weight_type = v->weight,
                                .momentum_type = v->momentum,
                                .rounding = v->rounding,
                                .rounding_key = rng_key(42, 0)},
                      .rule = rule_default(kind)};
    const struct rule_info info = rule_info(kind);
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t width = table_array_width(&m.shape, a);
        m.array[a] = must(malloc((size_t)(rows * width + 1) * sizeof **m.array));
        for (int64_t i = 0; i < rows * width; i++)
            m.array[a][i] =
                a == TABLE_WEIGHT      ? (float)((int)(rng_u32(1, (uint32_t)i) >> 28) - 8) / 16
                : a == TABLE_ROW_STATE ? rule_initial(&m.rule, &info.row[i % width])
                                       : rule_initial(&m.rule, &info.elem[a - TABLE_ELEM]);
    }
    for (int64_t row = 0; row < rows; row++) {
        const struct row_memory r = row_of(&m, row);
        row_round(&m.shape, 0, row, &r);
    }
    return m;
}

static void model_close(struct model *m) {
    for (int a = 0; a < TABLE_ARRAYS; a++) free(m->array[a]);
}

static void update(const struct model *m, const struct rule_step *step, int64_t row, float *g) {
    const struct row_memory r = row_of(m, row);
    rule_apply(step, &r, DIM, g);
    row_round(&m->shape, step->number, row, &r);
}

static void step(const struct model *m, const struct variant *v, const struct batch *in,
                 const struct row_index *index, int64_t t) {
    const struct rule_step step = rule_step(m->rule, t);
    int64_t run = 0;
    for (int64_t row = 0; row < m->shape.rows; row++) {
        const struct row_run *r = &index->run[run];
        float sum[DIM] = {0};
        if (run == index->rows || r->row != row) {
            if (v->dense) update(m, &step, row, sum);
            continue;
        }
        for (int64_t k = r->first; k < r[1].first; k++) {
            const int64_t at =
                in->features[0].grad_offset + index->lookup[k].bag * in->features[0].grad_stride;
            for (int d = 0; d < DIM; d++)
                sum[d] = batch_grad(in, at + d) + (v->one_by_one ? 0 : sum[d]);
            if (v->one_by_one) update(m, &step, row, sum);
        }
        if (!v->one_by_one) update(m, &step, row, sum);
        run++;
    }
}

/* sqrt(sum (a-b)^2) over the weights of rows that count. */
static double distance(const struct model *a, const float *b, const bool *counts) {
    double squares = 0;
    for (int64_t i = 0; i < a->shape.rows * DIM; i++) {
        const double off = (double)a->array[TABLE_WEIGHT][i] - b[i];
        if (counts[i / DIM]) squares += off * off;
    }
    return sqrt(squares);
}

static bool is_shown(int64_t t, int64_t steps) {
    static const int64_t shown[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000};
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
        if (t == shown[i]) return true;
    return t == steps;
}

/* Whether the variant differs from the reference for this rule. */
static bool concerns(const struct variant *v, enum rule_kind kind) {
    const struct rule rule = rule_default(kind);
    return !(v->momentum != FP32 && !rule_momenta(kind)) && !(v->dense && rule_keeps_idle(&rule));
}

static void follow(const struct workload *w, const struct row_index *index, const bool *looked_up,
                   enum rule_kind kind, int64_t steps) {
    const int64_t rows = w->tables[0].rows;
    struct model m[VARIANTS];
    bool all[ROWS];
    memset(all, true, sizeof all);
    for (int v = 0; v < VARIANTS; v++) m[v] = model_open(&variants[v], kind, rows);
    float *start = must(malloc((size_t)(rows * DIM) * sizeof *start));
    memcpy(start, m[0].array[TABLE_WEIGHT], (size_t)(rows * DIM) * sizeof *start);
    for (int64_t t = 1; t <= steps; t++) {
        const int k = (int)((t - 1) % w->ring);
        for (int v = 0; v < VARIANTS; v++)
            if (concerns(&variants[v], kind))
                step(&m[v], &variants[v], &w->batches[k], &index[k], t);
        for (int v = 1; v < VARIANTS && is_shown(t, steps); v++) {
            if (!concerns(&variants[v], kind)) continue;
            const bool *counts = variants[v].dense ? all : looked_up;
            const double drift =
                distance(&m[v], m[0].array[TABLE_WEIGHT], counts) / distance(&m[0], start, counts);
#pragma omp critical(drift_output)
            printf(
                "{\"rule\": \"%s\", \"variant\": \"%s\", \"steps\": %lld, \"drift\": %s%.6g%s}\n",
                rule_info(kind).name, variants[v].name, (long long)t, isfinite(drift) ? "" : "\"",
                drift, isfinite(drift) ? "" : "\"");
        }
    }
    for (int v = 0; v < VARIANTS; v++) model_close(&m[v]);
    free(start);
}

int main(int argc, char **argv) {
    char *end = NULL;
    const long steps = argc > 1 ? strtol(argv[1], &end, 10) : STEPS;
    struct spec_list list;
    struct workload w;
    struct error err;
    if (argc > 2 || steps < 1 || steps > 1000000 || (end && *end)) {
        fprintf(stderr, "usage: drift [STEPS], 1 to 1000000\n");
        return 1;
    }
    if (spec_parse("drift", text, strlen(text), NULL, &list, &err) ||
        workload_generate(&list.specs[0], RING, GRAD_REAL, &w, &err)) {
        fprintf(stderr, "drift: %s\n", err.text);
        return 1;
    }
    struct row_index index[RING];
    bool looked_up[ROWS] = {false};
    for (int k = 0; k < w.ring; k++) {
        index[k] = row_index_build(&w.batches[k]);
        for (int64_t u = 0; u < index[k].rows; u++) looked_up[index[k].run[u].row] = true;
    }
#pragma omp parallel for schedule(dynamic)
    for (int kind = 0; kind < RULE_COUNT; kind++)
        follow(&w, index, looked_up, (enum rule_kind)kind, steps);
    for (int k = 0; k < w.ring; k++) row_index_free(&index[k]);
    workload_free(&w);
    spec_list_free(&list);
    return 0;
}
