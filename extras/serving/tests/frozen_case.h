/* SPDX-License-Identifier: MIT
 *
 * Frozen tables for tests: hostile rows in memory, and the same rows in files of a type.
 */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "kernels/rng.h"
#include "extras/library/frozen/row.h"
#include "tests/support/work_files.h"

enum { ROWS = 60, DIM_MOST = 130 };
static const int32_t dims[] = {1, 2, 3, 7, 8, 16, 17, 31, 64, 100, DIM_MOST};
enum { DIMS = sizeof dims / sizeof *dims };

static inline float uniform(int64_t row, int32_t d) {
    return (float)(2 * rng_unit(7, (uint64_t)(row * DIM_MOST + d)) - 1);
}

/* A row of each kind; all fit into all types but where a test says so. */
static inline float element(int64_t row, int32_t d) {
    const float x = uniform(row, d);
    switch (row % 12) {
    case 0: return 0;
    case 1: return 0.37f;         /* constant */
    case 2: return x * 0x1p-20f;  /* below FBGEMM's 1e-8 of the range, and below fp8 */
    case 3: return x * 0x1p-130f; /* subnormal in fp32 */
    case 4: return x * 300;
    case 5: return 100 + x * 1e-4f;     /* a narrow range far from 0 */
    case 6: return d == 0 ? 40 : x / 8; /* an outlier */
    case 7: return -fabsf(x);           /* one sign */
    case 8: return d % 2 ? 0.0f : -0.0f;
    case 9: return d == 0 ? 1.4e-45f : 0;               /* the least subnormal */
    case 10: return -0.25f * (float)(row % 5) + x / 32; /* a cluster */
    default: return x;
    }
}

/* A table in memory. */
struct memory_table {
    float *element;
    struct frozen frozen;
};

static inline struct memory_table table_of(int64_t rows, int32_t dim) {
    struct memory_table t = {malloc((size_t)(rows * dim) * sizeof(float)), {0}};
    for (int64_t i = 0; i < rows * dim; i++) t.element[i] = element(i / dim, (int32_t)(i % dim));
    t.frozen = (struct frozen){.type = FP32,
                               .rows = rows,
                               .dim = dim,
                               .row_bytes = 4 * dim,
                               .data = (const char *)t.element};
    return t;
}

struct names {
    struct work_path rows, text;
};

static inline struct names names_of(const char *name) {
    char rows[80], text[80];
    snprintf(rows, sizeof rows, "%s.rows", name);
    snprintf(text, sizeof text, "%s.table", name);
    return (struct names){work_path("frozen", rows), work_path("frozen", text)};
}

/* Writes and maps a table of that type. Ends the program if that fails. */
static inline struct frozen written(const struct frozen *from, int type, const struct names *n) {
    struct frozen made;
    struct error err = {""};
    if (frozen_write(from, type, n->rows.text, n->text.text, &err) ||
        frozen_open_raw(n->rows.text, n->text.text, FROZEN_VERIFY, &made, &err)) {
        fprintf(stderr, "%s: %s\n", frozen_type_name(type), err.text);
        exit(1);
    }
    return made;
}
