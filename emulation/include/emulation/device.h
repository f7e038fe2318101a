/* SPDX-License-Identifier: MIT
 *
 * The calls from a kernel's thread to the runtime of the emulation. The rest of include/ gives them
 * CUDA's names.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "cuda_runtime_api.h"
#include "emulation/vector_types.h"

namespace emulation {

/* A line of the source; as a default argument, here() is the line of the caller. */
struct Site {
    const char *file;
    int line;
};

constexpr Site here(const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
    return {file, line};
}

enum class BarrierOp { none, count, all, any };

/* Waits for all threads of the block. Returns the op over the predicates. */
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

/* The input of one lane to a collective of the lanes in its mask. */
struct WarpInput {
    uint64_t value;
    int parameter; /* of a shuffle: source lane, delta or mask */
    int width;     /* of a shuffle: lanes per segment */
};

uint64_t warp_collective(WarpOp op, unsigned mask, const WarpInput &input, Site site);

/* A fence orders accesses among the threads of this scope; fences.h says which accesses. */
enum class Scope { block, device };

void fence(Scope scope = Scope::device);

/* Every atomic on p reports itself; one that only compared did not write. */
void atomic_done(const void *p, bool wrote);

/* Lets other threads and blocks run here, at random. */
void switch_point();

/* The running block's array for the SHARED statement that owns the token. */
void *shared_array(const void *token, size_t bytes, size_t align, Site site);
void *dynamic_shared();

[[noreturn]] void misaligned(const void *p, size_t bytes, Site site);

/* On a device, misaligned vector accesses and atomics fault. */
template <class T> T *aligned(T *p, Site site) {
    if (reinterpret_cast<uintptr_t>(p) % alignof(T)) misaligned(p, sizeof(T), site);
    return p;
}

/* The address, which must be one of global memory. */
size_t global_address(const void *p, const char *what, Site site);

struct Launch {
    const char *kernel;
    Site site;
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    const void *function;
};

/* Runs the thread once per thread of the grid, or records that if the stream captures. */
void launch(const Launch &launch, std::function<void()> thread);

/* Runs or records the work of a library call, once. It may access device memory. */
cudaError_t library_call(const char *name, cudaStream_t stream, std::function<void()> work);

} // namespace emulation
