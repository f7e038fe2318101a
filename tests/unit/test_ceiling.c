/* SPDX-License-Identifier: MIT
 *
 * The memory on which the host ceilings are measured: gradient rows of a table's lookups, and rows
 * of the table, which keep their bits.
 */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "harness/measure/ceiling.h"
#include "harness/workload/tables.h"
#include "kernels/shape.h"

#include "tests/support/generate.h"

/* Two features read table 0; table 1 has one row, which is padding. */
static const char pooled[] = "workload w\nbatch 40\nfeatures 2\npadding 0\nids zipf\nalpha 1\n"
                             "table rows 300 dim 23 length uniform 0 3\n"
                             "table rows 1 dim 4 length fixed 1\n";
static const char sequence[] = "workload w\nbatch 40\npooling none\nids uniform\n"
                               "table rows 9 dim 3 length fixed 2\n"
                               "table rows 300 dim 70 length uniform 0 9\n";

/* Marks and counts the starts of the gradient rows that lookups of table t read. */
static int mark_rows(const struct batch *in, int32_t t, bool *begins) {
    int count = 0;
    for (int64_t q = 0; q < in->flat_bags; q++) {
        const struct feature *f = feature_at_bag(in, q);
        for (int64_t i = in->offsets[q]; i < in->offsets[q + 1]; i++) {
            if (f->table != t || batch_id(in, i) == f->padding_id) continue;
            int64_t row = f->pooling == POOL_NONE ? i - f->first_lookup : q - f->first_bag;
            bool *at = &begins[f->grad_offset + row * f->grad_stride];
            count += !*at;
            *at = true;
        }
    }
    return count;
}

static const char large[] = "workload w\nbatch 40\nids uniform\n"
                            "table rows 60000 dim 23 length uniform 0 3\n";

struct ceiling_case {
    const char *test, *text;
    int32_t table;
    int threads, least; /* gradient rows that its lookups read */
    bool ascending;     /* rows are visited in ascending order, too */
};

static const struct ceiling_case cases[] = {
    {"pooled bags", pooled, 0, 2, 21},
    {"a sequence, one thread", sequence, 1, 1, 21},
    {"padding alone: nothing to gather", pooled, 1, 2, 0},
    {"a large table, in two orders", large, 0, 2, 21, true},
};

/* The probe gathers every row that lookups read, and no other. */
static void assert_gathers(const struct batch *in, const struct ceiling_case *c,
                           const struct ceiling_probe *p) {
    const int64_t floats = in->grad_elements;
    bool *read = calloc((size_t)floats, sizeof *read),
         *drawn = calloc((size_t)floats, sizeof *drawn);
    const int rows = mark_rows(in, c->table, read);
    int seen = 0;
    assert_true(c->least ? rows >= c->least : rows == 0);
    for (int64_t i = 0; i < p->num_gathered; i++) {
        assert_in_range(p->gather[i], 0, floats - 1);
        assert_true(read[p->gather[i]]);
        seen += !drawn[p->gather[i]];
        drawn[p->gather[i]] = true;
    }
    assert_int_equal(seen, rows);
    free(read);
    free(drawn);
}

static void assert_ascends(const struct ceiling_probe *p, int64_t rows, bool ascending) {
    assert_int_equal(p->ascending != NULL, ascending);
    for (int64_t i = 0; i < p->num_rows && ascending; i++)
        assert_in_range(p->ascending[i], i ? p->ascending[i - 1] : 0, rows - 1);
}

static bool is_speed(double x) {
    return isfinite(x) && x > 0;
}

static void measures_and_leaves_the_rows(void **state) {
    const struct ceiling_case *c = *state;
    struct workload w = generate(c->text, 1, GRAD_EXACT);
    struct row_index index = row_index_build(&w.batches[0]);
    struct table_set tables;
    struct ceiling_probe p;
    struct error err = {""};
    if (tables_create(&tables, w.tables, w.num_tables, 1, &err)) fail_msg("%s", err.text);
    const struct buffer *buffer = &tables.buffers[c->table * TABLE_ARRAYS + TABLE_WEIGHT];
    const struct array *weight = &tables.tables[c->table].weight;
    void *before = malloc(buffer->bytes);
    memcpy(before, weight->data, buffer->bytes);
    if (ceiling_open(&p, OP_STEP, &w.batches[0], &index, c->table, weight, c->threads, &err))
        fail_msg("%s", err.text);
    assert_gathers(&w.batches[0], c, &p);
    assert_ascends(&p, w.tables[c->table].rows, c->ascending);
    const struct ceiling is = ceiling_measure(&p);
    assert_true(is_speed(is.copy_gbs) && is_speed(is.rmw_gbs) && is_speed(is.latency_ns));
    assert_true(c->least ? is_speed(is.gather_gbs) : is.gather_gbs == 0);
    assert_true(c->threads == 1 ? is.pingpong_ns < 0 : is.pingpong_ns > 0);
    assert_true(c->ascending ? is.rmw_gbs >= is.random_gbs : is_speed(is.random_gbs));
    const double lines = is.random_gbs / 2 * is.latency_ns / 64 / c->threads;
    assert_true(fabs(ceiling_lines_in_flight(&is, c->threads) / lines - 1) < 1e-9);
    assert_memory_equal(weight->data, before, buffer->bytes);
    assert_true(tables_intact(&tables));
    ceiling_close(&p);
    free(before);
    tables_free(&tables);
    row_index_free(&index);
    workload_free(&w);
}

TESTS(ceiling) {
    setenv("EMBFUSE_CACHE_MIB", "1", 1); /* otherwise it visits twice the last-level caches */
    ADD_CASES(cases, measures_and_leaves_the_rows);
    return run_listed("ceiling");
}
