/* SPDX-License-Identifier: MIT
 *
 * Workloads from recorded ids, in their order: one file is one feature with a table of its own.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/trace.h"
#include "harness/workload/batch_fill.h"
#include "harness/memory.h"
#include "harness/workload/spec_keys.h"
#include "harness/workload/workload.h"

enum { PATH_MAX_BYTES = 4096, TARGET_LOOKUPS = 1 << 20 };

struct input {
    int count;
    struct trace *traces; /* [count] */
    int64_t lookups;      /* of all */
    bool own_bags;        /* a batch takes a number of bags of its own of each */
    int64_t *bags;        /* [count] of a batch */
};

static void input_free(struct input *in) {
    for (int f = 0; f < in->count; f++) trace_free(&in->traces[f]);
    free(in->traces);
    free(in->bags);
    *in = (struct input){0};
}

static int input_read_one(struct input *in, const char *path, struct error *err) {
    struct trace *t = &in->traces[in->count];
    if (trace_read(path, t, err)) return -1;
    in->count++;
    in->lookups += t->lookups;
    if (in->own_bags || t->bags == in->traces[0].bags) return 0;
    return fail(
        err,
        "%s: %lld bags where the first file has %lld; the files of one input line up, unless "
        "a batch has its own number for each: BATCH=B+C",
        path, (long long)t->bags, (long long)in->traces[0].bags);
}

/* path: file names joined by commas. */
static int input_read(struct input *in, const char *path, struct error *err) {
    char paths[PATH_MAX_BYTES], *rest = paths;
    int files = 1, status = 0;
    for (const char *c = path; *c; c++) files += *c == ',';
    if (strlen(path) >= sizeof paths) return fail(err, "%.60s...: path too long", path);
    in->traces = calloc((size_t)files, sizeof *in->traces);
    in->bags = calloc((size_t)files, sizeof *in->bags);
    if (!in->traces || !in->bags) return fail(err, "%s: out of memory", path);
    strcpy(paths, path);
    while (status == 0 && rest) status = input_read_one(in, strsep(&rest, ","), err);
    return status;
}

/* "key:value" of a key that says what ids and tables are drawn: a trace has its own. */
static bool is_drawn(const char *axis) {
    static const enum key drawn[] = {KEY_ROWS,  KEY_LENGTH, KEY_IDS,  KEY_ALPHA,
                                     KEY_SHIFT, KEY_MAP,    KEY_REUSE};
    const size_t key = strcspn(axis, ":");
    for (size_t i = 0; i < sizeof drawn / sizeof *drawn; i++)
        if (strlen(key_name(drawn[i])) == key && strncmp(axis, key_name(drawn[i]), key) == 0)
            return true;
    return false;
}

/* "a+b" of DIR/a.txt.gz,DIR/b.txt.gz, or "a+25_more", and the axes of the point that it runs with. */
void workload_trace_name(const char *path, const struct spec *like, char name[SPEC_NAME_MAX]) {
    enum { NAMED = 3, FILE_MAX = SPEC_NAME_MAX / 6 };
    char paths[PATH_MAX_BYTES], axes[SPEC_NAME_MAX], *rest = paths;
    int files = 1, named = 0;
    for (const char *c = path; *c; c++) files += *c == ',';
    snprintf(paths, sizeof paths, "%s", path);
    name[0] = '\0';
    for (; rest && named < (files > NAMED ? 1 : files); named++) {
        const char *file = basename(strsep(&rest, ","));
        const int length = (int)strcspn(file, ".");
        text_add(name, SPEC_NAME_MAX, "%s%.*s", named ? "+" : "",
                 length < FILE_MAX ? length : FILE_MAX, file);
    }
    if (named < files) text_add(name, SPEC_NAME_MAX, "+%d_more", files - named);
    for (char *c = name; *c; c += utf8_size(c) ? utf8_size(c) : 1)
        if (iscntrl((unsigned char)*c) || utf8_size(c) == 0) *c = '?';
    snprintf(axes, sizeof axes, "%s", like->name);
    rest = axes;
    strsep(&rest, "/");
    while (rest) {
        const char *axis = strsep(&rest, "/");
        if (!is_drawn(axis)) text_add(name, SPEC_NAME_MAX, "/%s", axis);
    }
}

static int require_no_cut(const struct spec *like, const char *path, struct error *err) {
    const struct {
        enum key key;
        int64_t value;
    } cuts[] = {{KEY_MICRO_BATCHES, like->micro_batches},
                {KEY_COLUMN_SHARDS, like->column_shards},
                {KEY_FEATURES, like->features_per_table}};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        if (cuts[i].value > 1)
            return fail(err,
                        "%s: %s does not apply to a trace, which is one batch after the other and "
                        "a table for "
                        "each file; leave it out",
                        path, key_name(cuts[i].key));
    return 0;
}

/* Of batch k. */
static int64_t *cut_offsets(const struct input *in, int k) {
    int64_t flat_bags = 0;
    for (int f = 0; f < in->count; f++) flat_bags += in->bags[f];
    int64_t *offsets = array_alloc(flat_bags + 1, sizeof *offsets), *to = offsets;
    if (!offsets) return NULL;
    *to = 0;
    for (int f = 0; f < in->count; f++) {
        const int64_t *from = in->traces[f].offsets + k * in->bags[f];
        for (int64_t b = 0; b < in->bags[f]; b++, to++) to[1] = to[0] + from[b + 1] - from[b];
    }
    return offsets;
}

