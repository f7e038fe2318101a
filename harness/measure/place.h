/* SPDX-License-Identifier: MIT
 *
 * A place is where kernels run: it holds tables, batches and scratch, runs a step, and takes its
 * time. It knows nothing of what is measured, or why. Each place owns its state, behind `struct
 * place` as its first member, so one place can wrap another: it opens the inner place, does its own
 * part of a call, and hands the call on.
 *
 * Functions return 0, or -1 and fill err. Those of the host fail only for want of memory, those of
 * the device whenever CUDA says so.
 */
#ifndef EMBFUSE_PLACE_H
#define EMBFUSE_PLACE_H

#include "harness/device/device.h"
#include "harness/device/device_clocks.h"
#include "harness/measure/ceiling.h"
#include "harness/memory.h"
#include "harness/workload/row_index.h"
#include "harness/workload/tables.h"

/* What a place works on. All of it outlives the place. */
struct place_setup {
    const struct table_shape *shapes; /* [num_tables] */
    int32_t num_tables;
    const struct batch *batches;   /* [ring] in host memory */
    const struct row_index *index; /* [ring] */
    int ring;
    int threads;   /* of the host */
    uint64_t seed; /* of the initial values of tables */
    /* Tables in host memory: a place of the host works on these, another one on a copy. NULL: the
     * place makes tables of its own, with their initial values. */
    struct table_set *tables;
    bool timed; /* ceilings() and time() will be called */
};

/* Scratch of exactly the size that was asked for, between guard zones. */
struct place_scratch {
    size_t bytes;
    void *data; /* where the place is */
    struct buffer host;
    struct device_buffer device;
};

/* One step: plan and run of a kernel. */
struct place_job {
    const struct kernel *kernel;
    int batch;
    const struct rule_step *steps; /* [num_tables] in host memory */
    struct place_scratch *scratch;
    void (*mark)(void *ctx,
                 enum stage ended); /* for run(): gets every stage that ends; may be NULL */
    void *mark_ctx;
};

/* What a step consists of, as far as the place can tell. */
struct step_parts {
    int64_t
        appeared; /* bytes of memory that appeared during a run, scratch included; -1: unknown */
    struct device_graph graph; /* all 0 on the host */
};

/* The times of a step, in seconds. */
struct step_times {
    double seconds;              /* the whole step */
    double plan;                 /* of the kernel's plan, which is no part of it; 0: none */
    double stage[STAGE_COUNT];   /* parts of it; 0 where the kernel has no such stage. On a device
                                  from a run of its own: events inside the step would lengthen it */
    struct device_clocks clocks; /* right after; of a device */
    bool disturbed; /* by a context switch on the host, by clocks or a ceiling that moved on the
                       device: the sample should be taken again */
};

struct place;

struct place_ops {
    void (*close)(struct place *p);

    int (*scratch_open)(struct place *p, struct place_scratch *s, size_t bytes, const char *what,
                        struct error *err);
    void (*scratch_close)(struct place *p, struct place_scratch *s);
    int (*scratch_fill)(struct place *p, struct place_scratch *s, int byte, struct error *err);

    /* Runs a step and waits for its end. */
    int (*run)(struct place *p, const struct place_job *job, struct error *err);
    /* The same with fresh scratch: what it consists of. */
    int (*parts)(struct place *p, const struct place_job *job, struct step_parts *out,
                 struct error *err);
    /* The same, timed; on flushed caches if cold. A kernel's plan runs before the flush. */
    int (*time)(struct place *p, const struct place_job *job, bool cold, struct step_times *out,
                struct error *err);
    /* Measures the ceilings, and with them evicts the caches. */
    int (*ceilings)(struct place *p, struct ceiling *out, struct error *err);

    /* Initial values for the rows that a batch touches, or, for batch -1, for all rows. */
    int (*restore)(struct place *p, int batch, struct error *err);
    /* The tables, if they are in host memory; or NULL, and: */
    const struct table *(*tables)(struct place *p);
    /* copies rows begin .. end-1 of a table to *rows, arrays in host memory whose first row is
     * begin. */
    int (*get_rows)(struct place *p, int32_t table, int64_t begin, int64_t end, struct table *rows,
                    struct error *err);
    /* Fails, and says what, if somebody wrote outside of scratch or tables, or to a batch. */
    int (*intact)(struct place *p, int batch, const struct place_scratch *s, struct error *err);
};

struct place {
    const struct place_ops *ops;
};

/* Opens a place of that kind. Refuses, with the figure, before it allocates what is not there. */
struct place *place_host_open(const struct place_setup *setup, struct error *err);
struct place *place_device_open(const struct place_setup *setup, struct error *err);

static inline struct place *place_open(enum backend kind, const struct place_setup *setup,
                                       struct error *err) {
    return kind == ON_HOST ? place_host_open(setup, err) : place_device_open(setup, err);
}

/* All tables, copied to tables of the same shapes in host memory. */
int place_get_tables(struct place *p, struct table_set *to, struct error *err);

static inline const char *place_name(enum backend kind) {
    return kind == ON_HOST ? "host" : "device";
}

#endif
