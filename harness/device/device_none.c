/* SPDX-License-Identifier: MIT
 *
 * Stands in for the device in a build without nvcc: device_open() fails, and callers stop there.
 */
#include <stdbool.h>
#include <stdlib.h>

#include "harness/error.h"

#pragma GCC diagnostic ignored "-Wmissing-prototypes"

int device_open(struct error *err) {
    return fail(err, "no CUDA device: this program was built without nvcc");
}

bool device_lost(void) {
    return false;
}

/* Nothing calls these, so their results and parameters do not matter. */
#define NEVER(name)                                                                                \
    void name(void) {                                                                              \
        abort();                                                                                   \
    }
NEVER(device_choose)
NEVER(device_facts)
NEVER(device_stream)
NEVER(device_alloc)
NEVER(device_free)
NEVER(device_set)
NEVER(device_intact)
NEVER(device_put)
NEVER(device_get)
NEVER(device_put_on)
NEVER(device_get_on)
NEVER(device_wait)
NEVER(device_stream_open)
NEVER(device_stream_close)
NEVER(device_pinned_alloc)
NEVER(device_pinned_free)
NEVER(device_plan)
NEVER(device_run)
NEVER(device_time)
NEVER(device_replay)
NEVER(device_batch_validate)
NEVER(device_fill_open)
NEVER(device_fill_close)
NEVER(device_fill_all)
NEVER(device_fill_rows)
NEVER(device_rows_create)
NEVER(device_rows_move)
NEVER(device_probe_open)
NEVER(device_probe_close)
NEVER(device_probe_bytes)
NEVER(device_probe_measure)
NEVER(device_probe_clock)
NEVER(device_probe_disturbed)
NEVER(device_probe_flush)
NEVER(device_probe_occupy)