static void cut_ids(const struct input *in, int k, const struct batch *batch, void *ids) {
    for (int f = 0; f < in->count; f++) {
        const struct feature *x = &batch->features[f];
        const int64_t *from = in->traces[f].ids + in->traces[f].offsets[k * x->bags];
        for (int64_t i = 0; i < x->lookups; i++)
            put_id(batch->id_type, ids, x->first_lookup + i, from[i]);
    }
}

static int cut(struct workload *w, const struct input *in, const struct spec *like,
               enum grad_mode mode, struct error *err) {
    if (workload_begin(w, like->id_type, err)) return -1;
    for (int f = 0; f < in->count; f++) {
        int64_t rows = in->traces[f].rows;
        if (like->id_type == ID_INT32 && rows > (int64_t)INT32_MAX + 1)
            return fail(err, "%s: ids up to %lld are too large for int32; take int64", w->name,
                        (long long)rows - 1);
        w->tables[f] = spec_table(like, 0);
        w->tables[f].rows = rows;
        w->tables[f].rounding_key = rng_key(like->seed, (uint64_t)f);
        w->features[f] = (struct feature){.table = f,
                                          .bags = in->bags[f],
                                          .pooling = like->pooling,
                                          .padding_id = like->padding_id};
    }
    for (int k = 0; k < w->ring; k++) {
        int64_t *offsets = cut_offsets(in, k);
        if (!offsets) return fail(err, "%s: out of memory for offsets", w->name);
        void *ids = batch_lay_out(w, k, offsets, err);
        if (!ids) return -1;
        cut_ids(in, k, &w->batches[k], ids);
        if (batch_fill(w, k, mode, err)) return -1;
    }
    return 0;
}

/* Bytes of the ring's batches. */
static int64_t ring_bytes(const struct input *in, const struct spec *like, int ring) {
    double bytes = 0;
    for (int f = 0; f < in->count; f++)
        bytes +=
            feature_bytes(like, (double)(ring * in->bags[f]),
                          (double)in->traces[f].offsets[ring * in->bags[f]], like->tables[0].dim);
    return (int64_t)bytes;
}

/* Bags of a batch of about TARGET_LOOKUPS, if the caller sets no number. */
static int64_t default_bags(const struct input *in) {
    const double all = (double)in->traces[0].bags;
    double bags = rint(all * TARGET_LOOKUPS / (double)in->lookups);
    if (bags >= all) return in->traces[0].bags;
    return bags >= 1.0 ? (int64_t)bags : 1;
}

/* Sets the bags of a batch, and how many batches the files have, `ring` at most. */
static int choose_bags(struct input *in, const char *path, const struct spec *like, int *ring,
                       struct error *err) {
    if (like->num_batches > 1 && like->num_batches != in->count)
        return fail(err, "%s: %d files, but batches of %d numbers of bags; give one for each file",
                    path, in->count, like->num_batches);
    for (int f = 0; f < in->count; f++) {
        const int64_t all = in->traces[f].bags, bags = like->num_batches
                                                           ? like->batches[f % like->num_batches]
                                                           : default_bags(in);
        if (bags < 1 || bags > all)
            return fail(err, "%s: a batch of %lld bags from a trace of %lld; take 1 to %lld", path,
                        (long long)bags, (long long)all, (long long)all);
        in->bags[f] = bags;
        if (all / bags < *ring) *ring = (int)(all / bags);
    }
    return 0;
}

static int from_input(struct input *in, const char *path, const struct spec *like, int ring,
                      enum grad_mode mode, struct workload *out, struct error *err) {
    struct spec described = *like;
    if (choose_bags(in, path, like, &ring, err)) return -1;
    if (!like->num_batches) described.num_batches = 1, described.batches[0] = in->bags[0];
    out->num_tables = out->num_features = in->count;
    out->grad_type = like->grad_type;
    out->weighted = like->weighted;
    out->mean_of_duplicates = like->mean_of_duplicates;
    out->varied = like->varied;
    out->ring = ring;
    snprintf(out->text, sizeof out->text, "trace %.200s ", out->name);
    spec_describe_batch(&described, out->text, sizeof out->text);
    text_add(out->text, sizeof out->text,
             " dim %d pooling %s weighted %d id_type %s rule %s seed %llu", like->tables[0].dim,
             key_word(KEY_POOLING, (int)like->pooling), like->weighted,
             key_word(KEY_ID_TYPE, (int)like->id_type), rule_info(like->rule).name,
             (unsigned long long)like->seed);
    if (like->padding_id >= 0)
        text_add(out->text, sizeof out->text, " padding %lld", (long long)like->padding_id);
    spec_describe_others(like, out->text, sizeof out->text);
    if (memory_require(ring_bytes(in, like, out->ring), out->name, err)) return -1;
    return cut(out, in, like, mode, err);
}

int workload_from_trace(const char *path, const struct spec *like, int ring, enum grad_mode mode,
                        struct workload *out, struct error *err) {
    struct input in = {.own_bags = like->num_batches > 1};
    *out = (struct workload){.seed = like->seed, .features_per_table = 1, .column_shards = 1};
    workload_trace_name(path, like, out->name);
    int status = 0;
    if (ring < 1 || ring > BATCHES_MAX)
        status = fail(err, "%s: a ring of %d batches; take 1 to %d", path, ring, BATCHES_MAX);
    if (status == 0) status = require_no_cut(like, path, err);
    if (status == 0) status = input_read(&in, path, err);
    if (status == 0) status = from_input(&in, path, like, ring, mode, out, err);
    input_free(&in);
    if (status) workload_free(out);
    return status;
}
