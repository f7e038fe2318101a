/* SPDX-License-Identifier: MIT
 *
 * The CUDA device: whether there is one, memory on it, batches and tables in that memory, and one
 * step of a kernel on them. The only part of the harness that calls the CUDA runtime; device_none.c
 * stands in where the suite was built without nvcc, and tests link it with the emulation of CUDA.
 *
 * After an error of the device itself (a bad address, say) nothing runs on it any more in this
 * process: the call that found it says what happened, all later ones that the device is lost.
 */
#ifndef EMBFUSE_DEVICE_H
#define EMBFUSE_DEVICE_H

#include "harness/error.h"
#include "harness/workload/tables.h"
#include "kernels/kernel.h"

enum { OLDEST_CAPABILITY = 80 };

struct device_facts {
    char name[128];
    bool emulated;  /* correctness only: it has no clock */
    int capability; /* 90: compute capability 9.0 */
    int multiprocessors;
    int64_t memory, free_memory, l2_cache; /* bytes */
    int driver, runtime;                   /* versions as CUDA counts them, 13000 */
};

/* Takes the device into use. Fails, in one line, without driver, device, or one that is new enough.
 * May be called again and again. */
int device_open(struct error *err);
struct device_facts device_facts(void);
/* Has an error made the device useless for the rest of this process? */
bool device_lost(void);
/* A cudaStream_t. */
void *device_stream(void);

/* Device memory between guard zones (an emulated device has none: it faults at once). */
struct device_buffer {
    void *data; /* aligned to KERNEL_ALIGN; NULL if bytes is 0 */
    size_t bytes;
};

/* Fails, with the figure, when the device has not as much free memory. what: for the message. */
int device_alloc(struct device_buffer *b, size_t bytes, const char *what, struct error *err);
void device_free(struct device_buffer *b);
/* Fills it with a byte. */
int device_set(const struct device_buffer *b, int byte, struct error *err);
/* False if somebody wrote outside of [data, data + bytes). */
bool device_intact(const struct device_buffer *b);
int device_put(void *to, const void *from, size_t bytes, struct error *err);
int device_get(void *to, const void *from, size_t bytes, struct error *err);

/* A batch in device memory, as a kernel gets it. The host's batch must outlive it. */
struct device_batch {
    struct batch batch;
    struct device_buffer ids, offsets, lookup_weights, grad, tables, features;
};
int device_batch_create(struct device_batch *d, const struct batch *host, struct error *err);
void device_batch_free(struct device_batch *d);
/* batch_validate() for ids and offsets that are only in device memory, wherever they came from:
 * says no before any kernel trusts them, in the same words. Writes nothing of the batch. */
int device_batch_validate(const struct device_batch *d, struct error *err);

/* Weights and states in device memory, with the content undefined. */
struct device_tables {
    int32_t count;
    const struct table_shape *shapes; /* not owned */
    struct table *tables;             /* [count] in host memory, of device pointers */
    struct device_buffer io;          /* the same array in device memory */
    struct device_buffer *buffers;    /* what they point to */
    int64_t bytes;
};
int device_tables_create(struct device_tables *d, const struct table_shape *shapes, int32_t count,
                         struct error *err);
void device_tables_free(struct device_tables *d);
bool device_tables_intact(const struct device_tables *d);
/* All rows, to and from host tables of the same shapes. */
int device_tables_put(struct device_tables *d, const struct table *host, struct error *err);
int device_tables_get(const struct device_tables *d, struct table *host, struct error *err);
/* Rows begin .. end-1 of one table to host memory that begins with row `begin`. */
int device_tables_get_rows(const struct device_tables *d, int32_t t, int64_t begin, int64_t end,
                           struct table *host, struct error *err);

/* One step. steps, io and scratch are device memory. */
struct device_job {
    const struct kernel *kernel;
    const struct batch *in; /* of a device_batch */
    const struct rule_step *steps;
    const struct table *io;
    void *scratch;
    /* For device_time, or NULL: enqueued between plan and step, and not timed. Flushes caches. */
    int (*before_run)(const void *ctx, struct error *err);
    const void *before_ctx;
};

/* Runs it and waits, stage by stage: an error says in which stage it was. mark, if not NULL, gets
 * every stage that ends. */
int device_run(const struct device_job *job, void (*mark)(void *ctx, enum stage ended), void *ctx,
               struct error *err);

/* Runs it once and returns its seconds by events, without the plan; and those of its stages, and of
 * the plan, where asked for. NaN on an emulated device. */
struct device_times {
    double seconds;
    double stage[STAGE_COUNT];
    double plan;
};
int device_time(const struct device_job *job, bool stages, struct device_times *out,
                struct error *err);

/* Captures the step, plan included, into a CUDA graph, counts what it consists of, and replays it
 * `replays` times. */
struct device_graph {
    int kernels, memsets, copies;
};
int device_replay(const struct device_job *job, int replays, struct device_graph *out,
                  struct error *err);

#endif
