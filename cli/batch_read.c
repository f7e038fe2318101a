/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/arrays.h"
#include "cli/step.h"
#include "harness/workload/batch_fill.h"
#include "harness/workload/winners.h"

/* Offsets of a single bag that has all ids. */
static int64_t *one_bag(int64_t ids, int64_t *bags, struct error *err) {
    int64_t *offsets = array_require(2, sizeof *offsets, "offsets", err);
    if (offsets) offsets[0] = 0, offsets[1] = ids;
    *bags = 1;
    return offsets;
}

/* Reads offsets [all bags + 1] as int64 and derives *bags, of each feature without an own number. NULL: err. */
static int64_t *read_offsets(const struct batch_files *files, const struct description *d,
                             int64_t *bags, struct error *err) {
    const char *path = files->offsets;
    int64_t own = 0, others = 0, count, *offsets = npy_read_int64s(path, &count, err);
    if (!offsets) return NULL;
    for (int32_t f = 0; f < d->num_features; f++) {
        own += d->features[f].bags > 0 ? d->features[f].bags : 0;
        others += d->features[f].bags < 0;
    }
    /* A batch of no bags does what a bag without lookups does; see batch_has_no_bags(). */
    if (count == 1 && offsets[0] == 0 && !d->bags && others == d->num_features) {
        free(offsets);
        *bags = 1;
        offsets = array_require(d->num_features + 1, sizeof *offsets, path, err);
        return offsets ? memset(offsets, 0, (size_t)(d->num_features + 1) * sizeof *offsets) : NULL;
    }
    *bags = d->bags || !others ? d->bags : (count - 1 - own) / others;
    if (*bags >= 0 && own + others * *bags > 0 && own + others * *bags + 1 == count) return offsets;
    if (own)
        fail(err, "%s: %lld offsets; own bags and %lld features of B bags have %lld + %lld*B + 1",
             path, (long long)count, (long long)others, (long long)own, (long long)others);
    else if (d->bags)
        fail(err, "%s: %lld offsets; %d features of %lld bags have %lld", path, (long long)count,
             d->num_features, (long long)d->bags, (long long)(d->bags * d->num_features + 1));
    else
        fail(err, "%s: %lld offsets; %d features of B bags have %d*B + 1, with B from 1", path,
             (long long)count, d->num_features, d->num_features);
    free(offsets);
    return NULL;
}

/* True if a batch has the shape of the one that stands for a batch without bags. */
static bool stands_for_none(const struct batch *in) {
    return in->lookups == 0 && in->flat_bags == in->num_features;
}

bool batch_has_no_bags(const char *offsets, const struct batch *in) {
    int64_t count = 0;
    struct error ignored;
    if (offsets && stands_for_none(in)) free(npy_read_int64s(offsets, &count, &ignored));
    return count == 1;
}

/* Reads offsets and ids into the only batch of the workload. */
static int read_lookups(const struct batch_files *files, const struct description *d,
                        struct workload *w, struct error *err) {
    struct npy ids;
    struct error why;
    if (npy_read_ints(files->ids, &ids, err)) return -1;
    int64_t bags = 0, *offsets = files->offsets ? read_offsets(files, d, &bags, err)
                                                : one_bag(ids.count, &bags, err);
    int status = offsets ? 0 : -1;
    enum id_type type = ids.type == NPY_INT32 ? ID_INT32 : ID_INT64;
    if (status == 0) status = workload_begin(w, type, err);
    if (status == 0) {
        memcpy(w->tables, d->tables, (size_t)d->num_tables * sizeof *w->tables);
        for (int32_t t = 0; t < d->num_tables; t++)
            w->tables[t].adjusts = rule_adjusts(&d->rules[t]);
        memcpy(w->features, d->features, (size_t)d->num_features * sizeof *w->features);
        for (int32_t f = 0; f < d->num_features; f++)
            if (w->features[f].bags < 0) w->features[f].bags = bags;
        struct batch as_read = w->batches[0];
        as_read.flat_bags = batch_number_bags(w->features, w->num_features);
        as_read.ids = ids.data;
        as_read.offsets = offsets;
        as_read.lookups = ids.count;
        if (batch_validate_lookups(&as_read, &why))
            status = files->offsets
                         ? fail(err, "%s with %s: %s", files->ids, files->offsets, why.text)
                         : fail(err, "%s: %s", files->ids, why.text);
    }
    if (status) free(offsets);
    void *room = status == 0 ? batch_lay_out(w, 0, offsets, err) : NULL;
    if (room) memcpy(room, ids.data, (size_t)ids.count * (type == ID_INT32 ? 4 : 8));
    npy_free(&ids);
    return room ? 0 : -1;
}

static int read_weights(const char *path, bool finite, struct batch *in, struct error *err) {
    struct npy a;
    if (array_read(path, FP32, finite, &a, err)) return -1;
    in->lookup_weights = a.data;
    return array_want_shape(path, &a, 1, &in->lookups, "one weight for each id", err);
}

