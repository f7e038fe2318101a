/* SPDX-License-Identifier: MIT
 *
 * A place is where kernels run: it holds tables, batches and scratch, runs a step, and times it. It
 * does not know what is measured, or why. Each place owns its state, and the first member of that
 * state is `struct place`. So one place can wrap another: it opens the inner place, does its own
 * part of a call, and passes the call on.
 *
 * Functions return 0, or -1 and fill err. The host's functions fail only if memory runs out or a
 * kernel reports an error, the device's whenever CUDA reports one.
 */
#pragma once

#include "harness/device/device.h"
#include "harness/device/device_clocks.h"
#include "harness/measure/ceiling.h"
#include "harness/memory.h"
#include "harness/workload/row_index.h"
#include "harness/workload/tables.h"
#include "harness/workload/workload.h"

/* A place of a device, or of ranks, has room for so many batches. */
enum { PLACE_RING_MAX = 3 * RING_MAX };

/* The data that a place works on. All of it outlives the place. */
struct place_setup {
    const struct table_shape *shapes; /* [num_tables] */
    int32_t num_tables;
    const struct batch *batches;   /* [ring] in host memory */
    const struct row_index *index; /* [ring] */
    int ring;
    int threads;   /* on the host */
    uint64_t seed; /* for the tables' initial values */
    /* Tables in host memory: the host's place works on these, the device's on a copy. NULL: the
     * place makes its own tables with initial values. */
    struct table_set *tables;
    bool timed;               /* ceilings() and time() will be called */
    enum operation operation; /* its ceilings are measured */
};

/* Scratch of exactly the requested size, between guard zones. */
struct place_scratch {
    size_t bytes;
    void *data; /* in the memory of the place */
    struct buffer host;
    struct device_buffer device;
};

/* One step, or another operation: plan and run of a kernel. Or one iteration: a forward, then plan and
 * run of a step on the same batch. */
struct place_job {
    const struct kernel *kernel;
    const struct kernel *forward; /* only in an iteration; it has no plan and no scratch */
    int batch;
    const struct rule_step *steps; /* [num_tables] in host memory */
    struct place_scratch *scratch;
    struct place_scratch *output; /* a step alone has NULL; for a forward see forward_lay_out() */
    bool planned;                 /* plan() was called: run() leaves the plan out */
    void (*mark)(void *ctx, enum stage ended); /* run() calls it when a stage ends; may be NULL */
    void *mark_ctx;
};

/* The memory and the launches of a step, as far as the place can tell. */
struct step_parts {
    int64_t appeared; /* bytes of memory that appeared in a run, with its scratch; -1: unknown */
    struct device_graph graph; /* all 0 on the host */
};

/* A counter of the record that only one kind of place has. */
struct place_counter {
    char name[48];
    double value;
};

/* The times of a step or an iteration, in seconds. */
struct step_times {
    double seconds; /* the whole step or iteration */
    double forward; /* part of an iteration; 0: a step */
    double plan; /* the kernel's plan, outside the step but part of an iteration; 0: it has none */
    /* Parts of the step; 0: no such stage. A device times stages, and the parts of an iteration, in a separate run,
     * because events inside the step lengthen it. */
    double stage[STAGE_COUNT];
    double replay;               /* a device repeats the same as a CUDA graph; 0 on the host */
    struct device_clocks clocks; /* a device's clocks right after the step */
    int num_counters;
    const struct place_counter *counters; /* [num_counters] until the next call */
    bool disturbed; /* waiting for a CPU on the host, or a moving clock or ceiling on the device,
                       disturbed the sample: take it again */
};

struct place;

struct place_ops {
    void (*close)(struct place *p);

    /* Bytes of scratch that a kernel needs here for any of the batches. Fails if it refuses one. */
    int (*scratch_bytes)(struct place *p, const struct kernel *k, size_t *bytes, struct error *err);
    int (*scratch_open)(struct place *p, struct place_scratch *s, size_t bytes, const char *what,
                        struct error *err);
    void (*scratch_close)(struct place *p, struct place_scratch *s);
    int (*scratch_fill)(struct place *p, struct place_scratch *s, int byte, struct error *err);
    /* Copies all of it to host memory. */
    int (*scratch_get)(struct place *p, const struct place_scratch *s, void *to, struct error *err);

    /* Runs the plan of a step, for a run() that leaves it out. */
    int (*plan)(struct place *p, const struct place_job *job, struct error *err);
    /* Evicts the caches. */
    int (*flush)(struct place *p, struct error *err);
    /* A batch in host memory has changed: its ids, weights and, if it is not NULL, gradient, but not its shape. */
    int (*renew)(struct place *p, int batch, struct error *err);
    /* Runs a step and waits for its end. */
    int (*run)(struct place *p, const struct place_job *job, struct error *err);
    /* Runs it with fresh scratch, and reports its memory and its launches. */
    int (*parts)(struct place *p, const struct place_job *job, struct step_parts *out,
                 struct error *err);
    /* Runs and times it, with flushed caches if cold. A step's plan runs before the flush; in an
     * iteration, the forward and the plan run after it. */
    int (*time)(struct place *p, const struct place_job *job, bool cold, struct step_times *out,
                struct error *err);
    /* Measures the ceilings, which also evicts the caches. */
    int (*ceilings)(struct place *p, struct ceiling *out, struct error *err);

    /* Writes initial values to the rows that a batch touches; batch -1: to all rows. */
    int (*restore)(struct place *p, int batch, struct error *err);
    /* The tables if they are in host memory; otherwise NULL, and get_rows() copies them. */
    const struct table *(*tables)(struct place *p);
    /* Copies rows begin .. end-1 of a table to *rows: arrays in host memory that start with row
     * begin. */
    int (*get_rows)(struct place *p, int32_t table, int64_t begin, int64_t end, struct table *rows,
                    struct error *err);
    /* A batch and the tables in the memory of a device. NULL elsewhere. */
    const struct device_batch *(*device_batch)(struct place *p, int batch);
    const struct device_tables *(*device_tables)(struct place *p);
    /* Returns 1, and says in err what it was, if anything wrote outside scratch or tables, or to a
     * batch or the steps; -1 if this place cannot check. */
    int (*intact)(struct place *p, int batch, const struct place_scratch *s, struct error *err);
};

struct place {
    const struct place_ops *ops;
    bool sums_in_parts; /* outputs of its forwards are sums of partial sums */
};

/* place_ops.scratch_bytes of a place of one process. */
int setup_scratch_bytes(const struct place_setup *setup, const struct kernel *k, size_t *bytes,
                        struct error *err);

/* Scratch in host memory, for places that have some there. */
int place_scratch_open(struct place *p, struct place_scratch *s, size_t bytes, const char *what,
                       struct error *err);
void place_scratch_close(struct place *p, struct place_scratch *s);
int place_scratch_get(struct place *p, const struct place_scratch *s, void *to, struct error *err);

/* place_ops.tables of a place whose tables are not in host memory. */
const struct table *place_tables_elsewhere(struct place *p);

/* Both open a place. If memory is too small, they refuse with the figure before they allocate. */
struct place *place_host_open(const struct place_setup *setup, struct error *err);
struct place *place_device_open(const struct place_setup *setup, struct error *err);

static inline struct place *place_open(enum backend kind, const struct place_setup *setup,
                                       struct error *err) {
    return kind == ON_HOST ? place_host_open(setup, err) : place_device_open(setup, err);
}

static inline const char *place_name(enum backend kind) {
    return kind == ON_HOST ? "host" : "device";
}
