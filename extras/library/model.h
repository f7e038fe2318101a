/* SPDX-License-Identifier: MIT
 *
 * What the parts of the library share.
 *
 *     model.c      makes a model, binds its arrays, sets its hyper-parameters
 *     batch.c      checks a batch, and lays it out for kernels
 *     run.c        forward and step
 *     call.c       one call of a model at a time; calls in a child of fork()
 *     device.c     what a call sends to a device
 *     schedule.c   learning rates
 *     average.c    SWA and EMA
 *     admission.c  which ids train
 *     monitor.c    what steps do to rows
 *     nonfinite.c  gradients with inf or NaN
 *     state.h      save and load: state_*.c, with libjansson
 *     frozen.c     frozen tables, which need no model
 *     status.c     statuses and versions
 */
#pragma once

#include "extras/library/embfuse.h"

#include "harness/device/device.h"
#include "harness/error.h"
#include "kernels/kernel.h"

/* The most steps that a table can have taken; a state cannot hold more. */
#define MODEL_STEPS_MAX (INT64_MAX / 2)

/* Inf and NaN in the gradients of a table's features. */
struct nonfinite {
    struct embfuse_nonfinite_counts so_far;
    bool now; /* the step that is under way has some */
};

struct embfuse_model {
    enum backend place;
    int threads;
    enum dtype grad_type;
    uint64_t rounding_seed;              /* the shapes have the keys that come from it */
    const struct kernel *step, *forward; /* NULL: auto chooses for each batch */
    int32_t num_tables, num_features;
    struct table_shape *shapes; /* [num_tables]; lookups and features are those of the last batch */
    struct feature *features;   /* [num_features]; so are lookups and the layout */
    int64_t *no_offsets;        /* [num_features + 1] zeros: on the host of a bag without lookups */
    bool default_layout;        /* the features have no grad_stride of their own */
    struct rule *rules;         /* [num_tables] */
    struct rule_step *steps;    /* [num_tables] those of the last step; number is that of it */
    struct table *tables;       /* [num_tables] the caller's arrays */
    int32_t weights_missing, states_missing; /* arrays that are not bound yet */
    int32_t nonfinite_mode;                  /* enum embfuse_nonfinite */
    struct nonfinite *nonfinite;             /* [num_tables] */
    struct {
        void *data; /* NULL: none yet */
        size_t bytes;
        bool callers;
        struct device_buffer device; /* owns data on a device */
    } scratch;
    struct device_call *call; /* NULL on the host */
    bool busy;                /* a call is under way; call.c alone reads it, atomically */
};

/* Writes a message to why, which may be NULL, and returns the status. */
int said(struct embfuse_error *why, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* A call of a model. call_begin() refuses a second one at the same time. */
struct call {
    const struct embfuse_model *m; /* NULL: it was refused */
};
int call_begin(struct call *c, const struct embfuse_model *m, struct embfuse_error *why);
void call_end(struct call *c);

/* Begins a call, which ends with the function. Every function of the header that reads what another one writes begins
 * with it, and none calls another such function. */
#define IN_CALL(model, why)                                                                        \
    struct call call __attribute__((cleanup(call_end))) = {NULL};                                  \
    const int refused = call_begin(&call, model, why);                                             \
    if (refused) return refused

/* 0, or EMBFUSE_FORKED: this process cannot run so many threads. To be asked before each parallel region. */
int has_threads(int threads, struct embfuse_error *why);

bool has_table(const struct embfuse_model *m, int32_t table);
int no_table(int32_t table, struct embfuse_error *why);

/* Array number `array` of the caller as enum table_array; -1: the table has no such array. */
int array_of(const struct embfuse_model *m, int32_t table, int32_t array);

/* The name of an enum table_array. */
static inline const char *array_name(int array) {
    static const char *const names[] = {"weight", "row_state", "state.0", "state.1", "state.2"};
    return names[array];
}

/* embfuse_set() within a call. */
int set_hyper(struct embfuse_model *m, int32_t table, const char *name, double value,
              struct embfuse_error *why);

void free_scratch(struct embfuse_model *m);

/* Changes the seed of stochastic rounding. */
void set_rounding_seed(struct embfuse_model *m, uint64_t seed);

/* Are the weights bound, and the states if wanted? */
int check_bound(const struct embfuse_model *m, bool states, struct embfuse_error *why);

static inline enum id_type id_type_of(int32_t type) {
    return type == EMBFUSE_INT32 ? ID_INT32 : ID_INT64;
}

/* The bags of all features; -1: a number is negative or too large. */
int64_t batch_bags(const struct embfuse_model *m, const struct embfuse_batch *batch);

/* The batch as a kernel reads it, with grad NULL. Checks it unless it is trusted. `derived` outlives it. */
int batch_of(struct embfuse_model *m, const struct embfuse_batch *batch, struct batch *out,
             struct embfuse_error *why);

/* Does a kernel see each touched row once? */
static inline bool watches(const struct kernel *k) {
    return k->place == ON_HOST && !(k->traits & (DENSE_STEP | STEP_PER_LOOKUP));
}

void monitor_stop(struct table *table);

/* Counts the inf and NaN in the gradient of a batch. Returns true if a lookup gets some. */
bool count_nonfinite(struct embfuse_model *m, const struct batch *in);

/* --- a device: what describes a call goes there as one block, on the stream of the batch */

int device_call_open(struct embfuse_model *m, struct error *err);
void device_call_close(struct embfuse_model *m);
/* Fills in the lookups of each feature. */
int device_call_lookups(struct embfuse_model *m, const struct embfuse_batch *batch,
                        struct error *err);
/* no_offsets on the device, from device_call_send() on. */
const int64_t *device_call_no_offsets(const struct embfuse_model *m);
/* ids and offsets, as batch_validate_lookups(). -1: they are wrong; -2: the device failed. */
int device_call_validate(struct embfuse_model *m, const struct batch *in, void *stream,
                         struct error *err);
/* Sends shapes, features, steps and tables, and sets in->device_tables and in->device_features. */
int device_call_send(struct embfuse_model *m, struct batch *in, void *stream,
                     const struct rule_step **steps, const struct table **tables,
                     struct error *err);
