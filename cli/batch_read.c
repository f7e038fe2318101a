/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/arrays.h"
#include "cli/step.h"
#include "harness/workload/batch_fill.h"

/* Reads offsets [features*bags + 1] as int64 and derives *bags. NULL: err. */
static int64_t *read_offsets(const char *path, const struct description *d, int64_t *bags,
                             struct error *err) {
    struct npy a;
    if (npy_read_ints(path, &a, err)) return NULL;
    *bags = (a.count - 1) / d->num_features;
    int64_t *offsets = NULL;
    if (d->bags && d->bags * d->num_features + 1 != a.count)
        fail(err, "%s: %lld offsets; %d features of %lld bags have %lld", path, (long long)a.count,
             d->num_features, (long long)d->bags, (long long)(d->bags * d->num_features + 1));
    else if (*bags < 1 || *bags * d->num_features + 1 != a.count)
        fail(err, "%s: %lld offsets; %d features of B >= 1 bags have %d*B + 1", path,
             (long long)a.count, d->num_features, d->num_features);
    else if (!(offsets = array_alloc(a.count, sizeof *offsets)))
        fail(err, "%s: out of memory", path);
    for (int64_t i = 0; offsets && i < a.count; i++) offsets[i] = npy_int(&a, i);
    npy_free(&a);
    return offsets;
}

/* Reads offsets and ids into the only batch of the workload. */
static int read_lookups(const struct batch_files *files, const struct description *d,
                        struct workload *w, struct error *err) {
    struct npy ids;
    struct error why;
    if (npy_read_ints(files->ids, &ids, err)) return -1;
    int64_t bags = 0, *offsets = read_offsets(files->offsets, d, &bags, err);
    int status = offsets ? 0 : -1;
    enum id_type type = ids.type == NPY_INT32 ? ID_INT32 : ID_INT64;
    if (status == 0) status = workload_begin(w, bags, type, err);
    if (status == 0) {
        memcpy(w->tables, d->tables, (size_t)d->num_tables * sizeof *w->tables);
        memcpy(w->features, d->features, (size_t)d->num_features * sizeof *w->features);
        struct batch as_read = w->batches[0];
        as_read.ids = ids.data;
        as_read.offsets = offsets;
        as_read.lookups = ids.count;
        if (batch_validate_lookups(&as_read, &why))
            status = fail(err, "%s with %s: %s", files->ids, files->offsets, why.text);
    }
    if (status) free(offsets);
    void *room = status == 0 ? batch_lay_out(w, 0, offsets, err) : NULL;
    if (room) memcpy(room, ids.data, (size_t)ids.count * (type == ID_INT32 ? 4 : 8));
    npy_free(&ids);
    return room ? 0 : -1;
}

/* Moves the floats to memory that is allocated as in generated workloads. NULL: err. */
static float *take_floats(const char *path, struct npy *a, struct error *err) {
    float *to = array_alloc(a->count, sizeof *to);
    if (to)
        memcpy(to, a->data, (size_t)a->count * sizeof *to);
    else
        fail(err, "%s: out of memory", path);
    npy_free(a);
    return to;
}

static int read_weights(const char *path, bool finite, struct batch *in, struct error *err) {
    struct npy a;
    if (array_read_floats(path, finite, &a, err)) return -1;
    if (array_want_shape(path, &a, 1, &in->lookups, "one weight for each id", err)) {
        npy_free(&a);
        return -1;
    }
    in->lookup_weights = take_floats(path, &a, err);
    return in->lookup_weights ? 0 : -1;
}

static int read_grad(const char *path, bool finite, struct batch *in, struct error *err) {
    bool sequences = in->features[0].pooling == POOL_NONE, alike = true;
    for (int f = 1; f < in->num_features; f++)
        alike &= in->features[f].grad_stride == in->features[0].grad_stride;
    int64_t rows = sequences ? in->lookups : in->bags;
    const int64_t shape[2] = {rows, in->features[0].grad_stride};
    struct npy a;
    if (array_read_floats(path, finite, &a, err)) return -1;
    int status = 0;
    bool flat = sequences && array_is_shaped(&a, 1, &in->grad_floats);
    if (sequences && !alike && !flat)
        status = array_want_shape(path, &a, 1, &in->grad_floats, "sequences of several dims", err);
    else if (!flat)
        status =
            array_want_shape(path, &a, 2, shape,
                             sequences ? "[ids][dim]" : "[bags][sum of the features' dims]", err);
    if (status) {
        npy_free(&a);
        return -1;
    }
    in->grad = take_floats(path, &a, err);
    return in->grad ? 0 : -1;
}

int batch_read(const struct batch_files *files, const struct description *d, bool finite,
               struct workload *out, struct error *err) {
    *out =
        (struct workload){.num_tables = d->num_tables, .num_features = d->num_features, .ring = 1};
    snprintf(out->name, sizeof out->name, "%.100s", files->ids);
    int status = read_lookups(files, d, out, err);
    if (status == 0) status = read_grad(files->grad, finite, &out->batches[0], err);
    if (status == 0 && files->lookup_weights)
        status = read_weights(files->lookup_weights, finite, &out->batches[0], err);
    if (status) workload_free(out);
    return status;
}
