/* SPDX-License-Identifier: MIT
 *
 * The merged gradient on a device: sort entries by row, sum the gradients of every run, and distribute the
 * sums to the tables.
 *
 * Who owns what: the sort and the sums are those of cuda_sort (kernels/device/compact_sort.cuh). A
 * thread per table finds its first run; then a group of lanes copies the sum of a run.
 * Scratch and traffic: as cuda_sort without the update, plus 36 bytes per table; the copy reads and
 * writes [touched][dim] floats once.
 * Deterministic: the shape of every sum depends only on the batch.
 * Loses to a sum that goes straight to its place: only the device knows where a table's runs begin.
 * Source: coalesce() of a sparse tensor (PyTorch), SelectedRows with MergeAdd (Paddle).
 */
#include "kernels/device/compact_sort.cuh"
#include "kernels/gradient.h"

enum { TABLES_BLOCK = 128 };

struct layout {
    struct compact_sort sort;
    uint32_t *first;            /* [num_tables] first run of each table */
    struct sparse_gradient *of; /* [num_tables] parts of the output */
};

/* What the kernels need of a batch. */
struct product {
    struct compact from;
    const struct table_shape *tables;
    int32_t num_tables;
    uint32_t padding; /* the key of padding */
    uint32_t *first;
    struct sparse_gradient *of;
    void *output;
};

static size_t lay_out(struct layout *p, const struct batch *in, void *base) {
    struct scratch s = {(char *)base, 0};
    compact_sort_lay_out(&p->sort, in, &s);
    p->first = (uint32_t *)scratch_take(&s, in->num_tables, sizeof *p->first);
    p->of = (struct sparse_gradient *)scratch_take(&s, in->num_tables, sizeof *p->of);
    return s.used;
}

static size_t scratch_bytes(const struct batch *shape, int) {
    struct layout p;
    return lay_out(&p, shape, NULL);
}

/* The first run whose key is at least `key`. */
static __device__ inline uint32_t first_run(const struct product &p, uint64_t key, bool any) {
    uint32_t lo = 0, hi = any ? *p.from.runs : 0;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if (p.from.key[mid] < key)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* A thread per table. any: the batch has lookups. */
static __global__ void __launch_bounds__(TABLES_BLOCK)
    find_tables(const struct product p, bool any) {
    int32_t t = (int32_t)(blockIdx.x * TABLES_BLOCK + threadIdx.x);
    if (t >= p.num_tables) return;
    uint64_t row = (uint64_t)p.tables[t].first_row;
    uint32_t first = first_run(p, row, any);
    p.first[t] = first;
    p.of[t] = gradient_part(p.tables, p.num_tables, true, p.output, t);
    *p.of[t].count = first_run(p, row + (uint64_t)p.tables[t].rows, any) - first;
}

/* A group of lanes per run. */
static __global__ void __launch_bounds__(LANES_BLOCK)
    distribute(const struct product p, int count) {
    struct lanes g = lanes_here(count);
    int64_t run = group_number(g);
    if (run >= *p.from.runs) return;
    const uint32_t key = p.from.key[run];
    if (key == p.padding) return;
    int32_t t = table_of_row(p.tables, p.num_tables, (int64_t)key);
    const struct sparse_gradient to = p.of[t];
    int64_t at = run - p.first[t];
    int32_t dim = p.tables[t].dim;
    if (g.lane == 0) to.rows[at] = (int64_t)key - p.tables[t].first_row;
    for (int32_t d = g.lane; d < dim; d += g.count)
        to.values[at * dim + d] = p.from.grad[run * p.from.stride + d];
}

static cudaError_t write_product(const struct layout *p, const struct batch *in, void *output,
                                 cudaStream_t stream) {
    const struct entries e = entries_of(in);
    const struct product product = {p->sort.runs.compact,
                                    in->device_tables,
                                    in->num_tables,
                                    e.padding,
                                    p->first,
                                    p->of,
                                    output};
    const int count = lanes_of_row(widest(in));
    LAUNCH(find_tables, blocks_for(in->num_tables, TABLES_BLOCK), TABLES_BLOCK, 0, stream, product,
           in->lookups > 0);
    if (in->lookups > 0)
        LAUNCH(distribute, blocks_for(touchable_rows(in), LANES_BLOCK / count), LANES_BLOCK, 0,
               stream, product, count);
    return cudaGetLastError();
}

static int run(const struct batch *in, const struct rule_step *steps, const struct table *io,
               const struct launch *how) {
    cudaStream_t stream = (cudaStream_t)how->stream;
    struct layout p;
    lay_out(&p, in, how->scratch);
    p.sort.runs.target = target_of(in, steps, io);
    cudaError_t status = compact_sort_index(&p.sort, in, stream);
    stage_done(how, STAGE_INDEX);
    if (status == cudaSuccess) status = runs_reduce(&p.sort.runs, stream);
    if (status == cudaSuccess) status = write_product(&p, in, how->output, stream);
    stage_done(how, STAGE_REDUCE);
    return status;
}

DEFINE_KERNEL(cuda_merged) = {
    .name = "cuda_merged",
    .label = "CUDA merged gradient",
    .idea = "Sort lookups by row, sum runs, deal the sums out to the tables' rows and values.",
    .operation = OP_GRADIENT,
    .place = ON_DEVICE,
    .traits = DETERMINISTIC | MERGED,
    .accepts = entries_refuse,
    .scratch_bytes = scratch_bytes,
    .plan = NULL,
    .run = run,
};
