/* SPDX-License-Identifier: MIT
 *
 * Derives fields of a batch, and checks what kernels and the exact comparison assume about it.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/rng.h"
#include "harness/workload/winners.h"
#include "kernels/shape.h"

/* Floats from the begin of the gradient to the end of a feature's last row. */
static int64_t derived_extent(const struct batch *in, const struct feature *x) {
    const int64_t rows = feature_rows(x);
    return rows ? x->grad_offset + (rows - 1) * x->grad_stride + in->tables[x->table].dim : 0;
}

int64_t batch_number_bags(struct feature *features, int32_t count) {
    int64_t bags = 0;
    for (int32_t f = 0; f < count; f++) {
        features[f].first_bag = bags;
        bags += features[f].bags;
    }
    return bags;
}

void batch_derive_counted(struct batch *in, struct table_shape *tables, struct feature *features) {
    int64_t rows = 0;
    in->tables = tables;
    in->features = features;
    in->flat_bags = batch_number_bags(features, in->num_features);
    in->lookups = 0;
    for (int32_t t = 0; t < in->num_tables; rows += tables[t++].rows) {
        tables[t].features = 0;
        tables[t].lookups = 0;
        tables[t].first_row = rows;
    }
    in->grad_elements = 0;
    for (int32_t f = 0; f < in->num_features; f++) {
        struct feature *x = &features[f];
        x->first_lookup = in->lookups;
        in->lookups += x->lookups;
        tables[x->table].lookups += x->lookups;
        tables[x->table].features++;
        const int64_t extent = derived_extent(in, x);
        if (extent > in->grad_elements) in->grad_elements = extent;
    }
}

void batch_derive(struct batch *in, struct table_shape *tables, struct feature *features) {
    batch_count(in, features);
    batch_derive_counted(in, tables, features);
}

void batch_count(const struct batch *in, struct feature *features) {
    batch_number_bags(features, in->num_features);
    for (int32_t f = 0; f < in->num_features; f++) {
        struct feature *x = &features[f];
        x->lookups = in->offsets[x->first_bag + x->bags] - in->offsets[x->first_bag];
    }
}

void batch_lay_out_rows(const struct table_shape *tables, struct feature *features, int32_t count) {
    int64_t bags = -1, columns = 0, column = 0;
    bool matrix = true;
    for (int32_t f = 0; f < count; f++) {
        if (features[f].pooling == POOL_NONE) continue;
        matrix &= bags < 0 || features[f].bags == bags;
        bags = features[f].bags;
        columns += tables[features[f].table].dim;
    }
    int64_t behind = matrix ? bags * columns : 0;
    for (int32_t f = 0; f < count; f++) {
        struct feature *x = &features[f];
        const int64_t dim = tables[x->table].dim;
        const bool apart = !matrix || x->pooling == POOL_NONE;
        x->grad_offset = apart ? behind : column;
        x->grad_stride = apart ? dim : columns;
        if (apart)
            behind += feature_rows(x) * dim;
        else
            column += dim;
    }
}

int64_t batch_common_bags(const struct batch *in) {
    for (int32_t f = 1; f < in->num_features; f++)
        if (in->features[f].bags != in->features[0].bags) return -1;
    return in->features[0].bags;
}

int batch_grad_shape(const struct batch *in, int64_t shape[2]) {
    const struct feature *first = &in->features[0];
    bool alike = true;
    for (int32_t f = 1; f < in->num_features; f++)
        alike &= in->features[f].grad_stride == first->grad_stride;
    shape[0] = alike ? in->grad_elements / first->grad_stride : in->grad_elements;
    shape[1] = first->grad_stride;
    return alike ? 2 : 1;
}

static int check_bag(const struct batch *in, int64_t f, int64_t b, struct error *err) {
    const int64_t q = in->features[f].first_bag + b, from = in->offsets[q], to = in->offsets[q + 1],
                  rows = in->tables[in->features[f].table].rows;
    if (to < from || to > in->lookups)
        return fail(err,
                    "feature %lld, bag %lld: offsets %lld to %lld in a batch of %lld lookups; "
                    "offsets must not fall, nor pass the lookups",
                    (long long)f, (long long)b, (long long)from, (long long)to,
                    (long long)in->lookups);
    for (int64_t i = from; i < to; i++) {
        int64_t id = batch_id(in, i);
        if (id < 0 || id >= rows)
            return fail(err,
                        "feature %lld, bag %lld, lookup %lld: id %lld is no row of a table of "
                        "%lld rows",
                        (long long)f, (long long)b, (long long)i, (long long)id, (long long)rows);
    }
    return 0;
}

static int check_table(const struct batch *in, int32_t t, const struct table_shape *want,
                       struct error *err) {
    const struct table_shape *x = &in->tables[t];
    if (x->first_row != want->first_row)
        return fail(err, "table %d: first_row is %lld, but %lld rows come before it", t,
                    (long long)x->first_row, (long long)want->first_row);
    if (x->lookups == want->lookups && x->features == want->features) return 0;
    return fail(err, "table %d: %lld lookups of %d features, but there are %lld of %d", t,
                (long long)x->lookups, x->features, (long long)want->lookups, want->features);
}

