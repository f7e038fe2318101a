/* SPDX-License-Identifier: MIT
 *
 * Between the headers that kernels include and the runtime of the emulation: what a kernel's
 * thread may ask for. The rest of include/ gives these calls CUDA's names.
 */
#ifndef EMULATED_DEVICE_H
#define EMULATED_DEVICE_H

#include <cstddef>
#include <cstdint>
#include <functional>

#include "cuda_runtime_api.h"
#include "emulation/vector_types.h"

namespace emulation {

/* A place in the source; as a default argument, here() is where the caller stands. */
struct Site {
    const char *file;
    int line;
};

constexpr Site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
}

enum class BarrierOp { none, count, all, any };

/* All threads of the block. Returns the op over the predicates. */
int block_barrier(BarrierOp op, int predicate, Site site);

enum class WarpOp {
    sync,
    shuffle,
    shuffle_up,
    shuffle_down,
    shuffle_xor,
    ballot,
    any,
    all,
    match_any,
    add,
    min_signed,
    max_signed,
    min_unsigned,
    max_unsigned
};

/* What a lane brings to a collective of the lanes in its mask. */
struct WarpInput {
    uint64_t value;
    int parameter; /* of a shuffle: source lane, delta or mask */
    int width;     /* of a shuffle: lanes per segment */
};

uint64_t warp_collective(WarpOp op, unsigned mask, const WarpInput &input, Site site);

/* Orders this thread's accesses before those after any later fence. */
void fence();

/* The running block's array of the SHARED statement that owns the token. */
void *shared_array(const void *token, size_t bytes, size_t align, Site site);
void *dynamic_shared();

[[noreturn]] void misaligned(const void *p, size_t bytes, Site site);

/* Vector accesses and atomics fault on a device that finds them misaligned. */
template <class T> T *aligned(T *p, Site site) {
    if (reinterpret_cast<uintptr_t>(p) % alignof(T)) misaligned(p, sizeof(T), site);
    return p;
}

struct Launch {
    const char *kernel;
    Site site;
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    const void *function;
};

/* Runs the thread once for each of the grid, or records that if the stream captures. */
void launch(const Launch &launch, std::function<void()> thread);

/* Work of a device-wide library call, which may touch device memory; recorded likewise. */
cudaError_t library_call(const char *name, cudaStream_t stream, std::function<void()> work);

} // namespace emulation

#endif
