/* SPDX-License-Identifier: MIT
 *
 * The device's memory: one arena of addresses. An allocation ends, but for CUDA's alignment of 256
 * bytes, at a page that nobody may touch, starts as 0xFF bytes (NaN as a float, -1 as an integer),
 * and can be accessed only while the device runs: a host's access faults, in plain builds too.
 */
#ifndef EMBFUSE_EMULATION_DEVICE_HEAP_H
#define EMBFUSE_EMULATION_DEVICE_HEAP_H

#include <cstddef>

namespace emulation {

/* NULL if the device's capacity is used up. bytes > 0. */
void *heap_allocate(size_t bytes);

/* False if p is not the start of an allocation. */
bool heap_free(void *p);
void heap_free_all();
size_t heap_used();

/* Whether the bytes lie in one allocation; whether the address is the device's at all. */
bool heap_holds(const void *p, size_t bytes);
bool heap_owns(const void *p);

/* Says into text where the address lies: "8 bytes past an allocation of 400 bytes". */
void heap_describe(const void *p, char *text, size_t size);

/* While one exists, the device runs: its memory can be accessed. At the end of the outermost, the
 * slack around each allocation must be as it was. */
class DeviceRuns {
  public:
    DeviceRuns();
    ~DeviceRuns();
    DeviceRuns(const DeviceRuns &) = delete;
    DeviceRuns &operator=(const DeviceRuns &) = delete;
};

/* While one exists, the allocation in which the address lies, if any, can be accessed: what a copy
 * needs, at less cost than all allocations. */
class AllocationOpen {
  public:
    explicit AllocationOpen(const void *p);
    ~AllocationOpen();
    AllocationOpen(const AllocationOpen &) = delete;
    AllocationOpen &operator=(const AllocationOpen &) = delete;

  private:
    const void *inside;
};

} // namespace emulation

#endif
