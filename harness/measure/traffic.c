/* SPDX-License-Identifier: MIT */
#include "harness/measure/traffic.h"

#include "kernels/shape.h"

enum { LINE = 64 };

/* Bytes of whole lines with states of touched rows; an array of states starts at a line. States
 * beside the weights share the lines of the row. */
static int64_t state_lines(const struct batch *in, const struct row_index *index) {
    int64_t total = 0, last = -1;
    for (int64_t u = 0; u < index->rows; u++) {
        const struct row_run *r = &index->run[u];
        int64_t bytes = rule_row_states(in->tables[r->table].rule) * (int64_t)sizeof(float);
        if (u == 0 || r->table != r[-1].table) last = -1;
        if (bytes == 0 || in->tables[r->table].row_state != ROW_STATE_APART) {
            total += bytes;
            continue;
        }
        int64_t first = r->row * bytes / LINE, end = ((r->row + 1) * bytes - 1) / LINE;
        total += LINE * (end - (first > last ? first - 1 : last));
        last = end;
    }
    return total;
}

/* Bytes of a row's weights and of its element states. */
static int64_t row_bytes(const struct table_shape *t, bool states) {
    int64_t bytes = t->dim * dtype_bytes(t->weight_type);
    for (int a = TABLE_ELEM; a < TABLE_ARRAYS && states; a++)
        bytes += rule_array_width(t->rule, t->dim, a) * dtype_bytes(table_array_type(t, a));
    return bytes;
}

/* Bytes that a step gathers for the lookups of a row: the winners of a max, otherwise the gradient row. */
static int64_t gathered_for(const struct batch *in, const struct row_index *index,
                            const struct row_run *run) {
    const int64_t dim = in->tables[run->table].dim, grad = dtype_bytes(in->grad_type);
    int64_t bytes = 0;
    for (int64_t k = run->first; k < run[1].first; k++) {
        const enum pooling pooling = feature_at_bag(in, index->lookup[k].bag)->pooling;
        bytes += dim * (pooling == POOL_MAX ? (int64_t)sizeof *in->winners : grad);
    }
    return bytes;
}

struct traffic traffic_of(enum operation operation, const struct batch *in,
                          const struct row_index *index) {
    const bool forward = operation == OP_FORWARD, gradient = operation == OP_GRADIENT,
               weight_grad = operation == OP_WEIGHT_GRAD,
               gathers_rows = operation_gathers_rows(operation);
    const int64_t element = sizeof(float), grad = dtype_bytes(in->grad_type);
    int64_t once = in->lookups * (in->id_type == ID_INT32 ? 4 : 8) + (in->flat_bags + 1) * 8;
    int64_t rows = 0, row_states = 0, gathered = 0;
    if (in->lookup_weights || weight_grad) once += in->lookups * element; /* read, or written */
    for (int64_t q = 0; q < in->flat_bags; q++) {
        const struct feature *f = feature_at_bag(in, q);
        int64_t length = in->offsets[q + 1] - in->offsets[q];
        int64_t rows_here = f->pooling == POOL_NONE ? length : forward || length > 0;
        const bool max = f->pooling == POOL_MAX;
        const int64_t elements = rows_here * in->tables[f->table].dim;
        once += elements * (grad + (max ? (int64_t)sizeof *in->winners : 0));
        if (max && !gathers_rows) gathered += elements * grad; /* each belongs to one lookup */
    }
    for (int64_t u = 0; u < index->rows; u++) {
        const struct row_run *run = &index->run[u];
        const struct table_shape *t = &in->tables[run->table];
        const int64_t hits = run[1].first - run->first;
        rows +=
            gradient ? (int64_t)sizeof(int64_t) + t->dim * element : row_bytes(t, !gathers_rows);
        row_states += rule_row_states(t->rule) * element;
        gathered += gathers_rows ? hits * row_bytes(t, false) : gathered_for(in, index, run);
    }
    if (operation != OP_STEP) return (struct traffic){once + rows, once + rows, gathered};
    return (struct traffic){.compulsory = once + 2 * (rows + row_states),
                            .lines = once + 2 * (rows + state_lines(in, index)),
                            .gathered = gathered};
}

double traffic_roof(const struct traffic *t, double memory_gbs, double gather_gbs) {
    if (!(memory_gbs > 0 && gather_gbs > 0)) return 0;
    double memory = 1e-9 * (double)t->lines / memory_gbs;
    double caches = 1e-9 * (double)t->gathered / gather_gbs;
    return memory > caches ? memory : caches;
}
