/* SPDX-License-Identifier: MIT
 *
 * The calls from the emulation to the sanitizers. The declarations are weak: without a sanitizer in the
 * program they are null, and no call is made. A macro cannot tell, because kernels are built with
 * -fsanitize=thread and the runtime is not.
 */
#pragma once

#include <cstddef>

#define EMULATION_WEAK __attribute__((weak))
extern "C" {
EMULATION_WEAK void __asan_poison_memory_region(void const volatile *p, size_t bytes);
EMULATION_WEAK void __asan_unpoison_memory_region(void const volatile *p, size_t bytes);
EMULATION_WEAK void __sanitizer_start_switch_fiber(void **save, const void *stack, size_t bytes);
EMULATION_WEAK void __sanitizer_finish_switch_fiber(void *saved, const void **old_stack,
                                                    size_t *old_bytes);
EMULATION_WEAK void *__tsan_get_current_fiber(void);
EMULATION_WEAK void *__tsan_create_fiber(unsigned flags);
EMULATION_WEAK void __tsan_destroy_fiber(void *fiber);
EMULATION_WEAK void __tsan_switch_to_fiber(void *fiber, unsigned flags);
EMULATION_WEAK void __tsan_acquire(void *token);
EMULATION_WEAK void __tsan_release(void *token);
}
#undef EMULATION_WEAK

namespace emulation {

inline bool with_asan() {
    return __asan_poison_memory_region != nullptr;
}

inline bool with_tsan() {
    return __tsan_create_fiber != nullptr;
}

inline void poison(const void *p, size_t bytes) {
    if (with_asan()) __asan_poison_memory_region(p, bytes);
}

inline void unpoison(const void *p, size_t bytes) {
    if (with_asan()) __asan_unpoison_memory_region(p, bytes);
}

/* Everything before release() happens before everything after acquire() by another thread. The race detector knows a
 * token by its address, until the memory is freed. */
struct alignas(8) Token {
    static inline bool any_acquired; /* since the scheduler cleared it */

    void acquire() {
        any_acquired = true;
        if (with_tsan()) __tsan_acquire(this);
    }
    void release() {
        if (with_tsan()) __tsan_release(this);
    }
};

} // namespace emulation
