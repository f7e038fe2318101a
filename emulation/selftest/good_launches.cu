/* SPDX-License-Identifier: MIT
 *
 * Launches for good_host_calls.c, which is C.
 */
#include <cuda_runtime.h>

extern "C" void launch_nothing(unsigned blocks, unsigned threads, size_t shared_bytes);
extern "C" cudaError_t allow_shared(size_t bytes);

static __global__ void nothing() {
    DYNAMIC_SHARED(unsigned char, bytes);
    (void)bytes;
}

void launch_nothing(unsigned blocks, unsigned threads, size_t shared_bytes) {
    LAUNCH(nothing, blocks, threads, shared_bytes, nullptr);
}

cudaError_t allow_shared(size_t bytes) {
    return cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes));
}
