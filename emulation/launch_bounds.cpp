/* SPDX-License-Identifier: MIT
 *
 * Finds the limit of __launch_bounds__ of a kernel. gcc puts as many instructions that do nothing before the kernel
 * (language.h), and lists these places in a section for which the linker defines a start and an end.
 */
#include <cstdint>

#include "emulation/runtime.h"

extern "C" {
__attribute__((weak)) extern const uintptr_t __start___patchable_function_entries[];
__attribute__((weak)) extern const uintptr_t __stop___patchable_function_entries[];
}

namespace emulation {

static bool does_nothing(uintptr_t from, uintptr_t to) {
    enum { NOP = 0x90 };
    for (uintptr_t at = from; at < to; at++)
        if (*reinterpret_cast<const unsigned char *>(at) != NOP) return false;
    return true;
}

unsigned launch_bound(const void *kernel, unsigned otherwise) {
    const auto entry = reinterpret_cast<uintptr_t>(kernel);
    for (const uintptr_t *i = __start___patchable_function_entries;
         i != __stop___patchable_function_entries; i++)
        if (*i < entry && entry - *i <= otherwise && does_nothing(*i, entry))
            return unsigned(entry - *i);
    return otherwise;
}

} // namespace emulation
