/* SPDX-License-Identifier: MIT
 *
 * The model of L2 on caches of one set that are worked by hand, the order of a replay, and what an SM
 * holds.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extras/cuda/counts/devices.h"
#include "extras/cuda/counts/l2.h"
#include "extras/cuda/counts/replay.h"

#include "tests/support/cmocka_cases.h"

enum { ALL = -1, WAY = LINE_SECTORS * SECTOR };

/* --- requests, one after another, to a set of two ways */

/* L1: a load of line 1, sector 0. S1.3:f: a store of the bytes f of its sector 3. A: an atomic, P: a prefetch;
 * B and N: loads that are kept briefly, or not at all. */
static struct request request_of(const char *word, struct sector *sector) {
    static const struct {
        char letter;
        enum request_kind kind;
        enum request_keep keep;
    } kinds[] = {{'L', REQUEST_LOAD, KEEP_NORMAL},     {'S', REQUEST_STORE, KEEP_NORMAL},
                 {'A', REQUEST_ATOMIC, KEEP_NORMAL},   {'B', REQUEST_LOAD, KEEP_BRIEFLY},
                 {'P', REQUEST_PREFETCH, KEEP_NORMAL}, {'N', REQUEST_LOAD, KEEP_NOTHING}};
    unsigned line, number = 0, bytes = (unsigned)ALL, k = 0;
    assert_true(sscanf(word + 1, "%u.%u:%x", &line, &number, &bytes) >= 1);
    while (kinds[k].letter != *word) k++;
    *sector = (struct sector){line * LINE_SECTORS + number, bytes};
    return (struct request){
        .kind = kinds[k].kind, .keep = kinds[k].keep, .count = 1, .sectors = sector};
}

struct l2_case {
    const char *test;
    uint64_t late; /* requests that have to lie between a prefetch and the use */
    const char *requests, *counts;
};

/* Hits, sectors read and written, and sectors that are still dirty; of prefetches also their sectors, those that
 * were present, and fates. */
static const struct l2_case l2_cases[] = {
    {"line 3 replaces 2, which is older", 0, "L1 L2 L1 L3 L1 L2", "2 4 0 0"},
    {"only the sectors that are asked for move", 0, "L1.0:f L1.0:f0 L1.3:1 L2 L1.3:1", "2 3 0 0"},
    {"a stored sector is not read", 0, "S1.0:ffff S1.0:ffff0000 L2", "0 1 0 1"},
    {"it moves when its line leaves", 0, "S1.0:ffff S1.0:ffff0000 L2 L3", "0 2 1 0"},
    {"stored bytes are here", 0, "S1.0:f L1.0:f", "1 0 0 1"},
    {"a gap is read for a load", 0, "S1.0:f L1.0:f0", "0 1 0 1"},
    {"an atomic reads and writes", 0, "S2.0:f A1.1:f", "0 1 0 2"},
    {"a gap is read when its line leaves", 0, "S2.0:f A1.1:f L3", "0 3 1 1"},
    {"briefly kept lines leave first", 0, "L1 B2 B3 L1 L2", "1 4 0 0"},
    {"what is not kept takes no way", 0, "L1 B2 N4 B2", "1 3 0 0"},
    {"used in time", 2, "P1 P2 P1 L1", "1 2 0 0, 3 1 1 0 0"},
    {"used too soon", 2, "P3 L3", "1 1 0 0, 1 0 0 1 0"},
    {"gone before it is used", 2, "P2 P3 P4 L2", "0 4 0 0, 3 0 0 0 1"},
    {"never used", 2, "P4 L1", "0 2 0 0, 1 0 0 0 0"},
};

static void requests_in_turn(void **state) {
    const struct l2_case *c = *state;
    struct l2 *l2 = l2_open(2 * WAY, 2, c->late);
    char words[100], counts[100];
    int requests = 0;
    strcpy(words, c->requests);
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " "), requests++) {
        struct sector sector;
        const struct request r = request_of(w, &sector);
        l2_request(l2, &r);
    }
    const struct l2_counts n = l2_counted(l2);
    snprintf(counts, sizeof counts, "%d %d %d %d, %d %d %d %d %d", (int)n.hits, (int)n.read,
             (int)n.written, (int)l2_dirty(l2), (int)n.prefetched, (int)n.present, (int)n.timely,
             (int)n.late, (int)n.early);
    if (!strchr(c->counts, ',')) *strchr(counts, ',') = 0;
    assert_string_equal(counts, c->counts);
    if (!strpbrk(c->requests, "SAP")) assert_int_equal(n.hits + n.misses, requests);
    assert_int_equal(n.requests, requests);
    l2_close(l2);
}

/* --- replay: the order shows in what a cache of so many lines misses */

/* A digit loads that line, a comma is a collective, | a barrier; ; begins a warp, and / a block. */
static struct trace *trace_of(const char *text) {
    struct trace *t = trace_open();
    trace_block(t);
    trace_warp(t);
    for (const char *c = text; *c; c++) {
        const struct sector s = {(uint32_t)(*c - '0') * LINE_SECTORS, (uint32_t)ALL};
        struct request r = {.kind = REQUEST_LOAD, .count = 1, .sectors = &s};
        if (*c == '/') trace_block(t);
        if (*c == '/' || *c == ';') {
            trace_warp(t);
            continue;
        }
        if (*c == ',' || *c == '|')
            r = (struct request){.kind = *c == '|' ? REQUEST_BARRIER : REQUEST_OTHER};
        trace_request(t, &r);
    }
    return t;
}

struct replay_case {
    const char *test, *trace;
    int lines;
    uint64_t resident, misses;
};

static const struct replay_case replays[] = {
    {"a block at a time", "1,1,1,/2,2,2,/3,", 1, 1, 3},
    {"two blocks in turn: 1 2 1 2 1 2 3", "1,1,1,/2,2,2,/3,", 1, 2, 7},
    {"a barrier: 2 2 1 1", "/|1,1;2,2|", 1, 1, 2},
    {"loads without a collective are one turn", "111/222", 1, 2, 2},
    {"hits end no turn: 1 2 1 1 3 2 2", "1,1,1,3,/2,2,2,", 2, 2, 4},
};

static void order_of_a_replay(void **state) {
    const struct replay_case *c = *state;
    struct l2 *l2 = l2_open((uint64_t)(c->lines * WAY), c->lines, 0);
    struct trace *t = trace_of(c->trace);
    trace_replay(t, l2, c->resident, 0);
    assert_int_equal(l2_counted(l2).misses, c->misses);
    trace_close(t);
    l2_close(l2);
}

/* sum_runs<1, true, false> on sm_90: 128 registers and 128 threads make 4 blocks. 129 registers are
 * given out as 136. Shared memory of 100 KiB, and 1 for the system, leaves room for two. */
static void occupancy(void **state) {
    const struct device_model *h100 = device_model_find("h100");
    (void)state;
    assert_int_equal(device_model_blocks(h100, 128, 128, 8), 4);
    assert_int_equal(device_model_blocks(h100, 128, 129, 8), 3);
    assert_int_equal(device_model_blocks(h100, 128, 32, 8), 16);
    assert_int_equal(device_model_blocks(h100, 32, 16, 0), 32);
    assert_int_equal(device_model_blocks(h100, 128, 32, 100 << 10), 2);
    assert_null(device_model_find("h1000"));
}

TESTS(counts_l2) {
    ADD_CASES(l2_cases, requests_in_turn);
    ADD_CASES(replays, order_of_a_replay);
    ADD_TEST(occupancy);
    return run_added("counts_l2");
}
