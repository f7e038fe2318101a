/* SPDX-License-Identifier: MIT
 *
 * Work runs at the call that submits it, or becomes a graph node while its stream captures.
 */
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "emulation/runtime.h"

struct CUgraphNode_st {
    cudaGraphNodeType type;
    std::function<void()> work;
};

/* Shared, because an executable graph keeps its nodes when the graph is destroyed. */
using Nodes = std::vector<std::shared_ptr<CUgraphNode_st>>;

struct CUgraph_st {
    Nodes nodes;
};

struct CUgraphExec_st {
    Nodes nodes;
};

struct CUstream_st {
    CUgraph_st *graph;                       /* NULL: does not capture */
    bool invalid;                            /* the capture has failed */
    std::vector<std::function<void()>> late; /* see submit_late() */
};

struct CUevent_st {
    bool recorded;
    CUgraph_st *graph; /* the capture that recorded it, or NULL */
};

namespace emulation {

/* Runs the work or records it. */
cudaError_t submit(cudaStream_t stream, cudaGraphNodeType type, std::function<void()> work);

/* Work of a library that waits for other processes. It runs as late as a device may run it: before the stream's next
 * work, or when the host waits for the stream. */
cudaError_t submit_late(cudaStream_t stream, std::function<void()> work);

/* For calls that are forbidden while any stream captures: invalidates the captures. */
cudaError_t forbidden_in_capture();

/* For calls on one stream: invalidates its capture. */
cudaError_t forbidden_in_capture_of(cudaStream_t stream);

} // namespace emulation
