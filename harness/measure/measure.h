/* SPDX-License-Identifier: MIT
 *
 * One workload and everything that kernels need to run on it, on the host, on the device or on
 * both: tables, scratch, ceilings, and the row index of every batch in the ring. The driver checks
 * a kernel, samples it, and checks it again. Each place opens only what it needs itself: a run of
 * device kernels has no tables in host memory.
 */
#pragma once

#include "harness/measure/ceiling.h"
#include "harness/check/check.h"
#include "harness/workload/id_stats.h"
#include "harness/measure/runner.h"
#include "harness/workload/tables.h"
#include "harness/measure/traffic.h"
#include "harness/workload/workload.h"

enum cache_mode {
    MODE_COLD,      /* caches are flushed, and the batch is another one than before */
    MODE_WARM,      /* the same batch ran right before; its rows have been restored since */
    MODE_ITERATION, /* caches as in MODE_COLD; a whole iteration: forward, plan of the step, step */
};

struct sample {
    struct step_times times;
    struct ceiling ceiling; /* right before the step, or before one of the samples before */
    int batch;              /* its number in the ring */
    bool iteration;         /* this is a sample of an iteration */
    int rejected;           /* disturbed tries before this one */
};

/* The ceilings that were measured last. */
struct held_ceiling {
    struct ceiling latest;
    int left; /* measurements that they still hold for */
};

struct scratch_use {
    int64_t declared;          /* bytes that scratch_bytes asks for */
    int64_t observed;          /* bytes of memory that appeared during a run, -1: unknown */
    struct device_graph graph; /* nodes of a device kernel's step */
};

struct measure {
    /* Opens places; NULL: place_open(), in this process. */
    struct place *(*open)(enum backend backend, const struct place_setup *setup, struct error *err);
    struct workload *workload; /* not owned */
    /* The host's tables with the initial values of the workload, which samples and checks restore; NULL: the place
     * makes its own. Not owned. */
    struct table_set *tables;
    enum operation operation;
    int threads;
    int64_t bytes;      /* weights and states: the persistent memory of the step */
    struct rule *rules; /* [num_tables] */
    struct rule_step *steps;
    struct row_index index[RING_MAX];
    struct id_stats stats[RING_MAX];
    struct traffic traffic[RING_MAX];
    struct traffic forward_traffic[RING_MAX]; /* for the forward of an iteration */
    bool exact[RING_MAX];                     /* results are compared bit for bit */
    struct right_block *right[RING_MAX];      /* by the checks of each batch */
    /* [2] by enum backend, or NULL: times need ceilings measured beside the samples. A caller that only checks sets it
     * before it opens places: ceilings are measured once and kept here, and places opened after that neither measure
     * them nor flush caches. */
    struct ceiling *once;
    struct {
        struct place *place;          /* NULL: not open */
        struct place_scratch scratch; /* resident, large enough for every admitted kernel */
        struct place_scratch output;  /* written by iterations and by all operations but steps */
        const struct kernel *forward; /* runs in iterations; NULL: none admitted yet */
        struct held_ceiling ceiling;
    } at[2]; /* by enum backend */
};

/* The number of the measured step. In the first steps Adam's corrections are near 0. */
enum { MEASURED_STEP = 10 };

/* Indexes the batches but opens no place. operation: of the kernels that will be measured. */
int measure_open(struct measure *m, struct workload *w, enum operation operation,
                 enum grad_mode mode, int threads, struct error *err);
/* Opens what kernels of that place need. If it does not fit, fails with the figure and does not
 * affect the other place. */
int measure_open_place(struct measure *m, enum backend backend, struct error *err);
void measure_close(struct measure *m);

/* Admits a kernel: runs it once with fresh scratch and reports the memory that appeared; runs it
 * again with poisoned scratch and checks every row and all guard zones; makes its scratch resident
 * for sampling. Returns 0 if the kernel is right; -1 with the reason in err if it could not run; 1
 * with the mismatch in *out if it is wrong. Leaves the tables as before. MODE_ITERATION runs and checks
 * an iteration with the kernel, output and rows; cold and warm are the same here. An iteration has the
 * fastest recorded forward of the place, and is refused where this refuses the batches. */
int measure_admit(struct measure *m, const struct kernel *k, enum cache_mode mode,
                  struct scratch_use *use, struct check_result *out, struct error *err);

/* Makes scratch for sampling resident, for a kernel that was admitted when the same workload was open before. Returns 0,
 * or -1 with the reason in err. */
int measure_admit_again(struct measure *m, const struct kernel *k, enum cache_mode mode,
                        struct error *err);

/* The check alone, on any batch of the ring, for an admitted kernel. Returns as above. */
int measure_check(struct measure *m, const struct kernel *k, enum cache_mode mode, int batch,
                  struct check_result *out, struct error *err);

/* One timed step, or iteration, of a kernel that was admitted for it. round chooses the batch.
 * after: the cold sample of this kernel that was measured right before this warm one, on whose
 * batch it goes on; otherwise NULL, and the kernel runs before a warm sample. Returns -1 if the
 * device failed, and always on an emulated device, which has no clock. */
int measure_sample(struct measure *m, const struct kernel *k, enum cache_mode mode, int round,
                   const struct sample *after, struct sample *out, struct error *err);
