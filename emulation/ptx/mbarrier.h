/* SPDX-License-Identifier: MIT
 *
 * mbarrier objects: 64 bits of shared memory, which only these functions read. A phase ends when no
 * arrival and no byte is pending.
 */
#pragma once

#include <cstdint>

namespace ptx {

struct Mbarrier {
    int32_t bytes; /* pending; copies may end before they are expected */
    uint16_t pending : 15, phase : 1;
    uint16_t count; /* arrivals of a phase */
};

void barrier_init(char *at, uint32_t count);
void expect(char *at, uint32_t bytes);
void complete(char *at, uint32_t bytes);
uint64_t arrive(char *at, uint32_t arrivals); /* returns the state before */
uint32_t phase_of(uint64_t state);

/* Whether the phase of this parity has ended. try_wait lets other threads run meanwhile. */
bool test_wait(const char *at, uint32_t parity);
bool try_wait(const char *at, uint32_t parity);

} // namespace ptx
