/* SPDX-License-Identifier: MIT
 *
 * One warp per row, a lane per column.
 */
#include "kernels/device/launch.h"

#include <cstdlib>

#include "kernels/kernel.h"

extern "C" {
#include "harness/device/device_cuda.h"
#include "harness/device/device_fill.h"
}

namespace {

constexpr int THREADS = 256, ROWS_PER_BLOCK = THREADS / 32, MOST_BLOCKS = 1 << 16;

struct fill_table {
    struct table table;
    int32_t width[TABLE_ARRAYS]; /* 0: no such array */
    enum dtype type[TABLE_ARRAYS];
    struct initial_laws laws;
    struct table_part part;
};

/* Rows of the list; or, without one, rows 0 .. count-1 of table `table`. */
__global__ void fill(const fill_table *tables, const device_row *rows, int32_t table, int64_t count,
                     uint64_t seed) {
    int lane = threadIdx.x % 32;
    int64_t first = (int64_t)blockIdx.x * ROWS_PER_BLOCK + threadIdx.x / 32;
    for (int64_t i = first; i < count; i += (int64_t)gridDim.x * ROWS_PER_BLOCK) {
        int64_t row = rows ? rows[i].row : i;
        int32_t t = rows ? rows[i].table : table;
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            int32_t width = tables[t].width[a];
            if (width == 0) continue;
            uint32_t key = initial_key(seed, t, &tables[t].part, a, row);
            void *to = array_row(&tables[t].table.array[a], row);
            for (int32_t d = lane; d < width; d += 32)
                dtype_set(
                    tables[t].type[a], to, d,
                    initial_value(&tables[t].laws, a, key, initial_column(&tables[t].part, a, d)));
        }
    }
}

int enqueue_fill(const device_fill *f, const device_row *rows, int32_t table, int64_t count,
                 struct error *err) {
    int64_t blocks = (count + ROWS_PER_BLOCK - 1) / ROWS_PER_BLOCK;
    if (blocks == 0) return 0;
    if (blocks > MOST_BLOCKS) blocks = MOST_BLOCKS;
    auto stream = static_cast<cudaStream_t>(device_stream());
    LAUNCH(fill, (unsigned)blocks, THREADS, 0, stream,
           static_cast<const fill_table *>(f->arrays.data), rows, table, count, f->seed);
    TRY(cudaGetLastError(), "restoring rows on the device");
    return 0;
}

} // namespace

extern "C" {

int device_fill_open(struct device_fill *f, const struct device_tables *to, uint64_t seed,
                     struct error *err) {
    *f = {to, {}, seed};
    size_t bytes = (size_t)to->count * sizeof(fill_table);
    auto *tables = static_cast<fill_table *>(std::calloc((size_t)to->count, sizeof(fill_table)));
    if (!tables) return fail(err, "out of memory");
    for (int32_t t = 0; t < to->count; t++) {
        tables[t].table = to->tables[t];
        tables[t].laws = initial_laws(to->shapes[t].rule);
        tables[t].part = to->shapes[t].part;
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            tables[t].width[a] = (int32_t)table_array_width(&to->shapes[t], a);
            tables[t].type[a] = table_array_type(&to->shapes[t], a);
        }
    }
    int status = device_alloc(&f->arrays, bytes, "the list of tables", err);
    if (status == 0) status = device_put(f->arrays.data, tables, bytes, err);
    std::free(tables);
    return status;
}

void device_fill_close(struct device_fill *f) {
    device_free(&f->arrays);
}

int device_fill_all(const struct device_fill *f, struct error *err) {
    for (int32_t t = 0; t < f->to->count; t++)
        if (enqueue_fill(f, nullptr, t, f->to->shapes[t].rows, err)) return -1;
    return 0;
}

int device_fill_rows(const struct device_fill *f, const struct device_buffer *rows,
                     struct error *err) {
    int64_t count = (int64_t)(rows->bytes / sizeof(device_row));
    return enqueue_fill(f, static_cast<const device_row *>(rows->data), 0, count, err);
}

int device_rows_create(struct device_buffer *rows, const struct row_index *touched,
                       struct error *err) {
    size_t bytes = (size_t)touched->rows * sizeof(device_row);
    auto *list = static_cast<device_row *>(std::malloc(bytes + 1));
    if (!list) return fail(err, "out of memory");
    for (int64_t u = 0; u < touched->rows; u++)
        list[u] = {touched->run[u].row, touched->run[u].table};
    int status = device_alloc(rows, bytes, "the list of touched rows", err);
    if (status == 0) status = device_put(rows->data, list, bytes, err);
    std::free(list);
    return status;
}
}
