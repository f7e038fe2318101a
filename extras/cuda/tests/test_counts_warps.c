/* SPDX-License-Identifier: MIT
 *
 * Accesses of threads become requests of warps. The expected requests are worked out by hand.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "extras/cuda/counts/warps.h"

#include "tests/support/cmocka_cases.h"

enum { MOST = 64 };

/* The requests that the receiver got. */
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
    const struct thread_access a = {at, kind, false, address, bytes};
    warps_access(w, thread, &a);
}

static void load(struct warps *w, unsigned thread, uint32_t at, uint64_t address, uint32_t bytes) {
    access(w, thread, REQUEST_LOAD, at, address, bytes);
}

/* Each thread loads `bytes`: the first at `at`, each further one `stride` bytes later. */
struct loads_case {
    const char *test;
    unsigned threads;
    uint32_t at, stride, bytes;
    int requests; /* one of each warp: */
    uint32_t sectors, used, bytes_of_first, bytes_of_last;
};

static const struct loads_case loads[] = {
    {"rows that do not begin with a sector", 32, 16, 16, 16, 1, 17, 512, 0xffff0000, 0x0000ffff},
    {"the same 8 bytes, in two warps", 64, 40, 0, 8, 2, 1, 8, 0xff00, 0xff00},
};

static void loads_of_warps(void **state) {
    const struct loads_case *c = *state;
    struct warps *w = start();
    for (unsigned t = 0; t < c->threads; t++)
        load(w, t, 0, c->at + c->stride * (uint64_t)t, c->bytes);
    end(w);
    assert_int_equal(got.warps, c->threads / 32);
    assert_int_equal(got.count, c->requests);
    assert_int_equal(got.request[0].is.count, c->sectors);
    assert_int_equal(got.request[0].used, c->used);
    assert_int_equal(got.request[0].lanes, 32);
    assert_int_equal(got.sectors[0][0].bytes, c->bytes_of_first);
    assert_int_equal(got.sectors[0][c->sectors - 1].bytes, c->bytes_of_last);
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
        const char kind = is->is.kind == REQUEST_LOAD ? 'L' : is->instruction == 8 ? 'A' : 'B';
        sprintf(requests + strlen(requests), "%c%d ", kind, (int)is->lanes);
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

/* Accesses of shared memory, so far apart. */
static void banks(void **state) {
    static const struct {
        uint32_t stride, bytes, ways, least;
    } cases[] = {{4, 4, 1, 1},    /* words side by side */
                 {8, 4, 2, 1},    /* every other bank: two ways where one would do */
                 {128, 4, 32, 1}, /* all in one bank */
                 {0, 4, 1, 1},    /* the same word */
                 {16, 16, 4, 4}}; /* four ways at least */
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct warps *w = start();
        for (unsigned t = 0; t < 32; t++) {
            const struct thread_access a = {0, REQUEST_LOAD, true, cases[i].stride * t,
                                            cases[i].bytes};
            warps_access(w, t, &a);
        }
        end(w);
        assert_int_equal(got.request[0].ways, cases[i].ways);
        assert_int_equal(got.request[0].least_ways, cases[i].least);
        assert_int_equal(got.request[0].is.count, 0);
    }
}

TESTS(counts_warps) {
    ADD_CASES(loads, loads_of_warps);
    ADD_CASES(turns, lanes_in_turn);
    ADD_TEST(prefetch);
    ADD_TEST(banks);
    return run_listed("counts_warps");
}
