/* SPDX-License-Identifier: MIT
 *
 * Work runs at the call that submits it, or, while its stream captures, becomes a node of a graph.
 */
#ifndef EMBFUSE_EMULATION_STREAM_H
#define EMBFUSE_EMULATION_STREAM_H

#include <functional>
#include <memory>
#include <vector>

#include "emulation/runtime.h"

struct CUgraphNode_st {
    cudaGraphNodeType type;
    std::function<void()> work;
};

/* Executable graphs keep the nodes of a graph that is destroyed. */
using Nodes = std::vector<std::shared_ptr<CUgraphNode_st>>;

struct CUgraph_st {
    Nodes nodes;
};

struct CUgraphExec_st {
    Nodes nodes;
};

struct CUstream_st {
    unsigned flags;
    CUgraph_st *graph; /* NULL: it does not capture */
    bool began;        /* the capture; the graph's other streams have joined */
    bool invalid;      /* the capture has failed */
    cudaStreamCaptureMode mode;
};

struct CUevent_st {
    bool timing;
    bool recorded;
    CUgraph_st *graph; /* of the capture in which it was recorded, or NULL */
};

namespace emulation {

/* Whether it exists, or is one of those that always do. */
bool is_stream(cudaStream_t stream);
bool is_default(cudaStream_t stream);

/* Runs the work or records it. */
cudaError_t submit(cudaStream_t stream, cudaGraphNodeType type, std::function<void()> work);

/* For calls that must not be made while any stream captures: invalidates what captures. */
cudaError_t forbidden_in_capture();

/* Likewise, for calls on one stream. */
cudaError_t forbidden_in_capture_of(cudaStream_t stream);

} // namespace emulation

#endif
