/* SPDX-License-Identifier: MIT
 *
 * The calls between the parts of the runtime. Each part uses those before it: report, settings,
 * fibre, device heap, shared memory, scheduler with its barriers and collectives, errors, streams
 * and graphs, and the other calls of CUDA.
 */
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>

#include "emulation/device.h"

namespace emulation {

/* Host threads that call CUDA take turns: while one of them runs a kernel, the others wait. */
std::recursive_mutex &turns();

struct Turn {
    std::lock_guard<std::recursive_mutex> mine{turns()};
};

/* --- report.cpp */

/* Reports a defect, where the running kernel is, and how to replay it. Ends the process with
 * EMULATION_DEFECT. */
[[noreturn]] void fatal(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Reports faults on device memory and on guard pages as defects. */
void catch_faults();

/* --- settings.cpp */
struct Settings {
    int order;
    uint64_t seed;
    int resident; /* blocks at once in random order; 0: drawn for each launch */
    bool renew;   /* fibres within a launch, with ThreadSanitizer */
    size_t capacity;
    char failing[128];  /* part of the kernel's name; empty: none */
    uint64_t scheduled; /* launches since the order was set */
    uint64_t launches;  /* in all */
};

Settings &settings();

/* True if this launch must fail; otherwise counts it. */
bool launch_fails(const char *kernel);

/* xorshift64*: small, fast, and good enough for an order. */
struct Random {
    uint64_t state;

    explicit Random(uint64_t seed = 0) {
        uint64_t mixed = (seed + 1) * 0x9e3779b97f4a7c15u; /* spreads neighbouring seeds */
        mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93u;
        state = (mixed ^ mixed >> 32) | 1;
    }
    uint32_t below(uint32_t n) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        return uint32_t((state * 0x2545f4914f6cdd1du >> 32) * n >> 32);
    }
};

/* --- scheduler.cpp */
void run_kernel(const Launch &launch, const std::function<void()> &thread);
void run_library(const Launch &call, const std::function<void()> &work); /* on the host's stack */

/* The running kernel, for reports. */
struct Running {
    const Launch *launch; /* NULL: host code */
    uint3 block, thread;
    bool in_thread;
};
Running running();

/* --- errors.cpp: records what a call returns, for cudaGetLastError */
cudaError_t returned(cudaError_t error);

/* Non-zero once the device has failed. */
cudaError_t sticky_error();
void set_sticky_error(cudaError_t error);

/* --- launch_bounds.cpp: the most threads of a block of the kernel, if they can be known; otherwise the other number */
unsigned launch_bound(const void *kernel, unsigned otherwise);

/* --- device_calls.cpp: whether the launch is within the limits of the device */
cudaError_t launch_error(const Launch &launch);

} // namespace emulation
