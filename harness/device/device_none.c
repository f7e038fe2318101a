/* SPDX-License-Identifier: MIT
 *
 * For a build without nvcc: it has no device, so callers stop after device_open() fails.
 */
#include <stdlib.h>

#include "harness/device/device_ceiling.h"
#include "harness/device/device_fill.h"

int device_open(struct error *err) {
    return fail(err, "no CUDA device: this program was built without nvcc");
}

bool device_lost(void) {
    return false;
}

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define NEVER(result, name, ...)                                                                   \
    result name(__VA_ARGS__) {                                                                     \
        abort();                                                                                   \
    }

NEVER(struct device_facts, device_facts, void)
NEVER(void *, device_stream, void)
NEVER(int, device_alloc, struct device_buffer *b, size_t n, const char *what, struct error *err)
NEVER(void, device_free, struct device_buffer *b)
NEVER(int, device_set, const struct device_buffer *b, int byte, struct error *err)
NEVER(bool, device_intact, const struct device_buffer *b)
NEVER(int, device_put, void *to, const void *from, size_t bytes, struct error *err)
NEVER(int, device_get, void *to, const void *from, size_t bytes, struct error *err)
NEVER(int, device_run, const struct device_job *job, void (*mark)(void *, enum stage), void *ctx,
      struct error *err)
NEVER(int, device_time, const struct device_job *job, bool stages, struct device_times *out,
      struct error *err)
NEVER(int, device_replay, const struct device_job *job, int replays, struct device_graph *out,
      struct error *err)
NEVER(int, device_batch_validate, const struct device_batch *d, struct error *err)
NEVER(int, device_fill_open, struct device_fill *f, const struct device_tables *to, uint64_t seed,
      struct error *err)
NEVER(void, device_fill_close, struct device_fill *f)
NEVER(int, device_fill_all, const struct device_fill *f, struct error *err)
NEVER(int, device_fill_rows, const struct device_fill *f, const struct device_buffer *rows,
      struct error *err)
NEVER(int, device_rows_create, struct device_buffer *rows, const struct row_index *touched,
      struct error *err)
NEVER(int, device_probe_open, struct device_probe *p, float *table, int64_t table_rows, int32_t dim,
      struct error *err)
NEVER(void, device_probe_close, struct device_probe *p)
NEVER(int64_t, device_probe_bytes, int64_t table_rows)
NEVER(int, device_probe_measure, struct device_probe *p, struct ceiling *out, struct error *err)
NEVER(int, device_probe_clock, const struct device_probe *p, double *seconds, struct error *err)
NEVER(bool, device_probe_disturbed, const struct device_probe *p, double before, double after,
      double copy_gbs)
NEVER(int, device_probe_flush, const struct device_probe *p, struct error *err)
NEVER(int, device_probe_occupy, const struct device_probe *p, struct error *err)
