/* SPDX-License-Identifier: MIT */
#include "emulation/stream.h"

#include <algorithm>
#include <limits>

#include "emulation/device_heap.h"

namespace emulation {

static std::vector<cudaStream_t> streams;
static std::vector<cudaEvent_t> events;

template <class T> static bool listed(const std::vector<T> &all, T one) {
    return std::find(all.begin(), all.end(), one) != all.end();
}

/* NULL is the default stream. */
static bool is_stream(cudaStream_t stream) {
    return !stream || listed(streams, stream);
}

static bool captures(cudaStream_t stream) {
    return stream && stream->graph;
}

cudaError_t forbidden_in_capture() {
    cudaError_t error = cudaSuccess;
    for (cudaStream_t s : streams) {
        if (!s->graph) continue;
        s->invalid = true; /* a failed capture continues, but can only fail */
        error = cudaErrorStreamCaptureUnsupported;
    }
    return error;
}

cudaError_t forbidden_in_capture_of(cudaStream_t stream) {
    if (!is_stream(stream)) return cudaErrorInvalidResourceHandle;
    if (!captures(stream)) return sticky_error();
    stream->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
}

static void catch_up(cudaStream_t stream) {
    if (!stream) return;
    auto late = std::move(stream->late);
    stream->late.clear();
    for (auto &work : late) work();
}

cudaError_t submit_late(cudaStream_t stream, std::function<void()> work) {
    Turn turn;
    cudaError_t error = forbidden_in_capture_of(stream);
    if (!error && !stream) error = cudaErrorNotSupported;
    if (!error) stream->late.push_back(std::move(work));
    return error;
}

cudaError_t submit(cudaStream_t stream, cudaGraphNodeType type, std::function<void()> work) {
    Turn turn;
    if (captures(stream)) {
        if (stream->invalid) return cudaErrorStreamCaptureInvalidated;
        stream->graph->nodes.push_back(
            std::make_shared<CUgraphNode_st>(CUgraphNode_st{type, std::move(work)}));
        return sticky_error();
    }
    cudaError_t error = forbidden_in_capture_of(stream);
    if (error) return error;
    catch_up(stream);
    work();
    return cudaSuccess;
}

/* --- kernels and library calls */

static void run_or_fail(const Launch &call, const std::function<void()> &thread,
                        void (*run)(const Launch &, const std::function<void()> &)) {
    if (sticky_error()) return; /* an earlier node of the graph has failed */
    if (launch_fails(call.kernel))
        set_sticky_error(cudaErrorIllegalAddress);
    else
        run(call, thread);
}

void launch(const Launch &call, std::function<void()> thread) {
    Turn turn;
    cudaError_t error = launch_error(call);
    if (!error)
        error = submit(call.stream, cudaGraphNodeTypeKernel,
                       [call, thread] { run_or_fail(call, thread, run_kernel); });
    returned(error);
}

cudaError_t library_call(const char *name, cudaStream_t stream, std::function<void()> work) {
    Turn turn;
    Launch call = {name, {"a library", 0}, 1, 1, 0, stream, nullptr};
    return returned(submit(stream, cudaGraphNodeTypeKernel,
                           [call, work] { run_or_fail(call, work, run_library); }));
}

} // namespace emulation

using namespace emulation;

/* --- streams */

/* The default stream never waits for a stream of the emulation, so each must be a non-blocking one. */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    Turn turn;
    if (sticky_error()) return returned(sticky_error());
    if (flags != cudaStreamNonBlocking) return returned(cudaErrorNotSupported);
    *stream = new CUstream_st{};
    streams.push_back(*stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    Turn turn;
    if (!listed(streams, stream)) return returned(cudaErrorInvalidResourceHandle);
    delete stream->graph;
    catch_up(stream);
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    return returned(sticky_error());
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    Turn turn;
    cudaError_t error = forbidden_in_capture_of(stream);
    if (!error) catch_up(stream);
    return returned(error);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
    Turn turn;
    cudaError_t error = forbidden_in_capture_of(stream);
    if (!error) catch_up(stream);
    return returned(error);
}

/* --- events */

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    Turn turn;
    if (sticky_error()) return returned(sticky_error());
    *event = new CUevent_st{};
    events.push_back(*event);
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    Turn turn;
    auto i = std::find(events.begin(), events.end(), event);
    if (i == events.end()) return returned(cudaErrorInvalidResourceHandle);
    events.erase(i);
    delete event;
    return returned(sticky_error());
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    Turn turn;
    if (!listed(events, event)) return returned(cudaErrorInvalidResourceHandle);
    cudaError_t error = cudaSuccess;
    if (!captures(stream))
        error = forbidden_in_capture_of(stream);
    else if (stream->invalid)
        error = cudaErrorStreamCaptureInvalidated;
    if (error) return returned(error);
    event->recorded = true;
    event->graph = captures(stream) ? stream->graph : nullptr;
    return returned(sticky_error());
}

/* An event of a capture never happens, so a wait for it would never end. */
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    Turn turn;
    if (!listed(events, event)) return returned(cudaErrorInvalidResourceHandle);
    if (!event->graph) return returned(sticky_error());
    for (cudaStream_t s : streams)
        if (s->graph == event->graph) s->invalid = true;
    return returned(cudaErrorStreamCaptureUnsupported);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end) {
    Turn turn;
    *ms = std::numeric_limits<float>::quiet_NaN();
    for (cudaEvent_t e : {start, end})
        if (!listed(events, e) || !e->recorded || e->graph)
            return returned(cudaErrorInvalidResourceHandle);
    return returned(sticky_error());
}

/* --- capture */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    Turn turn;
    if (!is_stream(stream)) return returned(cudaErrorInvalidResourceHandle);
    if (!stream) return returned(cudaErrorStreamCaptureUnsupported);
    if (stream->graph) return returned(cudaErrorIllegalState);
    if (sticky_error()) return returned(sticky_error());
    stream->graph = new CUgraph_st;
    stream->invalid = false;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    Turn turn;
    *graph = nullptr;
    if (!is_stream(stream)) return returned(cudaErrorInvalidResourceHandle);
    if (!captures(stream)) return returned(cudaErrorIllegalState);
    for (cudaEvent_t e : events)
        if (e->graph == stream->graph) e->recorded = false, e->graph = nullptr;
    if (stream->invalid)
        delete stream->graph;
    else
        *graph = stream->graph;
    stream->graph = nullptr;
    return returned(stream->invalid ? cudaErrorStreamCaptureInvalidated : sticky_error());
}
