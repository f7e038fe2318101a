/* SPDX-License-Identifier: MIT
 *
 * One workload with all that is needed to run kernels on it: tables, scratch, ceilings, and for
 * every batch of the ring its row index. A kernel is checked, then sampled, then checked again.
 */
#ifndef EMBFUSE_MEASURE_H
#define EMBFUSE_MEASURE_H

#include "harness/ceiling.h"
#include "harness/check.h"
#include "harness/id_stats.h"
#include "harness/tables.h"
#include "harness/workload.h"

enum cache_mode {
    MODE_COLD, /* caches flushed, another batch of the ring than before */
    MODE_WARM, /* the same batch ran right before, and its rows were restored since */
};

struct sample {
    double seconds;            /* the whole step */
    double stage[STAGE_COUNT]; /* parts of it; 0 where the kernel has no such stage */
    struct ceiling ceiling;    /* right before */
    int batch;                 /* which of the ring */
    int rejected;              /* tries before this one that a context switch disturbed */
    bool disturbed;            /* and so was this one, the last */
};

struct scratch_use {
    int64_t declared; /* bytes asked for by scratch_bytes */
    int64_t observed; /* resident bytes that appeared during a run, -1: unknown */
};

struct measure {
    struct workload *workload; /* not owned */
    int threads;
    struct table_set tables;
    struct rule *rules; /* [num_tables] */
    struct rule_step *steps;
    struct row_index index[RING_MAX];
    struct id_stats stats[RING_MAX];
    int64_t compulsory[RING_MAX]; /* bytes */
    bool exact[RING_MAX];         /* results are compared bit for bit */
    struct ceiling_probe ceilings;
    struct buffer scratch; /* resident, large enough for every kernel that was admitted */
};

/* The step number that is measured: past the first ones, where Adam's corrections are near 0. */
enum { MEASURED_STEP = 10 };

int measure_open(struct measure *m, struct workload *w, enum grad_mode mode, int threads,
                 struct error *err);
void measure_close(struct measure *m);

/* Admits a kernel: runs it once with fresh scratch pages and says what memory appeared; runs it
 * again with poisoned scratch and checks every row and all guard zones; makes sure that sampling
 * finds its scratch resident. Returns 0 if right; -1 with the reason in err if it could not run; 1
 * with the mismatch in *out if it is wrong. The tables are as before. */
int measure_admit(struct measure *m, const struct kernel *k, struct scratch_use *use,
                  struct check_result *out, struct error *err);

/* The check alone, on any batch of the ring, for a kernel that was admitted. True if right. */
bool measure_check(struct measure *m, const struct kernel *k, int batch, struct check_result *out);

/* One timed step of a kernel that was admitted. round chooses the batch. */
void measure_sample(struct measure *m, const struct kernel *k, enum cache_mode mode, int round,
                    struct sample *out);

/* Bytes that measure_open will allocate for a workload beside its batches. */
int64_t measure_bytes(const struct table_shape *tables, int32_t count, int64_t lookups, int ring);

#endif
