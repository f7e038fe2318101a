/* SPDX-License-Identifier: MIT */
#include "extras/cuda/counts/counts.h"

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "extras/cuda/counts/footprint.h"
#include "extras/cuda/counts/function.h"
#include "extras/cuda/ptx/watch.h"

extern const uint3 &threadIdx, &blockIdx;
extern const dim3 &blockDim, &gridDim;

namespace counts {

class Counter : public ptx::Observer {
  public:
    bool by_line = false;

    void begin();
    void end(FILE *out, const char *labels);
    void receive(const warp_request *r);

    void kernel_begins(const ptx::Kernel &) override;
    void kernel_ends(const ptx::Kernel &) override;
    void access(const ptx::Access &) override;
    void barrier(const ptx::Instruction &at) override {
        others(at, REQUEST_BARRIER);
    }
    void collective(const ptx::Instruction &at, uint32_t) override {
        others(at, REQUEST_OTHER);
    }
    void fence(const ptx::Instruction &at) override;

  private:
    std::unordered_map<const ptx::Instruction *, uint32_t> numbers;
    std::vector<const ptx::Instruction *> instructions; /* by number */
    std::vector<std::unique_ptr<Function>> functions;
    Function *function = nullptr; /* the running one */
    uint64_t block = 0;
    warps *grouping = nullptr;
    Pages pages;
    Compulsory compulsory;
    Meetings meetings;

    Function &function_of(const std::string &symbol);
    uint32_t number_of(const ptx::Instruction &);
    void end_block();
    unsigned enter_thread();
    uint64_t thread_of_launch(unsigned thread);
    void others(const ptx::Instruction &, request_kind);
};

static Counter counter;

/* --- one thread at a time */

uint32_t Counter::number_of(const ptx::Instruction &at) {
    auto [found, is_new] = numbers.try_emplace(&at, uint32_t(instructions.size()));
    if (is_new) instructions.push_back(&at);
    return found->second;
}

void Counter::end_block() {
    warps_end_block(grouping);
}

/* The running thread, after what the block before it did was passed on. */
unsigned Counter::enter_thread() {
    const uint64_t now =
        blockIdx.x + uint64_t(gridDim.x) * (blockIdx.y + uint64_t(gridDim.y) * blockIdx.z);
    if (now != block) end_block();
    block = now;
    return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

uint64_t Counter::thread_of_launch(unsigned thread) {
    return block * blockDim.x * blockDim.y * blockDim.z + thread;
}

static request_kind kind_of(ptx::Kind kind) {
    switch (kind) {
    case ptx::Kind::load: return REQUEST_LOAD;
    case ptx::Kind::store: return REQUEST_STORE;
    case ptx::Kind::atomic: return REQUEST_ATOMIC;
    case ptx::Kind::reduction: return REQUEST_REDUCTION;
    case ptx::Kind::prefetch: return REQUEST_PREFETCH;
    case ptx::Kind::barrier: return REQUEST_BARRIER;
    default: return REQUEST_OTHER;
    }
}

void Counter::access(const ptx::Access &a) {
    if (!function || a.space == ptx::Space::local) return;
    const unsigned thread = enter_thread();
    thread_access x = {number_of(a.at), kind_of(a.kind), a.space == ptx::Space::shared, a.address,
                       a.bytes};
    if (!x.shared) {
        x.address = pages.place(a.address);
        compulsory.access(x.kind, x.address, x.bytes);
        if (x.kind == REQUEST_ATOMIC || x.kind == REQUEST_REDUCTION)
            meetings.atomic(x.kind, x.address, thread_of_launch(thread));
    }
    warps_access(grouping, thread, &x);
}

void Counter::others(const ptx::Instruction &at, request_kind kind) {
    if (!function) return;
    const unsigned thread = enter_thread();
    const thread_access x = {number_of(at), kind, false, 0, 0};
    warps_access(grouping, thread, &x);
}

void Counter::fence(const ptx::Instruction &at) {
    others(at, REQUEST_OTHER);
    if (function) meetings.fence(thread_of_launch(enter_thread()));
}

/* --- one request at a time */

void Counter::receive(const warp_request *r) {
    if (!r) {
        function->warps++;
        return;
    }
    const ptx::Instruction &at = *instructions[r->instruction];
    const Other other = other_of(at.text);
    function->totals.add(*r, other);
    if (by_line)
        function->lines[{at.source ? at.source : at.ptx, at.source ? at.source_line : at.ptx_line}]
            .add(*r, other);
}

static void receive(void *, const warp_request *r) {
    counter.receive(r);
}

/* --- one launch at a time */

Function &Counter::function_of(const std::string &symbol) {
    for (auto &f : functions)
        if (f->symbol == symbol) return *f;
    functions.push_back(std::make_unique<Function>());
    functions.back()->symbol = symbol;
    return *functions.back();
}

void Counter::kernel_begins(const ptx::Kernel &k) {
    function = &function_of(k.symbol);
    block = 0;
    compulsory.launch();
    meetings.launch();
}

void Counter::kernel_ends(const ptx::Kernel &k) {
    end_block();
    function->launches++;
    function->blocks += uint64_t(k.grid.x) * k.grid.y * k.grid.z;
    function->compulsory_read += compulsory.read();
    function->compulsory_written += compulsory.written();
    function->atomics += meetings.all();
    function->most_per_address = std::max(function->most_per_address, meetings.most());
    function->chain = std::max(function->chain, meetings.longest_chain());
    function = nullptr;
}

/* --- one step at a time */

void Counter::begin() {
    if (!grouping) grouping = warps_open(counts::receive, nullptr);
    functions.clear();
    pages.clear();
    ptx::observer = this;
}

void Counter::end(FILE *out, const char *labels) {
    ptx::observer = nullptr;
    for (auto &f : functions) write_function(out, labels, *f, by_line);
}

} // namespace counts

/* --- the calls */

using counts::counter;

void counts_by_line(void) {
    counter.by_line = true;
}

void counts_begin(void) {
    counter.begin();
}

void counts_end(FILE *out, const char *labels) {
    counter.end(out, labels);
}
