/* SPDX-License-Identifier: MIT
 *
 * One workload with all that is needed to run kernels on it, on the host, on the device or on both:
 * tables, scratch, ceilings, and for every batch of the ring its row index. A kernel is checked,
 * then sampled, then checked again. What a place needs is opened for that place alone: a run of
 * device kernels has no tables in host memory.
 */
#ifndef EMBFUSE_MEASURE_H
#define EMBFUSE_MEASURE_H

#include "harness/measure/ceiling.h"
#include "harness/check/check.h"
#include "harness/device/device_clocks.h"
#include "harness/workload/id_stats.h"
#include "harness/measure/runner.h"
#include "harness/workload/tables.h"
#include "harness/measure/traffic.h"
#include "harness/workload/workload.h"

enum cache_mode {
    MODE_COLD, /* caches flushed, another batch of the ring than before */
    MODE_WARM, /* the same batch ran right before, and its rows were restored since */
};

struct sample {
    struct step_times times;
    struct ceiling ceiling; /* right before */
    int batch;              /* which of the ring */
    int rejected;           /* tries before this one that were disturbed */
    double others;          /* environment_others(), right after */
};

struct scratch_use {
    int64_t declared;          /* bytes asked for by scratch_bytes */
    int64_t observed;          /* bytes of memory that appeared during a run, -1: unknown */
    struct device_graph graph; /* what a step of a device kernel consists of */
};

struct measure {
    struct workload *workload; /* not owned */
    int threads;
    int64_t bytes;      /* weights and states: the persistent memory of the step */
    struct rule *rules; /* [num_tables] */
    struct rule_step *steps;
    struct row_index index[RING_MAX];
    struct id_stats stats[RING_MAX];
    struct traffic traffic[RING_MAX];
    bool exact[RING_MAX]; /* results are compared bit for bit */
    struct {
        struct place *place; /* NULL: not open */
        struct place_scratch
            scratch; /* resident, large enough for every kernel that was admitted */
    } at[2];         /* by enum backend */
};

/* The step number that is measured: past the first ones, where Adam's corrections are near 0. */
enum { MEASURED_STEP = 10 };

/* Indexes the batches, and opens no place. */
int measure_open(struct measure *m, struct workload *w, enum grad_mode mode, int threads,
                 struct error *err);
/* What kernels of that place need. Fails where it does not fit, with the figure; the other place is
 * not affected. */
int measure_open_place(struct measure *m, enum backend backend, struct error *err);
void measure_close(struct measure *m);

/* Admits a kernel: runs it once with fresh scratch and says what memory appeared; runs it again
 * with poisoned scratch and checks every row and all guard zones; makes sure that sampling finds
 * its scratch resident. Returns 0 if right; -1 with the reason in err if it could not run; 1 with
 * the mismatch in *out if it is wrong. The tables are as before. */
int measure_admit(struct measure *m, const struct kernel *k, struct scratch_use *use,
                  struct check_result *out, struct error *err);

/* The check alone, on any batch of the ring, for a kernel that was admitted. Returns as above. */
int measure_check(struct measure *m, const struct kernel *k, int batch, struct check_result *out,
                  struct error *err);

/* One timed step of a kernel that was admitted. round chooses the batch. -1 if the device failed,
 * and always on an emulated one, which has no time. */
int measure_sample(struct measure *m, const struct kernel *k, enum cache_mode mode, int round,
                   struct sample *out, struct error *err);

#endif
