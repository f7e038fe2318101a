/* SPDX-License-Identifier: MIT
 *
 * Tables in files whose rows are known after any number of steps: of a step come its rows, and their contents.
 */
#pragma once

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/rng.h"
#include "tests/support/batch_builder.h"
#include "tests/support/kernel_tests.h"
#include "tests/library/state_case.h"
#include "tiers/row_file.h"

enum { TABLES = 2, ROWS = 1500, SEED = 5, TOUCHED = 12 };

/* A test may say fewer rows. */
static struct table_shape shapes[TABLES] = {
    {.rows = ROWS, .dim = 16, .rule = RULE_adam, .weight_type = BF16, .momentum_type = FP32},
    {.rows = 300,
     .dim = 130,
     .rule = RULE_rowwise_adagrad,
     .weight_type = FP32,
     .row_state = ROW_STATE_BESIDE}};

struct disk {
    const char *name;
    struct work_path path;
    struct store_setup setup;
    struct row_file *file;
    bool puts; /* the last step has begun to store rows, and did not end */
    char *records;
};

static inline void disk_begin(struct disk *s, const char *name) {
    *s = (struct disk){.path = state_no_folder(name), .name = name};
    s->setup = (struct store_setup){.directory = s->path.text,
                                    .shapes = shapes,
                                    .num_tables = TABLES,
                                    .seed = SEED,
                                    .depth = 8};
    s->records = must_have(aligned_alloc(4096, (size_t)ROWS * 4096));
}

static inline void disk_open(struct disk *s) {
    struct error err;
    s->file = row_file_open(&s->setup, &err);
    if (!s->file) fail_msg("%s", err.text);
}

static inline void disk_close(struct disk *s) {
    row_file_close(s->file);
    s->file = NULL;
}

static inline void disk_end(struct disk *s) {
    disk_close(s);
    state_no_folder(s->name);
    free(s->records);
}

/* --- what rows should be: initial values, or those of the last step that has changed them */

static inline void pattern(char *record, int64_t bytes, int32_t table, int64_t row, int64_t step) {
    for (int64_t i = 0; i < bytes; i++)
        record[i] = (char)rng_key(rng_key((uint64_t)step, (uint64_t)(table * ROWS + row)),
                                  (uint64_t)(i / 7));
}

static inline int64_t record_bytes(int32_t table) {
    int64_t bytes = 0;
    for (int a = 0; a < TABLE_ARRAYS; a++) bytes += table_memory_stride(&shapes[table], a);
    return bytes;
}

/* Distinct rows of a step. */
static inline int64_t rows_of(int64_t step, int32_t table, int64_t rows[TOUCHED]) {
    const int64_t all = shapes[table].rows,
                  first = (int64_t)(rng_key(77 + (uint64_t)table, (uint64_t)step) % (uint64_t)all);
    for (int64_t i = 0; i < TOUCHED; i++) rows[i] = (first + i * i * 3) % all;
    for (int64_t i = 0; i < TOUCHED; i++)
        for (int64_t k = 0; k < i; k++)
            if (rows[i] == rows[k]) return i;
    return TOUCHED;
}

static inline int take_step(struct disk *s, int64_t step, struct error *err) {
    for (int32_t t = 0; t < TABLES; t++) {
        int64_t rows[TOUCHED];
        const int64_t count = rows_of(step, t, rows),
                      stride = record_of(&shapes[t], RECORD_BLOCK).bytes;
        /* Every third step stores rows that stayed in memory. */
        if (step % 3 && row_file_fetch(s->file, t, rows, count, s->records, err)) return -1;
        memset(s->records, 0, (size_t)(count * stride));
        for (int64_t i = 0; i < count; i++)
            pattern(s->records + i * stride, record_bytes(t), t, rows[i], step);
        s->puts = true;
        if (row_file_put(s->file, t, rows, count, s->records, err)) return -1;
        s->puts = false;
    }
    return 0;
}

/* All rows of all tables are those after so many steps. */
static inline void expect_steps(struct disk *s, int64_t steps, const char *what) {
    struct error err;
    struct table_set initial;
    if (tables_create(&initial, shapes, TABLES, SEED, &err)) fail_msg("%s", err.text);
    for (int32_t t = 0; t < TABLES; t++) {
        int64_t last[ROWS] = {0}, all[ROWS];
        const struct record layout = record_of(&shapes[t], RECORD_BLOCK);
        const int64_t stride = layout.bytes;
        char *want = must_have(calloc(1, (size_t)stride));
        for (int64_t step = 1; step <= steps; step++) {
            int64_t rows[TOUCHED];
            const int64_t count = rows_of(step, t, rows);
            for (int64_t i = 0; i < count; i++) last[rows[i]] = step;
        }
        for (int64_t r = 0; r < shapes[t].rows; r++) all[r] = r;
        if (row_file_fetch(s->file, t, all, shapes[t].rows, s->records, &err))
            fail_msg("%s: %s", what, err.text);
        for (int64_t r = 0; r < shapes[t].rows; r++) {
            memset(want, 0, (size_t)stride);
            if (last[r])
                pattern(want, record_bytes(t), t, r, last[r]);
            else
                record_pack(&layout, want, &initial.tables[t], r);
            if (memcmp(want, s->records + r * stride, (size_t)stride))
                fail_msg("%s: table %d, row %d is not as after %d steps", what, t, (int)r,
                         (int)steps);
        }
        free(want);
    }
    tables_free(&initial);
}
