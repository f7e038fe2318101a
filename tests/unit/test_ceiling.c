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

#include "tests/support/generate.h"

/* Two features read table 0; table 1 has one row, which is padding. */
static const char pooled[] = "workload w\nbatch 40\nfeatures 2\npadding 0\nids zipf\nalpha 1\n"
                             "table rows 300 dim 23 length uniform 0 3\n"
                             "table rows 1 dim 4 length fixed 1\n";
static const char sequence[] = "workload w\nbatch 40\npooling none\nids uniform\n"
                               "table rows 9 dim 3 length fixed 2\n"
                               "table rows 300 dim 70 length uniform 0 9\n";

struct bench {
    struct workload w;
    struct row_index index;
    struct table_set tables;
};

static struct bench bench_open(const char *text) {
    struct bench b = {.w = generate(text, 1, GRAD_EXACT)};
    struct error err = {""};
    b.index = row_index_build(&b.w.batches[0]);
    if (tables_create(&b.tables, b.w.tables, b.w.num_tables, 1, &err)) fail_msg("%s", err.text);
    return b;
}

static void bench_close(struct bench *b) {
    tables_free(&b->tables);
    row_index_free(&b->index);
    workload_free(&b->w);
}

static struct ceiling_probe probe_open(struct bench *b, int32_t t, int threads) {
    struct ceiling_probe p;
    struct error err = {""};
    if (ceiling_open(&p, OP_STEP, &b->w.batches[0], &b->index, t, &b->tables.tables[t].weight,
                     threads, &err))
        fail_msg("%s", err.text);
    return p;
}

/* Marks and counts the starts of the gradient rows that lookups of table t read. */
static int mark_rows(const struct bench *b, int32_t t, bool *begins) {
    const struct batch *in = &b->w.batches[0];
    int count = 0;
    for (int64_t q = 0; q < in->num_features * in->bags; q++) {
        const struct feature *f = &in->features[q / in->bags];
        for (int64_t i = in->offsets[q]; i < in->offsets[q + 1]; i++) {
            if (f->table != t || batch_id(in, i) == f->padding_id) continue;
            int64_t first = q / in->bags * in->bags;
            int64_t row = f->pooling == POOL_NONE ? i - in->offsets[first] : q - first;
            bool *at = &begins[f->grad_offset + row * f->grad_stride];
            count += !*at;
            *at = true;
        }
    }
    return count;
}

static void gathers_rows_of_lookups(void **state) {
    struct bench b = bench_open(*state);
    int32_t t = *state == (void *)pooled ? 0 : 1;
    struct ceiling_probe p = probe_open(&b, t, 2);
    int64_t floats = b.w.batches[0].grad_elements;
    bool *read = calloc((size_t)floats, sizeof *read),
         *drawn = calloc((size_t)floats, sizeof *drawn);
    int rows = mark_rows(&b, t, read), seen = 0;
    assert_true(rows > 20);
    for (int64_t i = 0; i < p.num_gathered; i++) {
        assert_in_range(p.gather[i], 0, floats - 1);
        assert_true(read[p.gather[i]]);
        seen += !drawn[p.gather[i]];
        drawn[p.gather[i]] = true;
    }
    assert_int_equal(seen, rows);
    free(read);
    free(drawn);
    ceiling_close(&p);
    bench_close(&b);
}

static void measures_and_leaves_the_rows(void **state) {
    (void)state;
    for (int threads = 1; threads <= 2; threads++) {
        struct bench b = bench_open(sequence);
        size_t bytes = b.tables.buffers[TABLE_ARRAYS + TABLE_WEIGHT].bytes;
        float *before = malloc(bytes);
        memcpy(before, b.tables.tables[1].weight.data, bytes);
        struct ceiling_probe p = probe_open(&b, 1, threads);
        struct ceiling c = ceiling_measure(&p);
        assert_true(isfinite(c.copy_gbs) && c.copy_gbs > 0);
        assert_true(isfinite(c.rmw_gbs) && c.rmw_gbs > 0);
        assert_true(isfinite(c.gather_gbs) && c.gather_gbs > 0);
        assert_true(isfinite(c.latency_ns) && c.latency_ns > 0);
        const double lines = c.rmw_gbs / 2 * c.latency_ns / 64 / threads;
        assert_true(fabs(ceiling_lines_in_flight(&c, threads) / lines - 1) < 1e-9);
        for (int k = 0; k < CEILING_HINTS; k++) { /* rows of 280 bytes, 2 to 16 KiB ahead */
            const struct ceiling_hint hint[] = {p.rmw_hint[k], p.gather_hint[k]};
            for (int i = 0; i < 2; i++)
                if (hint[i].into == CEILING_NOWHERE)
                    assert_int_equal(hint[i].ahead, 0);
                else
                    assert_in_range(hint[i].ahead, 7, 58);
        }
        assert_true(threads == 1 ? c.pingpong_ns < 0 : c.pingpong_ns > 0);
        assert_memory_equal(b.tables.tables[1].weight.data, before, bytes);
        assert_true(tables_intact(&b.tables));
        ceiling_close(&p);
        free(before);
        bench_close(&b);
    }
}

static void nothing_to_gather(void **state) {
    struct bench b = bench_open(pooled);
    struct ceiling_probe p = probe_open(&b, 1, 2);
    (void)state;
    assert_int_equal(p.num_gathered, 0);
    assert_true(ceiling_measure(&p).gather_gbs == 0);
    ceiling_close(&p);
    bench_close(&b);
}

TESTS(ceiling) {
    const struct CMUnitTest tests[] = {
        case_test("gathers rows of lookups, pooled", gathers_rows_of_lookups, pooled),
        case_test("gathers rows of lookups, a sequence", gathers_rows_of_lookups, sequence),
        cmocka_unit_test(measures_and_leaves_the_rows),
        cmocka_unit_test(nothing_to_gather),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
