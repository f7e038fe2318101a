/* SPDX-License-Identifier: MIT
 *
 * The device's memory: one arena of addresses. An allocation ends, except for CUDA's alignment of
 * 256 bytes, at an inaccessible page. It starts as 0xFF bytes (NaN as a float, -1 as an integer),
 * and is accessible only while the device runs: an access by the host faults, even in plain builds.
 */
#pragma once

#include <cstddef>

namespace emulation {

/* NULL if the device's capacity is used up. bytes > 0. */
void *heap_allocate(size_t bytes);

/* False if p is not the start of an allocation. */
bool heap_free(void *p);
void heap_free_all();
size_t heap_used();

/* True if the bytes lie in one allocation; true if the address belongs to the device. */
bool heap_holds(const void *p, size_t bytes);
bool heap_owns(const void *p);

/* Describes the address in text: "8 bytes past the end of an allocation of 400 bytes". */
void heap_describe(const void *p, char *text, size_t size);

/* While one exists, the device runs and its memory is accessible. When the last one ends, the slack
 * around each allocation must be unchanged. */
class DeviceRuns {
  public:
    DeviceRuns();
    ~DeviceRuns();
    DeviceRuns(const DeviceRuns &) = delete;
    DeviceRuns &operator=(const DeviceRuns &) = delete;
};

/* While one exists, the allocation that holds the address, if any, is accessible: cheaper for a
 * copy than DeviceRuns. */
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
