/* SPDX-License-Identifier: MIT */
#include "emulation/device_heap.h"
#include "emulation/fibre.h"
#include "emulation/runtime.h"
#include "emulation/shared_memory.h"

namespace emulation {

size_t global_address(const void *p, const char *what, Site site) {
    if (!heap_owns(p))
        fatal("%s of %p, which is not global memory but %s (%s:%d)", what, p,
              shared_owns(p)  ? "shared memory"
              : fibre_owns(p) ? "a thread's local memory"
              : p             ? "the host's"
                              : "null",
              site.file, site.line);
    return reinterpret_cast<size_t>(p);
}

} // namespace emulation
