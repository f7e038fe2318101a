/* SPDX-License-Identifier: MIT */
#include "extras/cuda/counts/devices.h"

#include <stddef.h>
#include <string.h>

/* SMs and L2: NVIDIA's papers on the architectures of A100 and H100 and its tuning guide for Hopper,
 * which H200 shares; B200 as its driver reports it (pytorch/ao, pull request 4002). Ways: published
 * for Volta only (Jia et al. 2018, arXiv:1804.06826), assumed for the others. late: latency of memory, 370 ns
 * (650 cycles at 1755 MHz, H100 PCIe: te42kyfo/gpu-benches, gpu-latency/h100_pcie.txt), times the bandwidth of a copy
 * (BabelStream, H100 2.90 TB/s, H200 4.01 TB/s: Azure/AI-benchmarking-guide, ND_H100_v5 and ND_H200_v5) / 512 bytes;
 * A100 and B200 with the latency of H100. */
static const struct device_model models[] = {
    {"a100", 80, 108, 40, 16, 1250, 164},
    {"h100", 90, 132, 50, 16, 2100, 228},
    {"h200", 90, 132, 50, 16, 2900, 228},
    {"b200", 100, 148, 126, 16, 5000, 228},
};

const struct device_model *device_model_find(const char *name) {
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].name, name) == 0) return &models[i];
    return NULL;
}

/* The limits of compute capability 8.0 to 10.0 in the CUDA programming guide, and the units in which
 * registers and shared memory are given out. */
enum {
    WARP_THREADS = 32,
    SM_WARPS = 64,
    SM_BLOCKS = 32,
    SM_REGISTERS = 65536,
    REGISTER_UNIT = 256, /* of a warp */
    SHARED_UNIT = 128,
    SHARED_OF_SYSTEM = 1024, /* of a block */
};

static int least(int a, int b) {
    return a < b ? a : b;
}

static int round_up(int n, int unit) {
    return (n + unit - 1) / unit * unit;
}

int device_model_blocks(const struct device_model *d, int threads, int registers, uint64_t shared) {
    const int warps = (threads + WARP_THREADS - 1) / WARP_THREADS;
    const int of_warp = round_up(registers * WARP_THREADS, REGISTER_UNIT);
    const int of_block = round_up((int)shared + SHARED_OF_SYSTEM, SHARED_UNIT);
    int blocks = least(SM_BLOCKS, SM_WARPS / warps);
    if (of_warp > 0) blocks = least(blocks, SM_REGISTERS / of_warp / warps);
    blocks = least(blocks, d->shared_kib * 1024 / of_block);
    return blocks > 0 ? blocks : 1;
}
