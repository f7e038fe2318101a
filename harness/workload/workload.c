/* SPDX-License-Identifier: MIT
 *
 * Workloads from specs. Each feature has id streams of its own, each table one bijection from
 * popularity rank to row: features that share a table agree on what is popular there.
 */
#include "harness/workload/workload.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/memory.h"
#include "harness/workload/batch_fill.h"
#include "harness/workload/histogram.h"
#include "harness/workload/lengths.h"
#include "harness/workload/permute.h"
#include "harness/workload/spec_keys.h"
#include "harness/workload/zipf.h"

/* Beyond any address space. Below it no sum of lengths or sizes overflows. */
#define MOST_BYTES ((int64_t)1 << 47)

/* Where the ids of one feature come from. */
struct id_source {
    const struct spec *spec;
    int64_t rows;
    struct permute map;
    struct zipf zipf;
    struct powerlaw powerlaw;
};

static struct id_source id_source(const struct spec *spec, int table) {
    int64_t rows = spec->tables[table].rows;
    const int whole = table / spec->column_shards;
    struct id_source s = {.spec = spec, .rows = rows};
    s.map = permute_make(stream_key(spec->seed, STREAM_MAP, whole, 0), rows);
    s.zipf = zipf_make(rows, spec->alpha, spec->shift);
    s.powerlaw = powerlaw_make(rows, spec->alpha);
    return s;
}

static int64_t row_of_rank(const struct id_source *s, int64_t rank) {
    return s->spec->scatter ? permute_at(&s->map, rank) : rank;
}

static int64_t draw_row(const struct id_source *s, uint64_t key, int64_t i) {
    switch (s->spec->ids) {
    case IDS_ZIPF: return row_of_rank(s, zipf_draw(&s->zipf, key, (uint64_t)i));
    case IDS_POWERLAW: return row_of_rank(s, powerlaw_draw(&s->powerlaw, key, (uint64_t)i));
    default: return uniform_draw(s->rows, key, (uint64_t)i);
    }
}

int32_t workload_origin(const struct workload *w, int32_t f) {
    const int32_t table = f / w->features_per_table;
    return table / w->column_shards * w->features_per_table + f % w->features_per_table;
}

struct rule workload_rule(const struct workload *w, int32_t t) {
    return spec_rule(w->tables[t].rule, w->varied, t);
}

/* Independent draws; with reuse, a share of them copies any lookup of the batch before. */
static void draw_ids(struct workload *w, int k, int f, const struct id_source *source, void *ids) {
    const struct batch *batch = &w->batches[k], *before = k ? batch - 1 : NULL;
    int64_t start = batch->features[f].first_lookup, lookups = batch->features[f].lookups;
    int64_t start_before = before ? before->features[f].first_lookup : 0;
    int64_t lookups_before = before ? before->features[f].lookups : 0;
    double reuse = lookups_before ? source->spec->reuse : 0.0;
    const int32_t origin = workload_origin(w, f);
    uint64_t key = stream_key(w->seed, STREAM_ID, origin, k);
    uint64_t reuse_key = stream_key(w->seed, STREAM_REUSE, origin, k);
#pragma omp parallel for if (lookups >= PARALLEL_FROM)
    for (int64_t i = 0; i < lookups; i++) {
        int64_t id;
        if (reuse > 0.0 && rng_unit(reuse_key, 2 * (uint64_t)i) < reuse)
            id = batch_id(before, start_before +
                                      uniform_draw(lookups_before, reuse_key, 2 * (uint64_t)i + 1));
        else
            id = draw_row(source, key, i);
        put_id(batch->id_type, ids, start + i, id);
    }
}

