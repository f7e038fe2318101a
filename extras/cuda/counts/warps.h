/* SPDX-License-Identifier: MIT
 *
 * Groups what the threads of a block do into what its warps issue. The emulation runs the lanes of a
 * warp one after another. Lanes that execute an instruction for the same time after the same
 * collective, itself passed the same number of times, do so together: a device runs them so if they
 * take the same way, and joins them again where they meet.
 */
#pragma once

#include "extras/cuda/counts/request.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What one thread does. */
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
