/* SPDX-License-Identifier: MIT
 *
 * What a step enqueues, captured into a CUDA graph that can be launched as one.
 */
#pragma once

#include "harness/device/device_cuda.h"

typedef int enqueue_fn(const struct device_job *job, const struct launch *how);

struct captured {
    char name[160]; /* for messages */
    cudaGraph_t graph;
    size_t nodes;
    cudaGraphExec_t exec; /* NULL if there is no node: a step without lookups enqueues nothing */
};

/* Captures what enqueue() enqueues, instantiates it, and uploads it: a launch does not wait for that. */
int captured_open(struct captured *c, const struct device_job *job, const struct launch *how,
                  enqueue_fn *enqueue, struct error *err);
void captured_close(struct captured *c);
/* Enqueues the graph; without nodes, nothing. */
cudaError_t captured_launch(const struct captured *c);
/* Counts its nodes. */
cudaError_t captured_count(const struct captured *c, struct device_graph *out);