static int plan_ids(struct workload *w, int k, int f, const struct id_source *source, void *ids,
                    struct error *err) {
    const struct batch *batch = &w->batches[k];
    int64_t start = batch->features[f].first_lookup, lookups = batch->features[f].lookups;
    if (lookups == 0) return 0;
    struct histogram_plan plan;
    struct error why;
    if (histogram_plan(source->spec->ids, lookups, source->rows,
                       stream_key(w->seed, STREAM_PLAN, workload_origin(w, f), k), &plan, &why))
        return fail(err, "%s: feature %d: %s", w->name, f, why.text);
    struct permute shuffle =
        permute_make(stream_key(w->seed, STREAM_SHUFFLE, workload_origin(w, f), k), lookups);
#pragma omp parallel for schedule(dynamic, 64) if (lookups >= PARALLEL_FROM)
    for (int64_t r = 0; r < plan.rows; r++) {
        int64_t id = row_of_rank(source, histogram_rank(&plan, r, k));
        for (int64_t j = plan.first[r]; j < plan.first[r + 1]; j++)
            put_id(batch->id_type, ids, start + permute_at(&shuffle, j), id);
    }
    histogram_free(&plan);
    return 0;
}

static int make_ids(struct workload *w, int k, const struct spec *spec, void *ids,
                    struct error *err) {
    const bool planned = spec->ids >= IDS_HISTOGRAM_2021;
    for (int f = 0; f < w->num_features; f++) {
        struct id_source source = id_source(spec, w->features[f].table);
        if (!planned)
            draw_ids(w, k, f, &source, ids);
        else if (plan_ids(w, k, f, &source, ids, err))
            return -1;
    }
    return 0;
}

/* Lengths in parallel, then their running sum. */
static int64_t *make_offsets(struct workload *w, int k, const struct spec *spec,
                             struct error *err) {
    const int64_t flat_bags = batch_number_bags(w->features, w->num_features);
    int64_t *offsets = array_alloc(flat_bags + 1, sizeof *offsets);
    if (!offsets) {
        fail(err, "%s: out of memory for the offsets of %lld bags", w->name, (long long)flat_bags);
        return NULL;
    }
    offsets[0] = 0;
    for (int f = 0; f < w->num_features; f++) {
        struct lengths lengths;
        if (lengths_make(&spec->tables[w->features[f].table].length, &lengths, err)) {
            free(offsets);
            return NULL;
        }
        uint64_t key = stream_key(w->seed, STREAM_LENGTH, workload_origin(w, f), k);
        const int64_t bags = w->features[f].bags;
        int64_t *at = offsets + w->features[f].first_bag + 1;
#pragma omp parallel for if (bags >= PARALLEL_FROM)
        for (int64_t b = 0; b < bags; b++) at[b] = lengths_draw(&lengths, key, (uint64_t)b);
        lengths_free(&lengths);
    }
    for (int64_t q = 0; q < flat_bags; q++) offsets[q + 1] += offsets[q];
    return offsets;
}

/* One line with everything that determines the ids, lengths and shapes. */
static void describe(const struct spec *s, char *text, size_t size) {
    const struct table_spec *t = s->tables, *last = t + s->num_tables - 1;
    int64_t least = t->rows, most = t->rows;
    bool alike = true;
    for (; t <= last; t++) {
        least = t->rows < least ? t->rows : least;
        most = t->rows > most ? t->rows : most;
        alike = alike && t->dim == last->dim && t->length.kind == last->length.kind &&
                t->length.a == last->length.a && t->length.b == last->length.b;
    }
    spec_describe_batch(s, text, size);
    text_add(text, size, " tables %d rows %lld", s->num_tables, (long long)least);
    if (most > least) text_add(text, size, "..%lld", (long long)most);
    if (alike)
        text_add(text, size, " dim %d length %s %g", last->dim,
                 key_word(KEY_LENGTH, (int)last->length.kind), last->length.a);
    else
        text_add(text, size, " dim and length by table");
    if (alike && last->length.kind != LENGTH_FIXED) text_add(text, size, " %g", last->length.b);
    text_add(text, size,
             " features %d ids %s alpha %g shift %g map %s reuse %g pooling %s weighted %d "
             "padding %lld id_type %s rule %s seed %llu",
             s->features_per_table, key_word(KEY_IDS, (int)s->ids), s->alpha, s->shift,
             key_word(KEY_MAP, s->scatter), s->reuse, key_word(KEY_POOLING, (int)s->pooling),
             s->weighted, (long long)s->padding_id, key_word(KEY_ID_TYPE, (int)s->id_type),
             rule_info(s->rule).name, (unsigned long long)s->seed);
    spec_describe_others(s, text, size);
}

