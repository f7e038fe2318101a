/* SPDX-License-Identifier: MIT
 *
 * As cuda_fused, but CUB sorts the entries, for a comparison with the sort of onesweep.h. Both kernels have the same
 * entries in the same places, so they give the same bits.
 *
 * Who owns what, scratch and traffic: as in cuda_fused.cu, with CUB's temporary memory. CUB reads the keys once more,
 * for its histograms: 68 bytes of a lookup with 24 bits of row number and 64-bit ids, where cuda_fused moves 64 and 5
 * of shared words. The index is 5 memsets and 6 kernels, not 1 and 4 (read in the source of CCCL 3.0.1, not timed).
 * CUB's tile for 32-bit keys and values has 8832 entries, so a million of them are 116 blocks for the 132
 * multiprocessors of an H100 or H200. It is made for hundreds of millions.
 * Deterministic: the sort is stable, and the shape of every sum depends only on the batch.
 * Measured on an H200 (docs/cuda.md, as cuda_fused): the index took a quarter of the step.
 * Source: CUB's DeviceRadixSort (CCCL), after Adinets and Merrill 2022, Onesweep (arXiv:2206.01784).
 */
#include "kernels/fused/fused.cuh"

DEFINE_KERNEL(cuda_fused_cub) = {
    .name = "cuda_fused_cub",
    .label = "CUDA fused, sort by CUB",
    .idea = "As cuda_fused, with entries sorted by CUB's radix sort.",
    .place = ON_DEVICE,
    .traits = DETERMINISTIC,
    .accepts = entries_refuse,
    .variant = fused_variant,
    .scratch_bytes = fused_scratch_bytes<struct cub_sorted>,
    .plan = NULL,
    .run = fused_run<struct cub_sorted>,
};
