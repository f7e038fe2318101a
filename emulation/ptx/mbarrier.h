/* SPDX-License-Identifier: MIT
 *
 * mbarrier objects: 64 bits of shared memory, which only these functions read. A phase ends when no
 * arrival and no byte is pending. A bulk copy moves its bytes as late as it may: when a thread waits
 * for the phase. Until then 0xFF bytes are there.
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

void bulk_copy(char *to, const char *from, uint32_t bytes, char *barrier);
void kernel_ended(); /* a defect if copies are left */

/* Whether the phase of this parity has ended. try_wait lets other threads run meanwhile. */
bool test_wait(char *at, uint32_t parity);
bool try_wait(char *at, uint32_t parity);

} // namespace ptx
