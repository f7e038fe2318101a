/* SPDX-License-Identifier: MIT
 *
 * An observer sees what translated kernels do: each access to memory, barrier, collective and fence
 * of each thread, one thread at a time, in the order of the schedule. The calling thread is
 * ::threadIdx of ::blockIdx. Without an observer an instruction costs one test of a pointer.
 */
#pragma once

#include <cstddef>
#include <cstdint>

#include "emulation/vector_types.h"

namespace ptx {

enum class Space : uint8_t { global, shared, local, generic };

/* An asynchronous copy is a load and a store of one instruction. */
enum class Kind : uint8_t {
    load,
    store,
    atomic,
    reduction,
    prefetch,
    barrier,
    collective,
    fence,
    other
};

/* An instruction of the PTX: one constant for each, so its address identifies it. */
struct Instruction {
    const char *kernel; /* symbol of the function that has it */
    const char *text;   /* "ld.global.nc.v4.f32" */
    const char *ptx;    /* PTX file and line */
    int ptx_line;
    const char *source; /* file and line of its .loc; NULL and 0: unknown */
    int source_line;
    const char *site; /* of a barrier or collective, for reports: "FILE:LINE, PTX FILE" */
    Kind kind;
    Space space; /* generic: an access says which it is */
};

struct Access {
    const Instruction &at;
    Kind kind;   /* of an asynchronous copy: load, then store */
    Space space; /* never generic */
    uint64_t
        address;    /* shared: offset in the window of the block; else of the emulation's memory */
    uint32_t bytes; /* of this thread; a prefetch: 0, or the size of a bulk prefetch */
};

struct Kernel {
    const char *symbol;
    dim3 grid, block;
};

class Observer {
  public:
    virtual ~Observer() = default;
    virtual void kernel_begins(const Kernel &) {}
    virtual void kernel_ends(const Kernel &) {}
    virtual void access(const Access &) {}
    virtual void barrier(const Instruction &) {} /* of the block; before the thread waits */
    virtual void collective(const Instruction &, uint32_t) {
    } /* of a warp, with its mask: also bar.warp.sync */
    virtual void fence(const Instruction &) {}
};

/* The one observer, or NULL. A constructor of a static object may set it. */
extern Observer *observer;

} // namespace ptx
