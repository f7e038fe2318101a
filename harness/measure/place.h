/* SPDX-License-Identifier: MIT
 *
 * What differs between measuring on the host and on a device. The flow is measure.c's and the same
 * for both: a kernel is admitted, checked, sampled, checked again. A place knows how to do each
 * single thing where its kernels run. Functions return 0, or -1 and fill err; those of the host
 * fail only for want of memory, those of the device whenever CUDA says so.
 */
#ifndef EMBFUSE_PLACE_H
#define EMBFUSE_PLACE_H

#include "harness/measure/ceiling.h"
#include "harness/check/check.h"
#include "harness/device/device.h"
#include "harness/memory.h"

struct measure;
struct sample;

/* Scratch of exactly the size that was asked for, between guard zones. */
struct place_scratch {
    size_t bytes;
    void *data; /* where the place is */
    struct buffer host;
    struct device_buffer device;
};

/* What a step consists of, as far as the place can tell. */
struct step_parts {
    int64_t
        appeared; /* bytes of memory that appeared during a run, scratch included; -1: unknown */
    struct device_graph graph; /* all 0 on the host */
};

struct place_ops {
    /* Tables with their initial values, the ring of batches, ceilings: all that is not scratch.
     * Refuses, with the figure, before it allocates what is not there. */
    int (*open)(struct measure *m, struct error *err);
    void (*close)(struct measure *m);

    int (*scratch_open)(struct place_scratch *s, size_t bytes, const char *what, struct error *err);
    void (*scratch_close)(struct place_scratch *s);
    int (*poison)(struct place_scratch *s, struct error *err);

    /* False if somebody wrote outside of scratch or tables. */
    bool (*intact)(struct measure *m, const struct place_scratch *s);

    /* One step on batch b, plan included. */
    int (*step)(struct measure *m, const struct kernel *k, int b, void *scratch, struct error *err);
    /* One step with fresh scratch: what it consists of. */
    int (*parts)(struct measure *m, const struct kernel *k, int b, struct place_scratch *s,
                 struct step_parts *out, struct error *err);
    /* Initial values for the rows that batch b touches, or for all rows. */
    int (*restore)(struct measure *m, int b, bool all, struct error *err);
    /* Lets a check look at the tables. */
    void (*look)(struct measure *m, struct check *c);

    /* Measures the ceilings, and with them evicts the caches. */
    int (*ceilings)(struct measure *m, struct ceiling *out, struct error *err);
    /* One timed step, on flushed caches if cold: the times in *out, and out->disturbed: the sample
     * should be taken again. A kernel's plan runs before the flush. */
    int (*timed)(struct measure *m, const struct kernel *k, int b, bool cold, struct sample *out,
                 struct error *err);
};

extern const struct place_ops place_host, place_device;

static inline const struct place_ops *place_of(const struct kernel *k) {
    return k->place == ON_HOST ? &place_host : &place_device;
}

static inline const char *place_name(enum place place) {
    return place == ON_HOST ? "host" : "device";
}

#endif
