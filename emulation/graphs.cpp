/* SPDX-License-Identifier: MIT */
#include <algorithm>

#include "emulation/stream.h"

using namespace emulation;

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    if (!graph) return returned(cudaErrorInvalidValue);
    if (sticky_error()) return returned(sticky_error());
    *exec = new CUgraphExec_st{graph->nodes};
    return cudaSuccess;
}

/* Nothing to bring anywhere. */
cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    if (!exec) return returned(cudaErrorInvalidValue);
    Turn turn;
    return returned(forbidden_in_capture_of(stream));
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    if (!exec) return returned(cudaErrorInvalidValue);
    Nodes nodes = exec->nodes;
    return returned(submit(stream, cudaGraphNodeTypeGraph, [nodes] {
        for (const auto &node : nodes) node->work();
    }));
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    if (!graph) return returned(cudaErrorInvalidValue);
    delete graph;
    return returned(sticky_error());
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    if (!exec) return returned(cudaErrorInvalidValue);
    delete exec;
    return returned(sticky_error());
}

/* If nodes is set, fills in at most *count of them. */
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count) {
    if (!graph || !count || (nodes && *count == 0)) return returned(cudaErrorInvalidValue);
    size_t all = graph->nodes.size();
    if (nodes)
        for (size_t i = 0; i < *count; i++) nodes[i] = i < all ? graph->nodes[i].get() : nullptr;
    *count = nodes ? std::min(*count, all) : all;
    return returned(sticky_error());
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType *type) {
    if (!node || !type) return returned(cudaErrorInvalidValue);
    *type = node->type;
    return returned(sticky_error());
}
