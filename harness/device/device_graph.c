/* SPDX-License-Identifier: MIT */
#include "harness/device/device_graph.h"

#include <stdio.h>
#include <stdlib.h>

static cudaError_t open_graph(struct captured *c, const struct device_job *job,
                              const struct launch *how, enqueue_fn *enqueue) {
    cudaError_t status = cudaStreamBeginCapture(how->stream, cudaStreamCaptureModeThreadLocal);
    if (status != cudaSuccess) return status;
    status = enqueue(job, how);
    const cudaError_t ended = cudaStreamEndCapture(how->stream, &c->graph);
    if (status == cudaSuccess) status = ended;
    if (status == cudaSuccess) status = cudaGraphGetNodes(c->graph, NULL, &c->nodes);
    if (status != cudaSuccess || c->nodes == 0) return status;
    status = cudaGraphInstantiate(&c->exec, c->graph, 0);
    return status == cudaSuccess ? cudaGraphUpload(c->exec, how->stream) : status;
}

int captured_open(struct captured *c, const struct device_job *job, const struct launch *how,
                  enqueue_fn *enqueue, struct error *err) {
    *c = (struct captured){0};
    snprintf(c->name, sizeof c->name, "%s, as a CUDA graph", job->kernel->name);
    const cudaError_t status = open_graph(c, job, how, enqueue);
    if (status == cudaSuccess) return 0;
    captured_close(c);
    return device_failed(status, c->name, err);
}

void captured_close(struct captured *c) {
    if (c->exec) cudaGraphExecDestroy(c->exec);
    if (c->graph) cudaGraphDestroy(c->graph);
    c->exec = NULL;
    c->graph = NULL;
}

cudaError_t captured_launch(const struct captured *c) {
    return c->exec ? cudaGraphLaunch(c->exec, device_stream()) : cudaSuccess;
}

cudaError_t captured_count(const struct captured *c, struct device_graph *out) {
    size_t count = c->nodes;
    *out = (struct device_graph){0};
    if (count == 0) return cudaSuccess; /* CUDA refuses to list no nodes */
    cudaGraphNode_t *nodes = must_have(calloc(count, sizeof *nodes));
    cudaError_t status = cudaGraphGetNodes(c->graph, nodes, &count);
    for (size_t i = 0; status == cudaSuccess && i < count; i++) {
        enum cudaGraphNodeType type;
        status = cudaGraphNodeGetType(nodes[i], &type);
        out->kernels += type == cudaGraphNodeTypeKernel;
        out->memsets += type == cudaGraphNodeTypeMemset;
        out->copies += type == cudaGraphNodeTypeMemcpy;
    }
    free(nodes);
    return status;
}
