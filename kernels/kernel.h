/* SPDX-License-Identifier: MIT
 *
 * The contract between a kernel and everything else. A kernel is one file kernels/<family>/<name>.c
 * (or .cu) that ends in one exported constant, DEFINE_KERNEL(<name>). The folder is the registry:
 * the Makefile lists its files, so a new kernel needs no edit elsewhere.
 *
 * One step: for every row that a batch looks up, sum all its gradients, then apply the table's rule
 * once to that row and its state. Untouched rows keep their bits.
 *
 * One forward: the output of every bag is the sum, the mean or the maximum of the rows that it looks
 * up.
 *
 * One gradient: the rows that a batch looks up and their gradients, for an optimizer elsewhere.
 *
 * One gradient of the per-sample weights: see kernels/weight_grad.h.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/rng.h"
#include "rules.h"

/* How the forward pass combined the rows of a bag. */
enum pooling {
    POOL_SUM,
    POOL_MEAN, /* the sum divided by the number of lookups that are not padding */
    POOL_NONE, /* a sequence: every lookup has its own output row and gradient row */
    POOL_MAX, /* the largest element of each column: see kernels/forward.h. A batch with such a feature
                  has no per-sample weights, and fewer than 2^31 lookups */
};

/* In winners of a column: no lookup of the bag counts. */
enum { NO_WINNER = -1 };

enum id_type { ID_INT32, ID_INT64 };

/* Where the states of a row lie. APART: in arrays of their own. BESIDE: states per row lie behind the row's weights.
 * ALL: states per element lie there, too, as in dynamicemb. Kernels see the difference only in the strides. */
enum row_state { ROW_STATE_APART, ROW_STATE_BESIDE, ROW_STATE_ALL };

/* Where this table lies inside a larger one that was split; all zeros: it was not split. Random words and initial
 * values are drawn by the place in the larger table, so a part has the bits that the larger table has there. */
struct table_part {
    int32_t table;         /* number of the larger table, less the number of this one */
    int32_t column;        /* its first column */
    int64_t row, row_skip; /* row r is row + r*(1 + row_skip) */
};

struct table_shape {
    int64_t rows;
    int32_t dim;                           /* elements per row, any value >= 1 */
    enum rule_kind rule;                   /* which state arrays the table has */
    bool adjusts;                          /* rule_adjusts() */
    enum dtype weight_type, momentum_type; /* momenta are FP32 or BF16; see table_array_type() */
    enum rounding rounding;
    uint64_t rounding_key; /* for ROUND_STOCHASTIC: rng_key(seed, number of the table) */
    enum row_state row_state;
    struct table_part part;
    int32_t features;  /* number of features that read the table */
    int64_t lookups;   /* in this batch, over those features, padding included */
    int64_t first_row; /* rows of all earlier tables; first_row + id is unique over all tables */
};

/* One input feature. Several features may read one table; the rule gets the sum over them. */
struct feature {
    int32_t table;
    enum pooling pooling;
    int64_t padding_id;  /* lookups of this row are ignored; -1: no padding */
    int64_t grad_offset; /* elements from batch.grad to the feature's first gradient row */
    int64_t grad_stride; /* elements from one gradient row to the next */
    /* In this batch: the feature's own number of bags, which may be 0, and its lookups, padding included. Of
     * both the first one, too, counted over all features in order. */
    int64_t bags, first_bag;
    int64_t lookups, first_lookup;
};

/* A batch in CSR form, read-only. Bag b of a feature is the flat bag q = first_bag + b; its lookups
 * are ids[offsets[q]] .. ids[offsets[q+1]-1]. With POOL_NONE lookup i has gradient row
 * i - first_lookup of the feature; with any other pooling the bag has gradient row b of the feature.
 * With POOL_MAX an element of that row belongs to one lookup of the bag, the winner of the column. The
 * gradient of any other lookup is 0 there. So a lookup that wins no column still touches its row. Ids
 * are row numbers local to the table; the caller has validated them. For a device kernel all
 * pointers are device memory, except tables and features: the host code of the kernel reads those,
 * the device code reads the copies device_tables and device_features. */
struct batch {
    int32_t num_tables;
    int32_t num_features;
    int64_t flat_bags; /* of all features, at least 1 */
    int64_t lookups;   /* in all of them, padding included; may be 0: a no-op */
    const struct table_shape *tables;
    const struct feature *features;
    enum id_type id_type;
    const void *ids;             /* [lookups] */
    const int64_t *offsets;      /* [flat_bags + 1] */
    const float *lookup_weights; /* [lookups]; NULL: all are 1 */
    enum dtype grad_type;        /* FP32, FP16 or BF16 */
    const void *grad;            /* upstream gradient, see struct feature */
    int64_t grad_elements;       /* its extent */
    const int32_t *winners;      /* [grad_elements], as the forward saved them: see struct launch.
                                    NULL: no feature has POOL_MAX, or only a forward runs */
    const struct table_shape *device_tables; /* NULL for a kernel that runs on the host */
    const struct feature *device_features;
};