/* Elements of the file's type are kept if no other type was said. */
static int take_grad(struct npy *a, const struct description *d, const char *path, struct batch *in,
                     struct error *err) {
    in->grad_type = d->grad_type_given ? d->grad_type : array_type(a);
    if (in->grad_type == array_type(a)) {
        in->grad = a->data;
        return 0;
    }
    void *grad = array_require(a->count, (size_t)dtype_bytes(in->grad_type), path, err);
    for (int64_t i = 0; grad && i < a->count; i++)
        dtype_set(in->grad_type, grad, i, dtype_get(array_type(a), a->data, i));
    npy_free(a);
    in->grad = grad;
    return grad ? 0 : -1;
}

static int read_grad(const char *path, const struct description *d, bool finite, struct batch *in,
                     struct error *err) {
    const bool sequences = in->features[0].pooling == POOL_NONE,
               own_bags = !sequences && batch_common_bags(in) < 0;
    int64_t shape[2];
    const int num_dims = batch_grad_shape(in, shape);
    const char *what = num_dims == 1 ? "features of several dims, one after the other"
                       : sequences   ? "[ids][dim]"
                       : own_bags    ? "[all bags][dim]"
                                     : "[bags][sum of the features' dims]";
    struct npy a;
    if (array_read(path, d->grad_type_given ? d->grad_type : FP16, finite, &a, err)) return -1;
    if (stands_for_none(in) && a.count == 0) { /* the batch has no bags */
        npy_free(&a);
        void *zeros = array_require(in->grad_elements, sizeof(float), path, err);
        if (zeros) memset(zeros, 0, (size_t)in->grad_elements * sizeof(float));
        in->grad = zeros;
        return zeros ? 0 : -1;
    }
    if (!((sequences || own_bags) && array_is_shaped(&a, 1, &in->grad_elements)) &&
        array_want_shape(path, &a, num_dims, shape, what, err)) {
        npy_free(&a);
        return -1;
    }
    return take_grad(&a, d, path, in, err);
}

static int take_winners(const struct npy *a, const char *path, struct batch *in,
                        struct error *err) {
    int32_t *winners = array_require(a->count, sizeof *winners, path, err);
    struct error why;
    in->winners = winners;
    for (int64_t i = 0; winners && i < a->count; i++) {
        const int64_t x =
            a->type == NPY_INT32 ? ((const int32_t *)a->data)[i] : ((const int64_t *)a->data)[i];
        if (x < NO_WINNER || x > INT32_MAX)
            return fail(err, "%s: winner %lld; it is the number of a lookup in its bag, or -1",
                        path, (long long)x);
        winners[i] = (int32_t)x;
    }
    if (!winners || winners_validate(in, &why) == 0) return winners ? 0 : -1;
    return fail(err, "%s: %s", path, why.text);
}

static int read_winners(const char *path, struct batch *in, struct error *err) {
    int64_t shape[2];
    struct npy a;
    const int num_dims = batch_grad_shape(in, shape);
    if (npy_read(path, &a, err)) return -1;
    int status = 0;
    if (a.type != NPY_INT32 && a.type != NPY_INT64)
        status = fail(err, "%s: %s, but winners are int32 or int64", path, npy_type_name(a.type));
    if (status == 0)
        status =
            array_want_shape(path, &a, num_dims, shape, "[bags][sum of the features' dims]", err);
    if (status == 0) status = take_winners(&a, path, in, err);
    npy_free(&a);
    return status;
}

/* Room for the gradients of a batch that has none, in fp32 if no type was said. */
static int lay_out_grad(const struct description *d, struct batch *in, struct error *err) {
    in->grad_type = d->grad_type_given ? d->grad_type : FP32;
    in->grad =
        array_require(in->grad_elements, (size_t)dtype_bytes(in->grad_type), "gradients", err);
    return in->grad ? 0 : -1;
}

int batch_read(const struct batch_files *files, const struct description *d, bool finite,
               struct workload *out, struct error *err) {
    *out =
        (struct workload){.num_tables = d->num_tables, .num_features = d->num_features, .ring = 1};
    snprintf(out->name, sizeof out->name, "%.100s", files->ids);
    int status = read_lookups(files, d, out, err);
    if (status == 0)
        status = files->grad ? read_grad(files->grad, d, finite, &out->batches[0], err)
                             : lay_out_grad(d, &out->batches[0], err);
    if (status == 0 && files->lookup_weights)
        status = read_weights(files->lookup_weights, finite, &out->batches[0], err);
    if (status == 0 && files->winners) status = read_winners(files->winners, &out->batches[0], err);
    if (status) workload_free(out);
    return status;
}

int batch_read_one(const struct batch_files *files, int64_t rows, int32_t dim, enum pooling pooling,
                   int64_t padding, struct workload *out, struct error *err) {
    struct description d = {0};
    const struct table_shape shape = {.rows = rows, .dim = dim};
    const struct feature feature = {.pooling = pooling, .padding_id = padding, .bags = -1};
    int status = -1;
    if (description_add_table(&d, shape, rule_default(shape.rule), err) == 0 &&
        description_add_feature(&d, feature, err) == 0 &&
        description_check(&d, "--padding", err) == 0)
        status = batch_read(files, &d, true, out, err);
    description_free(&d);
    return status;
}
