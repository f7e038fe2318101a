/* SPDX-License-Identifier: MIT
 *
 * Addresses that do not depend on the place of the heap, the sectors that a launch touches, and the
 * threads that meet at an address with atomics. It sees accesses in the order of execution.
 */
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "extras/cuda/counts/request.h"

namespace counts {

/* Pages are numbered in the order of their first access. The place of a byte in its page is kept: an
 * allocation begins at the same one in every run. */
class Pages {
  public:
    uint64_t place(uint64_t address);
    void clear();

  private:
    std::unordered_map<uint64_t, uint64_t> number;
    uint64_t latest = UINT64_MAX, latest_number = 0;
};

/* Sectors of a launch that were read before they were written, and that were written: with a perfect
 * cache these move. */
class Compulsory {
  public:
    void launch();
    void access(request_kind kind, uint64_t place, uint32_t bytes);
    uint64_t read() const {
        return num_read;
    }
    uint64_t written() const {
        return num_written;
    }

  private:
    struct Sector {
        uint32_t launch; /* that has touched it; older: has not */
        bool written;
    };
    std::vector<Sector> sectors;
    uint32_t now = 0;
    uint64_t num_read = 0, num_written = 0;
};

/* Atomics and reductions of a launch. An arrival is an atomic after a fence of the same thread, and the
 * last thread to arrive at an address goes on with the work there. The chain of a thread is 1, plus 1
 * for each address at which it arrived last. */
class Meetings {
  public:
    void launch();
    void fence(uint64_t thread);
    void atomic(request_kind kind, uint64_t place, uint64_t thread);
    uint64_t all() const {
        return num_all;
    }
    uint64_t most() const; /* at one address */
    uint64_t longest_chain() const;

  private:
    std::unordered_map<uint64_t, uint64_t> at; /* atomics by address */
    std::unordered_map<uint64_t, uint64_t> last_arrival;
    std::unordered_map<uint64_t, bool> fenced; /* threads */
    uint64_t num_all = 0;
};

} // namespace counts