static int generate(struct workload *w, const struct spec *spec, enum grad_mode mode,
                    struct error *err) {
    if (workload_begin(w, spec->id_type, err)) return -1;
    for (int t = 0; t < w->num_tables; t++) w->tables[t] = spec_table(spec, t);
    for (int f = 0; f < w->num_features; f++)
        w->features[f] = (struct feature){.table = f / spec->features_per_table,
                                          .bags = spec->tables[f / spec->features_per_table].bags,
                                          .pooling = spec->pooling,
                                          .padding_id = spec->padding_id};
    for (int k = 0; k < w->ring; k++) {
        int64_t *offsets = make_offsets(w, k, spec, err);
        void *ids = offsets ? batch_lay_out(w, k, offsets, err) : NULL;
        if (!ids || make_ids(w, k, spec, ids, err)) return -1;
        if (batch_fill(w, k, mode, err)) return -1;
    }
    return 0;
}

int workload_generate(const struct spec *spec, int ring, enum grad_mode mode, struct workload *out,
                      struct error *err) {
    *out = (struct workload){.seed = spec->seed,
                             .num_tables = spec->num_tables,
                             .num_features = spec->num_tables * spec->features_per_table,
                             .features_per_table = spec->features_per_table,
                             .column_shards = spec->column_shards,
                             .grad_type = spec->grad_type,
                             .weighted = spec->weighted,
                             .mean_of_duplicates = spec->mean_of_duplicates,
                             .varied = spec->varied,
                             .ring = ring};
    snprintf(out->name, sizeof out->name, "%s", spec->name);
    describe(spec, out->text, sizeof out->text);
    int status = 0;
    if (ring < 1 || ring > BATCHES_MAX)
        status = fail(err, "%s: a ring of %d batches; take 1 to %d", spec->name, ring, BATCHES_MAX);
    else if (workload_bytes(spec, ring) >= MOST_BYTES)
        status = fail(err, "%s: the batches need over 128 TiB; take a smaller batch", spec->name);
    else if (memory_require(workload_bytes(spec, ring), spec->name, err))
        status = -1;
    else
        status = generate(out, spec, mode, err);
    if (status) workload_free(out);
    return status;
}

void workload_free(struct workload *w) {
    for (int k = 0; w->batches && k < w->ring; k++) {
        free((void *)w->batches[k].ids);
        free((void *)w->batches[k].offsets);
        free((void *)w->batches[k].lookup_weights);
        free((void *)w->batches[k].grad);
        free((void *)w->batches[k].winners);
    }
    free(w->batches);
    free(w->tables);
    free(w->features);
    *w = (struct workload){0};
}

/* Capped, so that no sum overflows. */
static int64_t to_integer(double size) {
    return (int64_t)fmin(size, 0x1p55);
}

static double table_lookups(const struct spec *spec, int t) {
    return (double)spec->tables[t].bags * length_spec_mean(&spec->tables[t].length);
}

int64_t workload_lookups(const struct spec *spec, int ring) {
    double lookups = 0.0;
    for (int t = 0; t < spec->num_tables; t++)
        lookups += spec->features_per_table * table_lookups(spec, t);
    return to_integer(ring * lookups);
}

int64_t workload_bytes(const struct spec *spec, int ring) {
    double bytes = 8.0;
    for (int t = 0; t < spec->num_tables; t++)
        bytes +=
            spec->features_per_table * feature_bytes(spec, (double)spec->tables[t].bags,
                                                     table_lookups(spec, t), spec->tables[t].dim);
    return to_integer(ring * bytes);
}
