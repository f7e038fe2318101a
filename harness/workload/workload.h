/* SPDX-License-Identifier: MIT
 *
 * Makes batches in memory from a spec or a trace. Every id, length, weight and gradient is a pure
 * function of (seed, stream, position), so it does not depend on the number of threads.
 */
#pragma once

#include "harness/error.h"
#include "harness/workload/spec.h"
#include "kernels/kernel.h"

enum grad_mode {
    GRAD_EXACT, /* small multiples of a power of two, different in every element: a row's sum is
                   exact in any order while it stays below 2^24 units */
    GRAD_REAL,  /* uniform in [-1, 1) */
};

enum {
    RING_MAX = 8,      /* batches that the bench program goes round */
    BATCHES_MAX = 4096 /* in a workload */
};

/* A ring of batches over the same tables and features, with different ids and gradients. */
struct workload {
    char name[SPEC_NAME_MAX];
    char text[512]; /* its origin in one line, for the record */
    uint64_t seed;
    int32_t num_tables, num_features;
    int32_t features_per_table, column_shards; /* see spec.h; 1 for a trace */
    enum dtype grad_type;
    bool weighted;              /* random per-sample weights */
    bool mean_of_duplicates;    /* they are divided by the lookups of their row */
    bool varied;                /* see workload_rule() */
    struct table_shape *tables; /* [ring][num_tables]: batch k has its own, with its own lookups */
    struct feature *features;   /* [ring][num_features] */
    int ring;
    struct batch *batches; /* [ring], with own ids, offsets, lookup_weights, grad, winners */
};

/* Refuses a workload that does not fit into memory before it allocates. */
int workload_generate(const struct spec *spec, int ring, enum grad_mode mode, struct workload *out,
                      struct error *err);

/* Cuts the trace into consecutive batches, in trace order. path may name several files, joined by commas, each of them
 * one feature. like says how many bags a batch takes of each: one number for all, and line n of each file is one
 * feature of sample n; a number for each; or none: about 2^20 lookups in each batch, or the whole trace if it is
 * shorter. dim, pooling, rule, seed, weighted and id_type come from like, too. A short trace makes a shorter ring. */
int workload_from_trace(const char *path, const struct spec *like, int ring, enum grad_mode mode,
                        struct workload *out, struct error *err);

/* The name of that workload: "a+b" for DIR/a.txt.gz,DIR/b.txt.gz, plus the axes in like's name. */
void workload_trace_name(const char *path, const struct spec *like, char name[SPEC_NAME_MAX]);

/* The number that feature f would have if tables were not cut by columns. Features that share it have the same lookups
 * and per-sample weights. */
int32_t workload_origin(const struct workload *w, int32_t f);

/* The rule of table t with its hyper-parameters. */
struct rule workload_rule(const struct workload *w, int32_t t);

void workload_free(struct workload *w);

/* Expected lookups and bytes of workload_generate(), from means: callers refuse a workload before
 * it allocates. */
int64_t workload_lookups(const struct spec *spec, int ring);
int64_t workload_bytes(const struct spec *spec, int ring);

/* Derives fields of a batch from tables and features (rows, dim, table, pooling, bags, position of
 * gradient rows) and offsets: the bags and lookups of the batch, of each feature and of each table,
 * the tables' features and first rows, and the extent of the gradient. No other code sets these
 * fields. */
void batch_derive(struct batch *in, struct table_shape *tables, struct feature *features);

/* The three parts of batch_derive(): one numbers the bags of the features and returns how many there are, one counts
 * the lookups of each feature, too, and the last one derives all else. */
int64_t batch_number_bags(struct feature *features, int32_t count);
void batch_count(const struct batch *in, struct feature *features);
void batch_derive_counted(struct batch *in, struct table_shape *tables, struct feature *features);

/* Lays out gradient rows by the bags and lookups of each feature. Pooled features are columns of one matrix
 * [bags][sum of their dims]. Behind it, sequences follow one another, [lookups][dim] each. If pooled features have
 * different numbers of bags, there is no matrix, and all features follow one another, [bags][dim] or [lookups][dim]
 * each (as TorchRec's variable batch). */
void batch_lay_out_rows(const struct table_shape *tables, struct feature *features, int32_t count);

/* The bags of each feature; -1: they differ. */
int64_t batch_common_bags(const struct batch *in);

/* Checks what kernels trust: offsets start at 0, never fall and end at lookups; every id is inside
 * its table. The message names feature, bag and lookup. */
int batch_validate_lookups(const struct batch *in, struct error *err);

/* Does the same, and checks every field that batch_derive() sets, and the winners if there are any. */
int batch_validate(const struct batch *in, struct error *err);

/* The gradient as an array: a matrix as above; otherwise [all rows][dim], or flat if dims differ. Returns the number of
 * dimensions. */
int batch_grad_shape(const struct batch *in, int64_t shape[2]);

/* True if the summed gradient of every row is exact in any order: the gradients are GRAD_EXACT, and
 * every bag with a mean has a power of two as length. */
bool batch_sums_exact(const struct batch *in, enum grad_mode mode);
