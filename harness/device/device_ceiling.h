/* SPDX-License-Identifier: MIT
 *
 * What the device can do at this moment, in the sense of ceiling.h, and whether it is the same
 * device as a moment ago: clocks move with temperature, power and neighbours, and a sample that was
 * taken meanwhile says nothing of a kernel.
 */
#ifndef EMBFUSE_DEVICE_CEILING_H
#define EMBFUSE_DEVICE_CEILING_H

#include "harness/measure/ceiling.h"
#include "harness/device/device.h"

enum { COPIES_REMEMBERED = 64 };

struct device_probe {
    struct device_buffer from, to; /* of the copy, each at least four times the L2 cache */
    struct device_buffer rows;     /* [num_rows] distinct rows in random order */
    int64_t num_rows;
    int32_t dim;
    float *table;               /* on the device; its rows keep their bits */
    int multiprocessors, chain; /* of the clock: blocks, multiplications one after the other */
    double copies[COPIES_REMEMBERED]; /* the latest copy ceilings, GB/s */
    int64_t measured;
};

/* table: [table_rows][dim] in device memory. */
int device_probe_open(struct device_probe *p, float *table, int64_t table_rows, int32_t dim,
                      struct error *err);
void device_probe_close(struct device_probe *p);
/* Bytes of device memory that it will take. */
int64_t device_probe_bytes(int64_t table_rows);

/* Leaves nothing of interest in the L2 cache. pingpong_ns is -1. */
int device_probe_measure(struct device_probe *p, struct ceiling *out, struct error *err);

/* Seconds of a fixed piece of arithmetic, which moves with the clock alone. */
int device_probe_clock(const struct device_probe *p, double *seconds, struct error *err);

/* The clock took longer or shorter by more than 5 % from before to after a sample, or the copy
 * ceiling before it was more than 10 % below the median of the latest. */
bool device_probe_disturbed(const struct device_probe *p, double before, double after,
                            double copy_gbs);

/* Enqueues on the device's stream what leaves nothing of interest in the L2 cache, or a fixed piece
 * of arithmetic that leaves the cache alone. Both keep the device busy while the host enqueues the
 * step behind them, so that the step's time is the device's and not that of launching. */
int device_probe_flush(const struct device_probe *p, struct error *err);
int device_probe_occupy(const struct device_probe *p, struct error *err);

#endif
