/* SPDX-License-Identifier: MIT */
#include "harness/workload/batch_fill.h"
#include "kernels/shape.h"
#include "extras/library/model.h"

/* The largest of ids[begin .. end-1], read as unsigned, so that a negative id is larger than any row. */
static uint64_t largest_id(const struct batch *in, int64_t begin, int64_t end) {
    const uint32_t *narrow = in->ids;
    const uint64_t *wide = in->ids;
    uint32_t most32 = 0;
    uint64_t most64 = 0;
    if (in->id_type == ID_INT32)
        for (int64_t i = begin; i < end; i++) most32 = narrow[i] > most32 ? narrow[i] : most32;
    else
        for (int64_t i = begin; i < end; i++) most64 = wide[i] > most64 ? wide[i] : most64;
    return in->id_type != ID_INT32 ? most64 : most32 > INT32_MAX ? UINT64_MAX : most32;
}

/* Whether no offset of begin .. end is larger than the next one. */
static bool ascend(const struct batch *in, int64_t begin, int64_t end) {
    int falls = 0;
    for (int64_t q = begin; q < end; q++) falls |= in->offsets[q + 1] < in->offsets[q];
    return !falls;
}

/* largest_id() in parallel for long arrays, in parts of PARALLEL_FROM ids. Waking threads costs too much for short
 * ones. */
static uint64_t largest_of_many(const struct batch *in, int64_t begin, int64_t end, int threads) {
    uint64_t most = 0;
#pragma omp parallel for reduction(max : most) num_threads(threads)
    for (int64_t at = begin; at < end; at += PARALLEL_FROM) {
        const uint64_t x = largest_id(in, at, min64(at + PARALLEL_FROM, end));
        most = x > most ? x : most;
    }
    return most;
}

static bool many_ascend(const struct batch *in, int64_t begin, int64_t end, int threads) {
    int falls = 0;
#pragma omp parallel for reduction(| : falls) num_threads(threads)
    for (int64_t at = begin; at < end; at += PARALLEL_FROM)
        falls |= !ascend(in, at, min64(at + PARALLEL_FROM, end));
    return !falls;
}

static bool offsets_good(const struct batch *in, int threads) {
    const int64_t bags = in->flat_bags;
    if (in->offsets[0] != 0 || in->offsets[bags] != in->lookups) return false;
    return bags > PARALLEL_FROM ? many_ascend(in, 0, bags, threads) : ascend(in, 0, bags);
}

static bool ids_good(const struct batch *in, int64_t begin, int64_t end, int64_t rows,
                     int threads) {
    const uint64_t most = end - begin > PARALLEL_FROM ? largest_of_many(in, begin, end, threads)
                                                      : largest_id(in, begin, end);
    return begin == end || most < (uint64_t)rows;
}

/* Makes the checks of batch_validate_lookups() in parallel. Only if one fails does that function name the first
 * mistake. */
static int check_host(const struct embfuse_model *m, const struct batch *in, struct error *err) {
    bool good = offsets_good(in, m->threads);
    for (int32_t f = 0; good && f < in->num_features; f++) {
        const struct feature *x = &m->features[f];
        good = ids_good(in, in->offsets[x->first_bag], in->offsets[x->first_bag + x->bags],
                        m->shapes[x->table].rows, m->threads);
    }
    return good ? 0 : batch_validate_lookups(in, err);
}

int64_t batch_bags(const struct embfuse_model *m, const struct embfuse_batch *b) {
    int64_t all = 0;
    for (int32_t f = 0; f < m->num_features && all >= 0; f++) {
        const int64_t bags = b->feature_bags ? b->feature_bags[f] : b->bags;
        all = bags < 0 || bags > INT64_MAX / m->num_features - 1 ? -1 : all + bags;
    }
    return all;
}

