/* SPDX-License-Identifier: MIT */
#include "harness/workload/row_index.h"

#include <stdlib.h>

#include "harness/memory.h"

static int by_table_row_position(const void *pa, const void *pb) {
    const struct row_lookup *a = pa, *b = pb;
    if (a->table != b->table) return a->table < b->table ? -1 : 1;
    if (a->row != b->row) return a->row < b->row ? -1 : 1;
    return a->lookup < b->lookup ? -1 : a->lookup > b->lookup;
}

/* Twice: glibc's qsort is a merge sort and copies all that it sorts. The runs are no larger, and
 * are allocated after the copy is freed. */
int64_t row_index_bytes(int64_t lookups) {
    _Static_assert(sizeof(struct row_run) <= sizeof(struct row_lookup), "a run fits in the copy");
    return (lookups + 1) * 2 * (int64_t)sizeof(struct row_lookup);
}

struct row_index row_index_build(const struct batch *in) {
    struct row_index x = {0};
    x.lookup = must_have(malloc((size_t)(in->lookups + 1) * sizeof *x.lookup));
    const struct feature *f = in->features;
    for (int64_t q = 0; q < in->flat_bags; q++) {
        while (q == f->first_bag + f->bags) f++;
        for (int64_t i = in->offsets[q]; i < in->offsets[q + 1]; i++) {
            int64_t row = batch_id(in, i);
            if (row == f->padding_id) continue;
            x.lookup[x.lookups++] = (struct row_lookup){row, i, q, f->table};
        }
    }
    qsort(x.lookup, (size_t)x.lookups, sizeof *x.lookup, by_table_row_position);

    x.run = must_have(malloc((size_t)(x.lookups + 1) * sizeof *x.run));
    for (int64_t i = 0; i < x.lookups; i++) {
        const struct row_lookup *l = &x.lookup[i];
        if (i == 0 || l->table != l[-1].table || l->row != l[-1].row)
            x.run[x.rows++] = (struct row_run){l->row, i, l->table};
    }
    x.run = must_have(realloc(x.run, (size_t)(x.rows + 1) * sizeof *x.run));
    x.run[x.rows] = (struct row_run){-1, x.lookups, -1};
    return x;
}

int64_t row_index_find(const struct row_index *x, int32_t table, int64_t row) {
    int64_t lo = 0, hi = x->rows;
    while (lo < hi) {
        int64_t mid = lo + (hi - lo) / 2;
        const struct row_run *r = &x->run[mid];
        if (r->table < table || (r->table == table && r->row < row))
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

void row_index_free(struct row_index *x) {
    free(x->lookup);
    free(x->run);
    *x = (struct row_index){0};
}