/* Rows of elements of one type, which table_array_type() returns. */
struct array {
    void *data;     /* NULL: no such array */
    int64_t stride; /* bytes from row to row */
};

HOST_DEVICE void *array_row(const struct array *a, int64_t row) {
    char *at = (char *)a->data + row * a->stride;
#ifdef __CUDA_ARCH__
    __builtin_assume(__isGlobal(at)); /* one instruction for an access, not three */
#endif
    return at;
}

/* A table's memory, updated in place: [rows][rule_array_width()] of each array, by enum
 * table_array. */
struct table {
    union {
        struct array array[TABLE_ARRAYS];
        struct {
            struct array weight, row, elem[RULE_ELEM_STATES];
        };
    };
    struct watch *watch; /* row monitor (kernels/watch.h), or NULL. Host kernels update it */
};

/* The type of one of a table's arrays. */
HOST_DEVICE enum dtype table_array_type(const struct table_shape *t, int array) {
    const bool momentum = array >= TABLE_ELEM && rule_momenta(t->rule) >> (array - TABLE_ELEM) & 1;
    return array == TABLE_WEIGHT ? t->weight_type : momentum ? t->momentum_type : FP32;
}

/* True if some array has another type than fp32. */
HOST_DEVICE bool table_is_narrow(const struct table_shape *t) {
    return t->weight_type != FP32 || (t->momentum_type != FP32 && rule_momenta(t->rule));
}

/* The number of a row in the whole table. */
HOST_DEVICE int64_t part_row(const struct table_part *p, int64_t row) {
    return p->row + row * (1 + p->row_skip);
}

/* The key of the random words of a row of one array in a step. */
HOST_DEVICE uint32_t row_words(const struct table_shape *t, int64_t step, int array, int64_t row) {
    const uint64_t stream = (uint64_t)step * TABLE_ARRAYS + (uint64_t)array;
    return (uint32_t)rng_key(rng_key(t->rounding_key, stream), (uint64_t)part_row(&t->part, row));
}

/* How one array of a row is stored. */
struct row_format {
    enum dtype type;
    enum rounding rounding;
    uint32_t words; /* row_words() */
};

HOST_DEVICE struct row_format row_format(const struct table_shape *t, int64_t step, int array,
                                         int64_t row) {
    struct row_format f = {table_array_type(t, array), t->rounding, 0};
    if (f.type != FP32 && f.rounding == ROUND_STOCHASTIC) f.words = row_words(t, step, array, row);
    return f;
}

/* The bits of column d. */
HOST_DEVICE uint32_t row_format_bits(const struct row_format *f, int64_t d, float value) {
    const uint32_t word = f->rounding == ROUND_STOCHASTIC ? rng_u32(f->words, (uint32_t)d) : 0;
    return dtype_narrow(f->type, value, f->rounding, word);
}

/* What a kernel computes. */
enum operation { OP_STEP, OP_FORWARD, OP_GRADIENT, OP_WEIGHT_GRAD, OPERATIONS };

/* True if the operation walks bags and gathers rows of tables. All others gather gradient rows. */
static inline bool operation_gathers_rows(enum operation operation) {
    return operation == OP_FORWARD || operation == OP_WEIGHT_GRAD;
}

/* Stages of a step, in order. A kernel may skip some. A gradient ends with STAGE_REDUCE. A forward and a gradient of
 * the per-sample weights have no stages. */
enum stage {
    STAGE_INDEX, /* group the lookups by row */
    STAGE_ZERO,  /* clear gradient accumulators */
    STAGE_REDUCE, /* sum the gradients of a row into memory, or write them there if they stay unmerged */
    STAGE_UPDATE, /* apply the rule; a fused kernel also sums here */
    STAGE_COUNT
};