static int check_arguments(const struct embfuse_model *m, const struct embfuse_batch *b,
                           struct embfuse_error *why) {
    if (!b) return said(why, EMBFUSE_INVALID, "batch is NULL");
    if (b->size != sizeof *b)
        return said(why, EMBFUSE_INVALID,
                    "batch.size is %zu, but sizeof(struct embfuse_batch) is %zu", b->size,
                    sizeof *b);
    const int64_t all = batch_bags(m, b);
    if (all < 0 || b->lookups < 0 || (all == 0 && b->lookups && !b->padded))
        return said(
            why, EMBFUSE_INVALID,
            "batch has %lld bags and %lld lookups: neither may be negative or too large, and a "
            "batch without bags has no lookups",
            (long long)(b->feature_bags ? all : b->bags), (long long)b->lookups);
    if ((!b->offsets && all) || (!b->ids && all && b->lookups))
        return said(why, EMBFUSE_INVALID, "batch: ids or offsets are NULL");
    if (b->id_type != EMBFUSE_INT32 && b->id_type != EMBFUSE_INT64)
        return said(why, EMBFUSE_INVALID,
                    "batch: id_type is EMBFUSE_INT32 or EMBFUSE_INT64, not %d", b->id_type);
    return 0;
}

/* The lookups of each feature of a batch on a device. */
static int count_on_device(struct embfuse_model *m, const struct embfuse_batch *b,
                           struct embfuse_error *why) {
    struct error err;
    int64_t left = b->lookups;
    if (device_call_lookups(m, b, &err)) return said(why, EMBFUSE_DEVICE_ERROR, "%.500s", err.text);
    for (int32_t f = 0; f < m->num_features; f++) {
        const int64_t n = m->features[f].lookups;
        if (n < 0 || n > left)
            return said(
                why, EMBFUSE_BAD_BATCH,
                "feature %d has %lld lookups: below 0, or more than earlier features leave of "
                "the batch's %lld",
                f, (long long)n, (long long)b->lookups);
        left -= n;
    }
    if (left && !b->padded)
        return said(why, EMBFUSE_BAD_BATCH, "the features have %lld lookups, the batch %lld",
                    (long long)(b->lookups - left), (long long)b->lookups);
    return 0;
}

/* A batch of no bags does what one bag without lookups does, but has no output and no gradient. */
static void make_empty(struct embfuse_model *m, struct batch *out) {
    out->offsets = m->place == ON_HOST ? m->no_offsets : device_call_no_offsets(m);
    for (int32_t f = 0; f < m->num_features; f++)
        m->features[f].bags = 1, m->features[f].lookups = 0;
}

int batch_of(struct embfuse_model *m, const struct embfuse_batch *b, struct batch *out,
             struct embfuse_error *why) {
    struct error err;
    int status = check_arguments(m, b, why);
    if (status == 0) status = has_threads(m->threads, why);
    if (status) return status;
    *out = (struct batch){.num_tables = m->num_tables,
                          .num_features = m->num_features,
                          .lookups = b->lookups,
                          .tables = m->shapes,
                          .features = m->features,
                          .id_type = id_type_of(b->id_type),
                          .ids = b->ids,
                          .offsets = b->offsets,
                          .lookup_weights = b->lookup_weights,
                          .grad_type = m->grad_type};
    if (has_pooling(out, POOL_MAX)) out->winners = b->winners;
    for (int32_t f = 0; f < m->num_features; f++)
        m->features[f].bags = b->feature_bags ? b->feature_bags[f] : b->bags;
    const int64_t bags = out->flat_bags = batch_number_bags(m->features, m->num_features);
    if (b->padded && bags && m->place == ON_HOST && b->offsets[bags] <= b->lookups)
        out->lookups = b->offsets[bags];
    if (bags == 0)
        make_empty(m, out);
    else if (m->place == ON_HOST && !b->trusted && check_host(m, out, &err))
        return said(why, EMBFUSE_BAD_BATCH, "%.500s", err.text);
    if (m->place == ON_HOST)
        batch_count(out, m->features);
    else if (bags && (status = count_on_device(m, b, why)))
        return status;
    if (m->default_layout) batch_lay_out_rows(m->shapes, m->features, m->num_features);
    batch_derive_counted(out, m->shapes, m->features);
    if (bags == 0) out->grad_elements = 0;
    return 0;
}
