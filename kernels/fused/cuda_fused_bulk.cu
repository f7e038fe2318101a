/* SPDX-License-Identifier: MIT
 *
 * As cuda_fused, but gradient rows come by bulk copies (cp.async.bulk) into a ring in shared memory: 16 rows of 512
 * bytes, or 8 of 1024, are in flight for each warp, twice as many as cuda_fused has in registers. Only from sm_90 on.
 *
 * Who owns what, scratch and traffic: as in cuda_fused.cu, and 32 KiB of shared memory for the ring of a block
 * (ring.cuh). Rows of tables are prefetched with the copies, 16 items ahead. Rows that are not whole multiples of 16
 * bytes, rows of more than 256 columns (a ring of them does not fit beside their sums), batches with a max and sums of
 * parts of runs take the way of cuda_fused.
 * Deterministic: the same sums in the same order as cuda_fused, so the same bits.
 * Measured on an H200 (docs/gpu.md): as fast as cuda_fused when both had one kernel for all rules, so rows in flight
 * were no limit. It still has only that one.
 * Source: the bulk copies and mbarriers of the Hopper architecture (PTX ISA 8.0), as CUTLASS's pipelines use them.
 */
#include "kernels/device/ring.cuh"
#include "kernels/device/sums.cuh"
#include "kernels/fused/fused.cuh"

template <int TILES>
static __global__ void __launch_bounds__(SMALL_BLOCK, blocks_at_once(TILES))
    sum_runs_bulk(const __grid_constant__ struct runs r, int count) {
    if constexpr (HAS_BULK) sum_tree<TILES, ANY_RULE, copied_rows<TILES>>(r, count);
}

static cudaError_t update(const struct runs *r, const struct batch *in, cudaStream_t stream) {
    const struct cover c = cover_of(r->dim);
    const bool fits = c.tiles == 1 || c.tiles == 2;
    if (!fits || r->winners || !rows_are_whole(r, in, BULK_ALIGN) || r->entries.count == 0)
        return runs_update(r, in, stream);
    auto sum = c.tiles == 1 ? sum_runs_bulk<1> : sum_runs_bulk<2>;
    const cudaError_t status =
        cudaFuncSetAttribute(sum, cudaFuncAttributeMaxDynamicSharedMemorySize, RING_BYTES);
    if (status != cudaSuccess) return status;
    LAUNCH(sum, blocks_for(r->tree.count[0], groups_of_block(c.count)), SMALL_BLOCK, RING_BYTES,
           stream, *r, c.count);
    return cudaGetLastError();
}

/* Which device will run it is known only here. A call that fails says nothing of it: run will fail, too. */
static const char *accepts(const struct batch *in) {
    struct cudaFuncAttributes code;
    const cudaError_t status = cudaFuncGetAttributes(&code, sum_runs_bulk<1>);
    if (status != cudaSuccess)
        cudaGetLastError();
    else if (code.ptxVersion < BULK_CAPABILITY)
        return "bulk copies need a GPU of compute capability 9.0 or newer, and code for it";
    return fused_accepts(in);
}

DEFINE_KERNEL(cuda_fused_bulk) = {
    .name = "cuda_fused_bulk",
    .label = "CUDA fused, bulk copies",
    .idea = "As cuda_fused; gradient rows come by bulk copies into a ring in shared memory.",
    .place = ON_DEVICE,
    .traits = DETERMINISTIC | WEIGHT_GRAD,
    .accepts = accepts,
    .scratch_bytes = fused_scratch_bytes<struct sorted>,
    .plan = NULL,
    .run = fused_run<struct sorted, update>,
};
