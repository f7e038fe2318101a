/* SPDX-License-Identifier: MIT
 *
 * Fully fused, with an index of its own: lookups are distributed once to buckets of keys, each bucket is sorted
 * inside of a block, and then one kernel sums the gradients of every run in registers and updates the row at
 * once, as in cuda_fused. Both kernels have the same entries in the same places, so they give the same bits.
 *
 * Who owns what: partition.cuh for the index, otherwise as in cuda_fused.cu.
 * Scratch and traffic per lookup: 16 bytes of entries (32 with weights, means or a max), 3 of counts, 8*dim/chunk of
 * partial rows. The index moves 40 bytes and takes five launches; cuda_fused moves 68, in ten or more.
 * Deterministic: the entries and the shape of every sum depend only on the batch.
 * Measured on an H200 (docs/gpu.md): its index takes 1.9 to 5.1 times as long as CUB's sort, with fewer bytes. 250 blocks
 * leave the device three quarters empty, and the bucket of a hot row is copied by a single block, the longer the hotter.
 * Source: sample sort on GPUs (Leischner, Osipov and Sanders 2010) in place of CUB's Onesweep; otherwise cuda_fused.cu.
 */
#include "kernels/fused/fused.cuh"

DEFINE_KERNEL(cuda_fused_partition) = {
    .name = "cuda_fused_partition",
    .label = "CUDA fused, own index",
    .idea = "As cuda_fused, with lookups distributed to buckets once and sorted inside of blocks.",
    .place = ON_DEVICE,
    .traits = DETERMINISTIC | WEIGHT_GRAD,
    .accepts = fused_accepts,
    .scratch_bytes = fused_scratch_bytes<struct partition>,
    .plan = NULL,
    .run = fused_run<struct partition>,
};
