/* SPDX-License-Identifier: MIT
 *
 * Groups the accesses of the threads of a block into the requests that its warps issue. The emulation
 * runs the lanes of a warp one after another. Lanes count as one request if each executes the
 * instruction for the k-th time since the same collective, which each has passed equally often. A device
 * runs lanes together if they take the same way, and joins them where they meet.
 */
#pragma once

#include "extras/cuda/counts/request.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One access, collective or fence of one thread. */
struct thread_access {
    uint32_t instruction;
    enum request_kind kind;
    bool shared;
    uint64_t address; /* shared: in the block's window */
    uint32_t bytes;   /* 0: moves nothing; of a prefetch, the whole line */
};

struct warp_request {
    struct request is;
    uint32_t instruction;
    bool shared;    /* then `is` has no sectors */
    uint32_t lanes; /* that take part */
    uint32_t used;  /* distinct bytes that they access */
    /* Of shared memory: words of 4 bytes in the bank with the most of them, and the least that this
     * could be for so many words. */
    uint32_t ways, least_ways;
};

struct warps;

/* Receives the requests of a block, warp by warp; NULL: the next warp begins. */
typedef void warp_receiver(void *ctx, const struct warp_request *r);

struct warps *warps_open(warp_receiver *receiver, void *ctx);
void warps_close(struct warps *w);

/* thread: linear in its block. */
void warps_access(struct warps *w, unsigned thread, const struct thread_access *a);

/* Passes on the requests of all warps. */
void warps_end_block(struct warps *w);

#ifdef __cplusplus
}
#endif