/* How to run a kernel. Nothing here changes the operation. */
struct launch {
    int threads;   /* host threads to use, >= 1 */
    void *stream;  /* cudaStream_t for a device kernel */
    void *scratch; /* scratch_bytes() bytes, aligned to KERNEL_ALIGN, contents undefined */
    void
        *output; /* aligned to KERNEL_ALIGN. A forward writes as many elements as batch.grad has, of
                      the same type and in the same places (kernels/forward.h). kernels/gradient.h and
                      kernels/weight_grad.h have the output of the other operations. NULL for a step */
    int32_t *winners; /* a forward with POOL_MAX writes one for each element of output, in the same
                         places: the number within the bag, from 0, of the lookup that gave the
                         column, or NO_WINNER. It leaves other features alone. Otherwise NULL */
    void (*mark)(void *ctx, enum stage ended); /* see stage_done(); may be NULL */
    void *mark_ctx;
};

enum { KERNEL_ALIGN = 256 };

enum backend { ON_HOST, ON_DEVICE };

enum trait {
    DETERMINISTIC = 1,   /* same bits on every run and for every number of threads */
    DENSE_GRAD = 2,      /* holds a gradient of all rows, touched or not */
    DENSE_STEP = 4,      /* sweeps all rows. If not rule_keeps_idle(), this is another
                            operation (torch.optim.Adam, not SparseAdam) with its own oracle;
                            otherwise the sweep skips rows whose gradient is 0 */
    STEP_PER_LOOKUP = 8, /* takes one step per lookup instead of one per summed gradient. It only
                            runs linear rules that adjust nothing, where both are the same function, but it rounds the
                            weight once per lookup. Tests compare it to the oracle with a bound
                            that includes those roundings, never bit for bit */
    OWN_LOOKUPS = 16,    /* a row's sum depends only on the row's own lookups, in their order. So a
                            batch that is split by rows gives the same bits, outside exact mode too */
    MERGED = 32,         /* the gradient is merged, see kernels/gradient.h */
};

struct kernel {
    const char *name;  /* = file name = key in results and plots */
    const char *label; /* a few words, beside the name */
    const char *idea;  /* one sentence */
    enum operation operation;
    enum backend place;
    unsigned traits; /* bits of enum trait */

    /* NULL: accepts any batch. Otherwise returns NULL for "yes" or the reason for "no". Reads only
     * the shape: tables, features, flat_bags, lookups, and whether lookup_weights is NULL.
     * kernel_refuses() asks what POOL_MAX excludes, for every kernel. */
    const char *(*accepts)(const struct batch *shape);

    /* Names the code that runs a batch of this shape. NULL: the kernel has one code for all batches. */
    const char *(*variant)(const struct batch *shape);

    /* Bytes of scratch that run needs for a batch of this shape. NULL: none. */
    size_t (*scratch_bytes)(const struct batch *shape, int threads);

    /* NULL: run does the whole step. Otherwise plan does the part that needs only the ids, for
     * systems that do this ahead of the backward pass. The caller calls it before run, on the same
     * batch and scratch; run reads its results from scratch. The step's time does not include it; an iteration's does.
     * A kernel with a plan says so in its label. */
    int (*plan)(const struct batch *in, const struct launch *how);

    /* One whole operation, index build included. steps[num_tables] and io[num_tables] are in the
     * memory of the place where the kernel runs. Only a step reads steps. run does not allocate,
     * print, exit or keep state between calls. It reads scratch only after run or plan has written
     * it. A device kernel enqueues on launch.stream and returns without waiting, so that a CUDA
     * graph can capture the step. Returns 0 or an error code of the backend (a cudaError_t); host
     * kernels cannot fail. */
    int (*run)(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how);
};

#ifdef __cplusplus
#define DEFINE_KERNEL(name)                                                                        \
    extern "C" const struct kernel kernel_##name;                                                  \
    extern "C" const struct kernel kernel_##name
#else
#define DEFINE_KERNEL(name) const struct kernel kernel_##name
#endif

/* Every kernel applies every rule, except that STEP_PER_LOOKUP needs a linear rule. (It also needs
 * one that adjusts nothing: see kernel_refuses() in harness/registry.h.) */
static inline bool kernel_applies(const struct kernel *k, enum rule_kind rule) {
    return !(k->traits & STEP_PER_LOOKUP) || rule_linear(rule);
}

/* Reports the end of a stage: the harness reads the clock (host) or records an event (device).
 * On the host one thread calls this, after a barrier. */
static inline void stage_done(const struct launch *how, enum stage ended) {
    if (how->mark) how->mark(how->mark_ctx, ended);
}

/* Element i of the gradient. */
HOST_DEVICE float batch_grad(const struct batch *in, int64_t i) {
    return dtype_get(in->grad_type, in->grad, i);
}

/* Id of lookup i. */
HOST_DEVICE int64_t batch_id(const struct batch *in, int64_t i) {
    return in->id_type == ID_INT32 ? ((const int32_t *)in->ids)[i] : ((const int64_t *)in->ids)[i];
}
