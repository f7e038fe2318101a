/* SPDX-License-Identifier: MIT
 *
 * The CUDA device: whether there is one, its memory, batches and tables in that memory, and one
 * step of a kernel on them. No other part of the harness calls the CUDA runtime. A build without
 * nvcc uses device_none.c instead; tests link these files with the emulation of CUDA.
 *
 * After an error of the device itself (a bad address, say) this process can run nothing on it any
 * more. The call that finds the error describes it; all later calls report that the device is lost.
 */
#pragma once

#include "harness/error.h"
#include "harness/workload/tables.h"
#include "kernels/kernel.h"

enum { OLDEST_CAPABILITY = 75 };

struct device_facts {
    char name[128];
    char pci_id[32]; /* domain:bus:device.function, or "" */
    bool emulated;   /* for correctness only: it has no clock */
    int capability;  /* 90: compute capability 9.0 */
    int multiprocessors;
    int64_t memory, free_memory, l2_cache; /* bytes */
    int driver, runtime;                   /* versions as CUDA counts them, 13000 */
};

/* Opens the device. Fails if there is no driver or no device, or if the device is too old. Callers
 * may repeat the call. */
int device_open(struct error *err);
/* Selects device number % count; device_open() takes device 0 if this was not called before it. */
void device_choose(int number);
struct device_facts device_facts(void);
/* True if an error has made the device useless for the rest of this process. */
bool device_lost(void);
/* A cudaStream_t. */
void *device_stream(void);

/* Device memory between guard zones (an emulated device has none: it faults at once). */
struct device_buffer {
    void *data; /* aligned to KERNEL_ALIGN; NULL if bytes is 0 */
    size_t bytes;
};

/* Fails and gives the figure if the device has less free memory. what: for the message. */
int device_alloc(struct device_buffer *b, size_t bytes, const char *what, struct error *err);
void device_free(struct device_buffer *b);
int device_set(const struct device_buffer *b, int byte, struct error *err);
/* False if anything wrote outside [data, data + bytes). */
bool device_intact(const struct device_buffer *b);
int device_put(void *to, const void *from, size_t bytes, struct error *err);
int device_get(void *to, const void *from, size_t bytes, struct error *err);

/* Enqueue a copy on the caller's stream. Pageable host memory has been read or written when these return, pinned memory
 * only after device_wait(). */
int device_put_on(void *stream, void *to, const void *from, size_t bytes, struct error *err);
int device_get_on(void *stream, void *to, const void *from, size_t bytes, struct error *err);
int device_wait(void *stream, struct error *err);
/* Opens a stream that does not wait for device_stream(). Closing NULL does nothing. */
int device_stream_open(void **stream, struct error *err);
void device_stream_close(void *stream);

/* Host memory that the device copies from and to without a detour. NULL if bytes is 0. */
int device_pinned_alloc(void **p, size_t bytes, struct error *err);
void device_pinned_free(void *p);

/* A batch in device memory, as a kernel gets it. The host's batch must outlive it. */
enum { BATCH_PARTS = 7 };
struct device_batch {
    struct batch batch;
    union {
        struct device_buffer part[BATCH_PARTS];
        struct {
            struct device_buffer ids, offsets, lookup_weights, grad, winners, tables, features;
        };
    };
};
int device_batch_create(struct device_batch *d, const struct batch *host, struct error *err);
/* Copies a batch of the same shape to it. */
int device_batch_put(struct device_batch *d, const struct batch *host, struct error *err);
void device_batch_free(struct device_batch *d);
/* batch_validate() for ids and offsets that exist only in device memory. It refuses them before any
 * kernel trusts them, with the same message, and does not write to the batch. */
int device_batch_validate(const struct device_batch *d, struct error *err);
/* Compares a buffer with its source and checks its guard zones. Returns 1 and says in err what a kernel did to it; -1
 * if it cannot be read. what: for the message. */
int device_unchanged(const struct device_buffer *b, const void *host, const char *what,
                     struct error *err);
int device_batch_unchanged(const struct device_batch *d, const struct batch *host,
                           struct error *err);

/* Weights and states in device memory, with the content undefined. */
struct device_tables {
    int32_t count;
    const struct table_shape *shapes; /* not owned */
    struct table *tables;             /* [count] in host memory, of device pointers */
    struct device_buffer io;          /* the same array in device memory */
    struct device_buffer *buffers;    /* own the memory that tables point to */
    int64_t bytes;
};
int device_tables_create(struct device_tables *d, const struct table_shape *shapes, int32_t count,
                         struct error *err);
void device_tables_free(struct device_tables *d);
bool device_tables_intact(const struct device_tables *d);
/* All rows, to and from host tables of the same shapes. */
int device_tables_put(struct device_tables *d, const struct table *host, struct error *err);
int device_tables_get(const struct device_tables *d, struct table *host, struct error *err);
/* Copies rows begin .. end-1 of one table to host memory that starts with row `begin`. */
int device_tables_get_rows(const struct device_tables *d, int32_t t, int64_t begin, int64_t end,
                           struct table *host, struct error *err);

/* One step or, with a forward, one iteration. steps, io, scratch and output are device memory. */
struct device_job {
    const struct kernel *kernel;
    const struct kernel *forward; /* only in an iteration; it has no plan and no scratch */
    const struct batch *in;       /* device_batch.batch */
    const struct rule_step *steps;
    const struct table *io;
    bool planned;           /* device_plan() was called: device_run() leaves the plan out */
    void *scratch, *output; /* see struct launch; winners lie as forward_lay_out() says */
    /* For device_time, or NULL: enqueues untimed work between plan and step, or before an iteration (a
     * cache flush). */
    int (*before_run)(const void *ctx, struct error *err);
    const void *before_ctx;
};

/* Runs it and waits, stage by stage: an error says in which stage it was. mark, if not NULL, gets
 * every stage that ends. */
int device_plan(const struct device_job *job, struct error *err);
int device_run(const struct device_job *job, void (*mark)(void *ctx, enum stage ended), void *ctx,
               struct error *err);

/* How device_time() launches a step. */
enum timing {
    TIMED_WHOLE,  /* in stream order: one operation after the other */
    TIMED_STAGES, /* the same, with an event after every stage, which separates them */
    TIMED_REPLAY  /* captured into a CUDA graph before, and launched as one */
};

/* Runs the step once and gives its seconds by events, without the plan, whose seconds are apart. TIMED_STAGES adds the
 * seconds of its stages. The seconds of an iteration include its forward and its plan; TIMED_STAGES adds both.
 * NaN on an emulated device. */
struct device_times {
    double seconds;
    double stage[STAGE_COUNT];
    double forward, plan;
};
int device_time(const struct device_job *job, enum timing timing, struct device_times *out,
                struct error *err);

/* Captures the step and its plan, or the whole iteration, into a CUDA graph, counts the nodes of the graph, and
 * replays it `replays` times. */
struct device_graph {
    int kernels, memsets, copies;
};
int device_replay(const struct device_job *job, int replays, struct device_graph *out,
                  struct error *err);
