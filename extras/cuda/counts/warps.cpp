/* SPDX-License-Identifier: MIT */
#include "extras/cuda/counts/warps.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

namespace {

enum { LANES = 32, BANKS = 32, WORD = 4, LINE = LINE_SECTORS * SECTOR };

/* Counts how often a lane has executed each instruction. */
struct Times {
    std::vector<std::pair<uint32_t, uint32_t>> of;

    uint32_t next(uint32_t instruction) {
        for (auto &x : of)
            if (x.first == instruction) return x.second++;
        of.push_back({instruction, 1});
        return 0;
    }
};

struct Lane {
    Times since_collective, collectives;
    uint32_t collective = UINT32_MAX, collective_time = 0; /* the latest one */
};

struct Key {
    uint32_t instruction, time, collective, collective_time;

    bool operator==(const Key &o) const {
        return instruction == o.instruction && time == o.time && collective == o.collective &&
               collective_time == o.collective_time;
    }
};

struct Hash {
    size_t operator()(const Key &k) const {
        uint64_t x = (uint64_t(k.instruction) << 32 | k.time) * 0x9e3779b97f4a7c15u;
        x = (x ^ x >> 29) + (uint64_t(k.collective) << 32 | k.collective_time);
        x *= 0xbf58476d1ce4e5b9u;
        return size_t(x ^ x >> 32);
    }
};

struct Piece {
    uint64_t address;
    uint32_t bytes;
};

struct Open {
    thread_access what; /* of the first lane */
    uint32_t lanes;
    std::vector<Piece> pieces;
};

struct Warp {
    Lane lanes[LANES];
    std::vector<Open> requests; /* in the order of their first lanes */
    std::unordered_map<Key, size_t, Hash> at;
};

bool is_collective(request_kind kind) {
    return kind == REQUEST_BARRIER || kind == REQUEST_OTHER;
}

} // namespace

struct warps {
    warp_receiver *receiver;
    void *ctx;
    std::vector<Warp> all;
    std::vector<sector> sectors; /* of the request that is passed on */
};

/* --- what a request touches */

static void add_bytes(std::vector<sector> &sectors, const Piece &p) {
    for (uint64_t at = p.address, end = at + p.bytes; at < end;) {
        const uint64_t next = std::min(end, (at / SECTOR + 1) * SECTOR), count = next - at;
        const uint32_t number = uint32_t(at / SECTOR);
        if (sectors.empty() || sectors.back().number != number) sectors.push_back({number, 0});
        sectors.back().bytes |= uint32_t(((uint64_t(1) << count) - 1) << at % SECTOR);
        at = next;
    }
}

static uint32_t sort_into_sectors(std::vector<Piece> &pieces, std::vector<sector> &sectors) {
    uint32_t used = 0;
    sectors.clear();
    std::sort(pieces.begin(), pieces.end(),
              [](const Piece &a, const Piece &b) { return a.address < b.address; });
    for (const Piece &p : pieces) add_bytes(sectors, p);
    for (const sector &s : sectors) used += uint32_t(__builtin_popcount(s.bytes));
    return used;
}

/* Distinct words, in all and in the fullest bank. */
static void count_banks(const std::vector<Piece> &pieces, warp_request &r) {
    std::vector<uint64_t> words;
    for (const Piece &p : pieces)
        for (uint64_t w = p.address / WORD; w <= (p.address + p.bytes - 1) / WORD; w++)
            words.push_back(w);
    std::sort(words.begin(), words.end());
    words.erase(std::unique(words.begin(), words.end()), words.end());
    uint32_t in_bank[BANKS] = {};
    for (uint64_t w : words) r.ways = std::max(r.ways, ++in_bank[w % BANKS]);
    r.least_ways = uint32_t((words.size() + BANKS - 1) / BANKS);
}

static void pass_on(warps *w, Open &open) {
    warp_request r = {};
    r.instruction = open.what.instruction;
    r.shared = open.what.shared;
    r.lanes = open.lanes;
    r.is.kind = open.what.kind;
    r.used = sort_into_sectors(open.pieces, w->sectors);
    if (r.shared) {
        count_banks(open.pieces, r);
    } else {
        r.is.count = uint32_t(w->sectors.size());
        r.is.sectors = w->sectors.data();
    }
    w->receiver(w->ctx, &r);
}

/* --- the calls */

warps *warps_open(warp_receiver *receiver, void *ctx) {
    return new warps{receiver, ctx, {}, {}};
}

void warps_close(warps *w) {
    delete w;
}

void warps_access(warps *w, unsigned thread, const thread_access *a) {
    const unsigned number = thread / LANES;
    while (w->all.size() <= number) w->all.emplace_back();
    Warp &warp = w->all[number];
    Lane &lane = warp.lanes[thread % LANES];
    const bool collective = is_collective(a->kind);
    const uint32_t time =
        (collective ? lane.collectives : lane.since_collective).next(a->instruction);
    Key key = {a->instruction, time, lane.collective, lane.collective_time};
    if (collective) { /* its own number of times says where it is */
        key.collective = key.collective_time = 0;
        lane.collective = a->instruction;
        lane.collective_time = time;
        lane.since_collective.of.clear();
    }
    auto [found, is_new] = warp.at.try_emplace(key, warp.requests.size());
    if (is_new) warp.requests.push_back({*a, 0, {}});
    Open &open = warp.requests[found->second];
    open.lanes++;
    Piece piece = {a->address, a->bytes};
    if (a->kind == REQUEST_PREFETCH && a->bytes == 0) piece = {a->address / LINE * LINE, LINE};
    if (piece.bytes) open.pieces.push_back(piece);
}

void warps_end_block(warps *w) {
    for (Warp &warp : w->all) {
        w->receiver(w->ctx, nullptr);
        for (Open &open : warp.requests) pass_on(w, open);
    }
    w->all.clear();
}
