/* SPDX-License-Identifier: MIT */
#include "extras/cuda/counts/footprint.h"

#include <algorithm>

namespace counts {

enum { PAGE = 4096 };

uint64_t Pages::place(uint64_t address) {
    const uint64_t page = address / PAGE;
    if (page != latest) {
        latest_number = number.try_emplace(page, number.size()).first->second;
        latest = page;
    }
    return latest_number * PAGE + address % PAGE;
}

void Pages::clear() {
    number.clear();
    latest = UINT64_MAX;
}

void Compulsory::launch() {
    now++;
    num_read = num_written = 0;
}

void Compulsory::access(request_kind kind, uint64_t place, uint32_t bytes) {
    if (kind == REQUEST_PREFETCH) return;
    for (uint64_t s = place / SECTOR; s <= (place + bytes - 1) / SECTOR; s++) {
        if (s >= sectors.size()) sectors.resize(s + s / 2 + 1);
        Sector &x = sectors[s];
        const bool first = x.launch != now;
        if (first) x = {now, false};
        if (first && kind != REQUEST_STORE) num_read++;
        if (kind == REQUEST_LOAD || x.written) continue;
        x.written = true;
        num_written++;
    }
}

void Meetings::launch() {
    at.clear();
    last_arrival.clear();
    fenced.clear();
    num_all = 0;
}

void Meetings::fence(uint64_t thread) {
    fenced[thread] = true;
}

void Meetings::atomic(request_kind kind, uint64_t place, uint64_t thread) {
    num_all++;
    at[place]++;
    if (kind != REQUEST_ATOMIC) return;
    auto found = fenced.find(thread);
    if (found == fenced.end() || !found->second) return;
    found->second = false;
    last_arrival[place] = thread;
}

uint64_t Meetings::most() const {
    uint64_t n = 0;
    for (auto &x : at) n = std::max(n, x.second);
    return n;
}

uint64_t Meetings::longest_chain() const {
    std::unordered_map<uint64_t, uint64_t> nodes;
    uint64_t n = 0;
    for (auto &x : last_arrival) n = std::max(n, ++nodes[x.second]);
    return 1 + n;
}

} // namespace counts