static int check_feature(const struct batch *in, int32_t f, const struct feature *want,
                         struct error *err) {
    const struct feature *x = &in->features[f];
    if (x->lookups != want->lookups || x->first_lookup != want->first_lookup ||
        x->first_bag != want->first_bag)
        return fail(
            err,
            "feature %d: %lld lookups from %lld on, and bags from %lld on, but there are %lld "
            "from %lld on, and bags from %lld on",
            f, (long long)x->lookups, (long long)x->first_lookup, (long long)x->first_bag,
            (long long)want->lookups, (long long)want->first_lookup, (long long)want->first_bag);
    if (x->grad_offset >= 0 && derived_extent(in, x) <= in->grad_elements) return 0;
    return fail(err, "feature %d: gradient rows end at float %lld of %lld", f,
                (long long)derived_extent(in, x), (long long)in->grad_elements);
}

/* Checks that the derived fields of the batch are what batch_derive() makes. */
static int check_derived(const struct batch *in, struct error *err) {
    struct table_shape *tables = malloc((size_t)in->num_tables * sizeof *tables);
    struct feature *features = malloc((size_t)in->num_features * sizeof *features);
    struct batch want = *in;
    int status = tables && features ? 0 : fail(err, "out of memory");
    if (status == 0) {
        memcpy(tables, in->tables, (size_t)in->num_tables * sizeof *tables);
        memcpy(features, in->features, (size_t)in->num_features * sizeof *features);
        batch_derive(&want, tables, features);
    }
    for (int32_t t = 0; status == 0 && t < in->num_tables; t++)
        status = check_table(in, t, &tables[t], err);
    for (int32_t f = 0; status == 0 && f < in->num_features; f++)
        status = check_feature(in, f, &features[f], err);
    free(tables);
    free(features);
    return status;
}

int batch_validate_lookups(const struct batch *in, struct error *err) {
    const struct feature *last = &in->features[in->num_features - 1];
    if (in->offsets[0] != 0)
        return fail(err, "feature 0, bag 0: offsets start at %lld; they must start at 0",
                    (long long)in->offsets[0]);
    for (int32_t f = 0; f < in->num_features; f++)
        for (int64_t b = 0; b < in->features[f].bags; b++)
            if (check_bag(in, f, b, err)) return -1;
    if (in->offsets[in->flat_bags] != in->lookups)
        return fail(err,
                    "feature %d, bag %lld: offsets end at %lld of %lld lookups; the last one "
                    "must be the number of lookups",
                    in->num_features - 1, (long long)last->bags - 1,
                    (long long)in->offsets[in->flat_bags], (long long)in->lookups);
    return 0;
}

int batch_validate(const struct batch *in, struct error *err) {
    if (batch_validate_lookups(in, err) || check_derived(in, err)) return -1;
    return in->winners ? winners_validate(in, err) : 0;
}

/* Returns the divisor of the bag's gradient. */
static int64_t divisor(const struct batch *in, int64_t q) {
    const struct feature *f = feature_at_bag(in, q);
    if (f->pooling != POOL_MEAN) return 1;
    int64_t count = 0;
    for (int64_t i = in->offsets[q]; i < in->offsets[q + 1]; i++)
        count += batch_id(in, i) != f->padding_id;
    return count;
}

/* Largest divisor of all bags; 0 if any divisor is not a power of two. */
static int64_t common_divisor(const struct batch *in) {
    int64_t largest = 1;
    for (int64_t q = 0; q < in->flat_bags; q++) {
        int64_t d = divisor(in, q);
        if (d & (d - 1)) return 0;
        if (d > largest) largest = d;
    }
    return largest;
}

/* Summands are whole multiples of one unit, so a row's sum is exact while its magnitudes add up to
 * less than 2^24 units. The function adds them for groups of rows that share a hash, which bounds
 * every row of the group: cheap, and never wrongly true. */
bool batch_sums_exact(const struct batch *in, enum grad_mode mode) {
    enum { GROUP_BITS = 16, GRAD_UNITS = 4 };
    int64_t common = mode == GRAD_EXACT ? common_divisor(in) : 0;
    double *units = common ? calloc((size_t)1 << GROUP_BITS, sizeof *units) : NULL;
    bool exact = units != NULL;
    for (int64_t q = 0; exact && q < in->flat_bags; q++) {
        const struct feature *f = feature_at_bag(in, q);
        int64_t d = divisor(in, q);
        for (int64_t i = in->offsets[q]; i < in->offsets[q + 1]; i++) {
            uint64_t row = rng_u64((uint64_t)f->table, (uint64_t)batch_id(in, i));
            double *sum = &units[row >> (64 - GROUP_BITS)];
            /* half-unit weights: 0.5, 1 and 2 are 1, 2 and 4; others are no whole units */
            double weight = in->lookup_weights ? 2.0 * (double)in->lookup_weights[i] : 1.0;
            exact = exact && weight == rint(weight);
            *sum += GRAD_UNITS * weight * (double)common / (double)(d ? d : 1);
            exact = exact && *sum < 0x1p24;
        }
    }
    free(units);
    return exact;
}
