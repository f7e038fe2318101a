/* SPDX-License-Identifier: MIT
 *
 * How accesses of threads become requests of warps, on blocks that are worked by hand.
 */
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

static void load(struct warps *w, unsigned thread, uint32_t at, uint64_t address, uint32_t bytes) {
    const struct thread_access a = {at, REQUEST_LOAD, KEEP_NORMAL, false, address, bytes};
    warps_access(w, thread, &a);
}

static void collective(struct warps *w, unsigned thread, uint32_t at) {
    const struct thread_access a = {at, REQUEST_OTHER, KEEP_NORMAL, false, 0, 0};
    warps_access(w, thread, &a);
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

/* A loop that lane 0 goes through twice and lane 1 once. The lanes run one after another, and still
 * the first times are one request. */
static void nth_time(void **state) {
    struct warps *w = start();
    (void)state;
    load(w, 0, 7, 0, 4);
    load(w, 0, 7, 32, 4);
    load(w, 1, 7, 64, 4);
    end(w);
    assert_int_equal(got.count, 2);
    assert_int_equal(got.request[0].lanes, 2);
    assert_int_equal(got.request[0].is.count, 2);
    assert_int_equal(got.request[1].lanes, 1);
}

/* Lane 0 loads once before a collective, lane 1 not at all; after it, both do: lane 0's second time and
 * lane 1's first one are one request. */
static void collectives_join(void **state) {
    struct warps *w = start();
    (void)state;
    load(w, 0, 7, 0, 4);
    collective(w, 0, 8);
    load(w, 0, 7, 32, 4);
    collective(w, 1, 8);
    load(w, 1, 7, 36, 4);
    end(w);
    assert_int_equal(got.count, 3);
    assert_int_equal(got.request[0].lanes, 1);
    assert_int_equal(got.request[1].is.kind, REQUEST_OTHER);
    assert_int_equal(got.request[1].lanes, 2);
    assert_int_equal(got.request[2].lanes, 2);
    assert_int_equal(got.request[2].is.count, 1);
}

/* A collective that only lane 0 passes, between others that both pass: they stay together. */
static void collectives_of_some(void **state) {
    struct warps *w = start();
    (void)state;
    for (unsigned t = 0; t < 2; t++) {
        collective(w, t, 8);
        if (t == 0) collective(w, t, 9);
        collective(w, t, 8);
        load(w, t, 7, 4 * t, 4);
    }
    end(w);
    assert_int_equal(got.count, 4);
    assert_int_equal(got.request[3].lanes, 2);
}

/* A prefetch asks for the line around its address. */
static void prefetch(void **state) {
    struct warps *w = start();
    const struct thread_access a = {0, REQUEST_PREFETCH, KEEP_NORMAL, false, 200, 0},
                               bulk = {1, REQUEST_PREFETCH, KEEP_NORMAL, false, 256, 32};
    (void)state;
    warps_access(w, 0, &a);
    warps_access(w, 0, &bulk);
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
    ADD_TEST(nth_time);
    ADD_TEST(collectives_join);
    ADD_TEST(collectives_of_some);
    ADD_TEST(prefetch);
    ADD_TEST(banks);
    return run_added("counts_warps");
}
