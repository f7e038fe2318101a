/* SPDX-License-Identifier: MIT
 *
 * Writes initial values (initial.h) on the device: to all rows, or to the rows of a list.
 */
#pragma once

#include "harness/device/device.h"
#include "harness/workload/row_index.h"

struct device_row {
    int64_t row;
    int32_t table;
};

struct device_fill {
    const struct device_tables *to; /* not owned */
    struct device_buffer arrays;    /* one record per table, for the CUDA kernel */
    uint64_t seed;
};

int device_fill_open(struct device_fill *f, const struct device_tables *to, uint64_t seed,
                     struct error *err);
void device_fill_close(struct device_fill *f);

/* Both enqueue on the device's stream and do not wait. */
int device_fill_all(const struct device_fill *f, struct error *err);
int device_fill_rows(const struct device_fill *f, const struct device_buffer *rows,
                     struct error *err);

/* The rows of an index in device memory: an array of struct device_row. */
int device_rows_create(struct device_buffer *rows, const struct row_index *touched,
                       struct error *err);
