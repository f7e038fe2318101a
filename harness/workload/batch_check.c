/* SPDX-License-Identifier: MIT
 *
 * What kernels and the exact comparison take for granted about a batch.
 */
#include <math.h>
#include <stdlib.h>

#include "harness/rng.h"
#include "harness/workload/workload.h"

static int check_bag(const struct batch *in, int64_t q, struct error *err) {
    int64_t f = q / in->bags, b = q % in->bags, from = in->offsets[q], to = in->offsets[q + 1];
    int64_t rows = in->tables[in->features[f].table].rows;
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

int batch_validate(const struct batch *in, struct error *err) {
    int64_t flat_bags = in->num_features * in->bags, rows = 0;
    for (int32_t t = 0; t < in->num_tables; rows += in->tables[t++].rows)
        if (in->tables[t].first_row != rows)
            return fail(err, "table %d: first_row is %lld, but %lld rows come before it", t,
                        (long long)in->tables[t].first_row, (long long)rows);
    if (in->offsets[0] != 0)
        return fail(err, "feature 0, bag 0: offsets start at %lld; they must start at 0",
                    (long long)in->offsets[0]);
    for (int64_t q = 0; q < flat_bags; q++)
        if (check_bag(in, q, err)) return -1;
    if (in->offsets[flat_bags] != in->lookups)
        return fail(err,
                    "feature %d, bag %lld: offsets end at %lld of %lld lookups; the last one "
                    "must be the number of lookups",
                    in->num_features - 1, (long long)in->bags - 1,
                    (long long)in->offsets[flat_bags], (long long)in->lookups);
    return 0;
}

/* What the bag's gradient is divided by. */
static int64_t divisor(const struct batch *in, int64_t q) {
    const struct feature *f = &in->features[q / in->bags];
    if (f->pooling != POOL_MEAN) return 1;
    int64_t count = 0;
    for (int64_t i = in->offsets[q]; i < in->offsets[q + 1]; i++)
        count += batch_id(in, i) != f->padding_id;
    return count;
}

/* Largest divisor of all bags, or 0 where one is no power of two. */
static int64_t common_divisor(const struct batch *in) {
    int64_t largest = 1;
    for (int64_t q = 0; q < in->num_features * in->bags; q++) {
        int64_t d = divisor(in, q);
        if (d & (d - 1)) return 0;
        if (d > largest) largest = d;
    }
    return largest;
}

/* Summands are whole multiples of one unit, so a row's sums are exact as long as the magnitudes add
 * up to less than 2^24 units. They are added up for groups of rows that share a hash, which bounds
 * every row of the group: cheap, and never wrongly true. */
bool batch_sums_exact(const struct batch *in, enum grad_mode mode) {
    enum { GROUP_BITS = 16, GRAD_UNITS = 4 };
    int64_t common = mode == GRAD_EXACT ? common_divisor(in) : 0;
    double *units = common ? calloc((size_t)1 << GROUP_BITS, sizeof *units) : NULL;
    bool exact = units != NULL;
    for (int64_t q = 0; exact && q < in->num_features * in->bags; q++) {
        const struct feature *f = &in->features[q / in->bags];
        int64_t d = divisor(in, q);
        for (int64_t i = in->offsets[q]; i < in->offsets[q + 1]; i++) {
            uint64_t row = rng_u64((uint64_t)f->table, (uint64_t)batch_id(in, i));
            double *sum = &units[row >> (64 - GROUP_BITS)];
            /* half-unit weights: 0.5, 1 and 2 are 1, 2 and 4 */
            double weight = in->lookup_weights ? 2.0 * (double)in->lookup_weights[i] : 1.0;
            *sum += GRAD_UNITS * weight * (double)common / (double)(d ? d : 1);
            exact = exact && *sum < 0x1p24;
        }
    }
    free(units);
    return exact;
}
