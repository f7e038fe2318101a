/* SPDX-License-Identifier: MIT
 *
 * Plays the requests of a launch back as a device with many SMs would issue them. The emulation runs
 * blocks one after another; here `resident` blocks run at once, and a block that ends makes room for
 * the next one. Their warps take turns, in a fixed order or a random one with a seed.
 *
 * In its turn a warp issues runs of loads until one of them misses, because it waits for memory then;
 * stores and prefetches wait for nothing. A store, a collective, a fence or a barrier ends a run of
 * loads, because it probably uses what they load. At a barrier a warp waits for the other warps of its
 * block.
 */
#pragma once

#include "extras/cuda/counts/l2.h"
#include "extras/cuda/counts/request.h"

#ifdef __cplusplus
extern "C" {
#endif

struct trace;

struct trace *trace_open(void);
void trace_close(struct trace *t);
void trace_clear(struct trace *t);

/* Blocks and the warps of a block are added in their order, each with all its requests. */
void trace_block(struct trace *t);
void trace_warp(struct trace *t);
void trace_request(struct trace *t, const struct request *r);

/* seed 0: in turn. */
void trace_replay(const struct trace *t, struct l2 *l2, uint64_t resident, uint64_t seed);

#ifdef __cplusplus
}
#endif
