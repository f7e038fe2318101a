/* SPDX-License-Identifier: MIT
 *
 * Measures the ceilings of the device (harness/ceiling.h), and whether its speed has changed: clocks
 * move with temperature, power and neighbours, and a sample taken while they move says nothing about
 * a kernel.
 */
#pragma once

#include "harness/ceiling.h"
#include "harness/device/device.h"

enum { COPIES_REMEMBERED = 64 };

struct device_probe {
    struct device_buffer from, to; /* of the copy, each at least four times the L2 cache */
    struct device_buffer rows;     /* [num_rows] distinct rows in random order */
    int64_t num_rows;
    int32_t dim;
    float *table;                     /* on the device; its rows keep their bits */
    int multiprocessors, chain;       /* device_probe_clock(): blocks; dependent multiplications */
    double copies[COPIES_REMEMBERED]; /* the latest copy ceilings, GB/s */
    int64_t measured;
};

/* table: [table_rows][dim] in device memory. */
int device_probe_open(struct device_probe *p, float *table, int64_t table_rows, int32_t dim,
                      struct error *err);
void device_probe_close(struct device_probe *p);
/* Bytes of device memory that it will take. */
int64_t device_probe_bytes(int64_t table_rows);

/* Evicts the L2 cache. pingpong_ns is -1. */
int device_probe_measure(struct device_probe *p, struct ceiling *out, struct error *err);

/* Seconds of a fixed piece of arithmetic, which moves with the clock alone. */
int device_probe_clock(const struct device_probe *p, double *seconds, struct error *err);

/* True if the clock's time changed by more than 5 % from before to after a sample, or if the copy
 * ceiling before it is more than 10 % below the median of the latest ones. */
bool device_probe_disturbed(const struct device_probe *p, double before, double after,
                            double copy_gbs);

/* Enqueue on the device's stream a flush of the L2 cache, or a fixed piece of arithmetic that does
 * not use the cache. Both keep the device busy while the host enqueues the step behind them, so
 * that the step's time does not contain the time of launching. */
int device_probe_flush(const struct device_probe *p, struct error *err);
int device_probe_occupy(const struct device_probe *p, struct error *err);
