/* SPDX-License-Identifier: MIT
 *
 * Launches, shared memory, and the calls that CUDA's C++ header adds for typed pointers.
 */
#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>

#include "emulation/device.h"

/* The kernel may be a template: LAUNCH((k<8>), grid, block, 0, stream, a, b). */
#define LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                     \
    emulation::launch_kernel(                                                                      \
        emulation::launch_of(#kernel, (grid), (block), (shared_bytes), (stream)),                  \
        (kernel)__VA_OPT__(, ) __VA_ARGS__)

/* Each SHARED statement owns a token, by which the threads of a block find its array. */
#define SHARED(type, name, count)                                                                  \
    static const char name##_token = 0;                                                            \
    auto &name = *static_cast<emulation::array<type, (count)> *>(emulation::shared_array(          \
        &name##_token, sizeof(emulation::array<type, (count)>), alignof(type), emulation::here()))

#define DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(emulation::dynamic_shared())

namespace emulation {

template <class T, size_t count> using array = T[count];

inline Launch launch_of(const char *kernel, dim3 grid, dim3 block, size_t shared_bytes,
                        cudaStream_t stream, Site site = here()) {
    return {kernel, site, grid, block, shared_bytes, stream, nullptr};
}

/* Converts the arguments to the parameters' types and copies them now; each thread gets a copy. */
template <class... Parameters, class... Arguments>
void launch_kernel(Launch call, void (*kernel)(Parameters...), Arguments &&...arguments) {
    static_assert(sizeof...(Parameters) == sizeof...(Arguments));
    call.function = reinterpret_cast<const void *>(kernel);
    std::tuple<std::decay_t<Parameters>...> copies(static_cast<Arguments &&>(arguments)...);
    launch(call, [kernel, copies] { std::apply(kernel, copies); });
}

} // namespace emulation

template <class T> cudaError_t cudaMalloc(T **p, size_t bytes) {
    return cudaMalloc(reinterpret_cast<void **>(p), bytes);
}

template <class Function>
cudaError_t cudaFuncSetAttribute(Function *kernel, enum cudaFuncAttribute attr, int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attr, value);
}

template <class Function>
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, Function *kernel) {
    return cudaFuncGetAttributes(attr, reinterpret_cast<const void *>(kernel));
}
