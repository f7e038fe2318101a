/* SPDX-License-Identifier: MIT */
#include <atomic>

#include "emulation/runtime.h"

namespace emulation {

static thread_local cudaError_t last; /* of the host thread, as in CUDA */
static std::atomic<cudaError_t> sticky;

std::recursive_mutex &turns() {
    static std::recursive_mutex all;
    return all;
}

cudaError_t returned(cudaError_t error) {
    if (error != cudaSuccess) last = error;
    return error;
}

cudaError_t sticky_error() {
    return sticky;
}

void set_sticky_error(cudaError_t error) {
    sticky = last = error;
}

struct Text {
    cudaError_t error;
    const char *name, *text;
};

#define TEXT(error, text)                                                                          \
    { error, #error, text }
static const Text texts[] = {
    TEXT(cudaSuccess, "no error"),
    TEXT(cudaErrorInvalidValue, "invalid argument"),
    TEXT(cudaErrorMemoryAllocation, "out of memory"),
    TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    TEXT(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
    TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    TEXT(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    TEXT(cudaErrorNotReady, "device not ready"),
    TEXT(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    TEXT(cudaErrorNotSupported, "operation not supported"),
    TEXT(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    TEXT(cudaErrorStreamCaptureInvalidated,
         "operation failed due to a previous error during capture"),
};

static const Text *text_of(cudaError_t error) {
    for (const Text &t : texts)
        if (t.error == error) return &t;
    return nullptr;
}

} // namespace emulation

using namespace emulation;

cudaError_t cudaPeekAtLastError(void) {
    const cudaError_t device = sticky;
    return device ? device : last;
}

cudaError_t cudaGetLastError(void) {
    cudaError_t error = cudaPeekAtLastError();
    last = cudaSuccess;
    return error;
}

const char *cudaGetErrorName(cudaError_t error) {
    const Text *t = text_of(error);
    return t ? t->name : "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    const Text *t = text_of(error);
    return t ? t->text : "unrecognized error code";
}
