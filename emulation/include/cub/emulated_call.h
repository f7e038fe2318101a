/* SPDX-License-Identifier: MIT
 *
 * Emulated CUB: the device-wide calls that the project makes, in CUB's own form, on the CPU.
 * Without temporary storage a call returns how much it needs. With it the call runs, or becomes a
 * node of the graph that its stream captures.
 */
#pragma once

#include <cstddef>
#include <cstring>
#include <limits>

#include "cuda_runtime.h"

namespace cub {

/* CUB overwrites its working memory. The emulation does, too, so that no data is kept there. */
inline void emulated_scribble(void *p, size_t bytes) {
    std::memset(p, 0xa5, bytes);
}

template <class Work>
cudaError_t emulated_call(const char *name, void *temp, size_t &temp_bytes, size_t needed,
                          cudaStream_t stream, Work work) {
    if (!temp) {
        temp_bytes = needed;
        return cudaSuccess;
    }
    if (temp_bytes < needed) return cudaErrorInvalidValue;
    return emulation::library_call(name, stream, [temp, needed, work] {
        emulated_scribble(temp, needed);
        work();
    });
}

/* The real call might need as much for its partial results. */
constexpr size_t emulated_temp_bytes(size_t items) {
    return 256 + items / 16;
}

} // namespace cub
