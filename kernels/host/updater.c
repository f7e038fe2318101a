/* SPDX-License-Identifier: MIT
 *
 * The functions of update.h for all rules.
 */
#include "kernels/host/row.h"
#include "kernels/host/update.h"

void updater_prefetch_narrow(const struct updater *u, int64_t row, enum prefetch_into into) {
    updater_prefetch_as(u, row, true, u->dim, into);
}

/* Updates a row with arrays of narrower types: widens these, updates the copies, and rounds them
 * back. The copies are on the stack, so rows have a largest dim: see kernel_refuses(). */
void updater_narrow(const struct updater *u, int64_t row, const float *grad) {
    const int32_t dim = u->dim;
    float copy[1 + RULE_ELEM_STATES][(dim + VEC - 1) / VEC * VEC];
    struct table wide = u->table;
    for (int k = 0; k < u->narrow; k++) {
        const struct narrow_array *x = &u->narrow_array[k];
        row_widen(x->type, array_row(&u->table.array[x->array], row), dim, copy[k]);
        wide.array[x->array] = (struct array){copy[k], 0}; /* every row is the copy */
    }
    u->update(u->step, &wide, dim, row, grad);
    for (int k = 0; k < u->narrow; k++) {
        const struct narrow_array *x = &u->narrow_array[k];
        const struct row_format f = row_format(u->shape, u->step->number, x->array, row);
        row_narrow(&f, copy[k], dim, array_row(&u->table.array[x->array], row));
    }
}

void updater_watch(const struct updater *u, int64_t row, const float *grad) {
    watch_touch(u->table.watch, row, u->step->number, grad, u->dim);
}

void updater_adjust(const struct updater *u, int64_t row, float *grad) {
    adjust_row(&u->step->adjust, u->shape->weight_type, array_row(&u->table.weight, row), u->dim,
               grad);
}
