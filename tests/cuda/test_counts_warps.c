/* SPDX-License-Identifier: MIT
 *
 * How accesses of threads become requests of warps, on blocks that are worked by hand.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "emulation/counts/warps.h"

#include "tests/support/cmocka_cases.h"

enum { MOST = 64 };

/* What the receiver got. */
static struct {
    int warps, count;
    struct warp_request request[MOST];
    struct sector sectors[MOST][MOST];
} got;

static void receive(void *ctx, const struct warp_request *r) {
    (void)ctx;
    if (!r) {
        got.warps++;
        return;
    }
    assert_in_range(got.count, 0, MOST - 1);
    got.request[got.count] = *r;
    for (uint32_t i = 0; i < r->is.count && i < MOST; i++)
        got.sectors[got.count][i] = r->is.sectors[i];
    got.count++;
}

static struct warps *start(void) {
    memset(&got, 0, sizeof got);
    return warps_open(receive, NULL);
}

static void end(struct warps *w) {
    warps_end_block(w);
    warps_close(w);
}

static void access(struct warps *w, unsigned thread, enum request_kind kind, uint32_t at,
                   uint64_t address, uint32_t bytes) {
    const struct thread_access a = {at, kind, KEEP_NORMAL, false, address, bytes};
    warps_access(w, thread, &a);
}

static void load(struct warps *w, unsigned thread, uint32_t at, uint64_t address, uint32_t bytes) {
    access(w, thread, REQUEST_LOAD, at, address, bytes);
}

/* 32 lanes load 16 bytes each from an address that is not at the begin of a sector: 17 sectors, of which
 * the first and the last are half used. */
static void coalesced(void **state) {
    struct warps *w = start();
    (void)state;
    for (unsigned t = 0; t < 32; t++) load(w, t, 0, 16 + 16 * (uint64_t)t, 16);
    end(w);
    assert_int_equal(got.warps, 1);
    assert_int_equal(got.count, 1);
    assert_int_equal(got.request[0].is.count, 17);
    assert_int_equal(got.request[0].used, 512);
    assert_int_equal(got.request[0].lanes, 32);
    assert_int_equal(got.sectors[0][0].bytes, 0xffff0000);
    assert_int_equal(got.sectors[0][16].bytes, 0x0000ffff);
}

/* All lanes load the same 8 bytes: one sector, 8 bytes. Two warps: two requests. */
static void uniform(void **state) {
    struct warps *w = start();
    (void)state;
    for (unsigned t = 0; t < 64; t++) load(w, t, 0, 40, 8);
    end(w);
    assert_int_equal(got.warps, 2);
    assert_int_equal(got.count, 2);
    assert_int_equal(got.request[1].is.count, 1);
    assert_int_equal(got.request[1].used, 8);
    assert_int_equal(got.sectors[1][0].bytes, 0xff00);
}

/* Lanes one after another, as they run: "0L" is a load of lane 0 in line 7, of a sector of its own;
 * 0A and 0B are collectives in lines 8 and 9. Requests are their kind and lanes. */
struct turns_case {
    const char *test, *accesses, *requests;
};

static const struct turns_case turns[] = {
    {"the n-th times of a loop are one request", "0L 0L 1L", "L2 L1 "},
    {"a collective joins lanes that have looped less", "0L 0A 0L 1A 1L", "L1 A2 L2 "},
    {"lanes stay together after a collective of some", "0A 0B 0A 0L 1A 1A 1L", "A2 B1 A2 L2 "},
};

static void lanes_in_turn(void **state) {
    const struct turns_case *c = *state;
    struct warps *w = start();
    char requests[100] = "";
    for (const char *a = c->accesses; *a; a += a[2] ? 3 : 2)
        if (a[1] == 'L')
            load(w, (unsigned)(*a - '0'), 7, 32 * (uint64_t)(a - c->accesses), 4);
        else
            access(w, (unsigned)(*a - '0'), REQUEST_OTHER, a[1] == 'A' ? 8 : 9, 0, 0);
    end(w);
    for (int r = 0; r < got.count; r++) {
        const struct warp_request *is = &got.request[r];
        const bool loads = is->is.kind == REQUEST_LOAD;
        if (loads) assert_int_equal(is->is.count, is->lanes);
        sprintf(requests + strlen(requests), "%c%d ",
                loads                  ? 'L'
                : is->instruction == 8 ? 'A'
                                       : 'B',
                (int)is->lanes);
    }
    assert_string_equal(requests, c->requests);
}

/* A prefetch asks for the line around its address. */
static void prefetch(void **state) {
    struct warps *w = start();
    (void)state;
    access(w, 0, REQUEST_PREFETCH, 0, 200, 0);
    access(w, 0, REQUEST_PREFETCH, 1, 256, 32); /* of a bulk */
    end(w);
    assert_int_equal(got.request[0].is.count, 4);
    assert_int_equal(got.sectors[0][0].number, 4);
    assert_int_equal(got.request[1].is.count, 1);
}

static struct warp_request shared_by(uint32_t stride, uint32_t bytes) {
    struct warps *w = start();
    for (unsigned t = 0; t < 32; t++) {
        const struct thread_access a = {0, REQUEST_LOAD, KEEP_NORMAL, true, stride * t, bytes};
        warps_access(w, t, &a);
    }
    end(w);
    return got.request[0];
}

/* Words apart: no conflict. 8 bytes apart: every other bank, two ways where one would do. 128 bytes
 * apart: all in one bank. The same word: one way. 16 bytes each: four ways at least. */
static void banks(void **state) {
    static const struct {
        uint32_t stride, bytes, ways, least;
    } cases[] = {{4, 4, 1, 1}, {8, 4, 2, 1}, {128, 4, 32, 1}, {0, 4, 1, 1}, {16, 16, 4, 4}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct warp_request r = shared_by(cases[i].stride, cases[i].bytes);
        assert_int_equal(r.ways, cases[i].ways);
        assert_int_equal(r.least_ways, cases[i].least);
        assert_int_equal(r.is.count, 0);
    }
}

TESTS(counts_warps) {
    ADD_TEST(coalesced);
    ADD_TEST(uniform);
    ADD_CASES(turns, lanes_in_turn);
    ADD_TEST(prefetch);
    ADD_TEST(banks);
    return run_added("counts_warps");
}
