/* SPDX-License-Identifier: MIT
 *
 * From a spec or a trace to batches in memory. Every id, length, weight and gradient is a pure
 * function of (seed, what it is, where it stands): the same for any number of threads.
 */
#ifndef EMBFUSE_WORKLOAD_H
#define EMBFUSE_WORKLOAD_H

#include "harness/error.h"
#include "harness/workload/spec.h"
#include "kernels/kernel.h"

enum grad_mode {
    GRAD_EXACT, /* small multiples of a power of two, different in every element: sums are exact in
                   any order as long as a row's stay below 2^24 units */
    GRAD_REAL,  /* uniform in [-1, 1) */
};

enum { RING_MAX = 8 };

/* A ring of batches over the same tables and features, with different ids and gradients. */
struct workload {
    char name[SPEC_NAME_MAX];
    char text[512]; /* what it was made from, one line, for the record */
    uint64_t seed;
    int32_t num_tables, num_features;
    struct table_shape *tables; /* [ring][num_tables]: batch k has its own, with its own lookups */
    struct feature *features;   /* [ring][num_features] */
    int ring;
    struct batch batches[RING_MAX]; /* own ids, offsets, lookup_weights, grad */
};

int workload_generate(const struct spec *spec, int ring, enum grad_mode mode, struct workload *out,
                      struct error *err);

/* Cuts the trace into consecutive batches of `bags` bags (0: about 2^20 lookups each, or the whole
 * trace where it is shorter), in trace order. path may name several files joined by commas: the
 * features of one input, whose lines line up. dim, pooling, rule, seed, weighted, id_type come from
 * like. The ring is shorter where the trace is. */
int workload_from_trace(const char *path, const struct spec *like, int64_t bags, int ring,
                        enum grad_mode mode, struct workload *out, struct error *err);

/* The name of that workload: "a+b" for DIR/a.txt.gz,DIR/b.txt.gz, then the axes in like's name. */
void workload_trace_name(const char *path, const struct spec *like, char name[SPEC_NAME_MAX]);

void workload_free(struct workload *w);

/* Lookups that workload_generate will make, and bytes that it will allocate, from means: for refusal
 * before allocating. */
int64_t workload_lookups(const struct spec *spec, int ring);
int64_t workload_bytes(const struct spec *spec, int ring);

/* Fills in all that follows from the rest of a batch: its lookups, each feature's and each table's, the
 * tables' features and first rows, and the extent of the gradient. Nobody else does. Takes tables and
 * features (rows, dim, table, pooling, where gradient rows are), bags and offsets. */
void batch_derive(struct batch *in, struct table_shape *tables, struct feature *features);

/* Checks what kernels trust of a reader: offsets start at 0, never fall, end at lookups; every id is
 * inside its table. The message names feature, bag and lookup. */
int batch_validate_lookups(const struct batch *in, struct error *err);

/* The same, and that all the rest is as batch_derive() has it. */
int batch_validate(const struct batch *in, struct error *err);

/* True where the summed gradient of every row is exact in any order of summation: gradients made
 * with GRAD_EXACT, and no mean over a bag whose length is not a power of two. */
bool batch_sums_exact(const struct batch *in, enum grad_mode mode);

#endif
