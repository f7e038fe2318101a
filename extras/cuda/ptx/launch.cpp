/* SPDX-License-Identifier: MIT
 *
 * Nvcc's host code calls this instead of libcudart. A launch finds the translated kernel by the
 * PTX name under which the stub was registered. The emulation has all other calls.
 *
 * __cudaRegisterFunction is renamed in each object, to a function of the translation of the same
 * source, because names of kernels are only unique in one file. cudaFuncGetAttributes is renamed,
 * because these objects know NVIDIA's struct.
 */
#include <cstdlib>
#include <cxxabi.h>
#include <memory>
#include <unordered_map>
#include <vector>

#include "emulation/emulation.h"
#include "extras/cuda/ptx/run.h"
#include "emulation/stream.h"

namespace ptx {

struct Registered {
    const Translated *kernel; /* NULL: not translated */
    const char *name;         /* demangled */
};

static std::unordered_map<const void *, Registered> &stubs() {
    static std::unordered_map<const void *, Registered> all;
    return all;
}

void add(const void *stub, const char *symbol, const Translated *all, int count) {
    int status;
    const char *name = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    Registered r = {nullptr, name ? name : symbol};
    for (int i = 0; i < count; i++)
        if (strcmp(all[i].symbol, symbol) == 0) r.kernel = &all[i];
    stubs()[stub] = r;
}

static const Registered &registered(const void *stub) {
    auto i = stubs().find(stub);
    if (i == stubs().end()) emulation::fatal("a launch of a kernel that was not registered");
    if (!i->second.kernel) emulation::fatal("%s has no translation", i->second.name);
    return i->second;
}

/* CUB's look-back waits for the blocks before, which a device starts first. */
static bool needs_ascending(const Translated &k) {
    return strncmp(k.symbol, "_ZN3cub", 7) == 0;
}

static void run(const emulation::Launch &call, const Translated &k, char *parameters) {
    if (emulation::sticky_error()) return;
    if (emulation::launch_fails(call.kernel)) {
        emulation::set_sticky_error(cudaErrorIllegalAddress);
        return;
    }
    catch_faults();
    begin_switches();
    const Kernel begun = {k.symbol, call.grid, call.block};
    emulation::Settings &settings = emulation::settings();
    const emulation::Settings before = settings;
    settings.resident = 1; /* memory.cpp has the shared memory of one block */
    if (needs_ascending(k)) settings.order = EMULATION_ASCENDING;
    if (observer) observer->kernel_begins(begun);
    emulation::run_kernel(call, [&] {
        open_shared(k, call.shared_bytes);
        k.body(parameters);
    });
    if (observer) observer->kernel_ends(begun);
    settings.resident = before.resident;
    settings.order = before.order;
}

static cudaError_t launch(const void *stub, dim3 grid, dim3 block, void **arguments, size_t shared,
                          cudaStream_t stream) {
    emulation::Turn turn;
    const Registered &r = registered(stub);
    const Translated &k = *r.kernel;
    auto parameters = std::make_shared<std::vector<char>>(k.parameter_bytes + 16);
    for (int i = 0; i < k.parameter_count; i++)
        memcpy(parameters->data() + k.parameters[i].offset, arguments[i], k.parameters[i].bytes);
    emulation::Launch call = {r.name, {"PTX", k.arch}, grid, block, shared, stream, stub};
    cudaError_t error = emulation::launch_error(call);
    if (!error)
        error = emulation::submit(stream, cudaGraphNodeTypeKernel,
                                  [call, &k, parameters] { run(call, k, parameters->data()); });
    return emulation::returned(error);
}

/* The architecture of the translated PTX, for which CUB chooses its policies. */
static int arch() {
    for (auto &s : stubs())
        if (s.second.kernel) return s.second.kernel->arch;
    return 0;
}

struct Configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};
static thread_local std::vector<Configuration> pushed;

} // namespace ptx

/* These structs are laid out as in NVIDIA's headers. */
struct LaunchConfig {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
    void *attributes;
    unsigned count;
};
struct FunctionAttributes {
    size_t shared, constant, local;
    int threads, registers, ptx, binary, cache_mode, dynamic_limit;
};

extern "C" {

void **__cudaRegisterFatBinary(void *) {
    static void *handle;
    return &handle;
}
void __cudaRegisterFatBinaryEnd(void **) {}
void __cudaUnregisterFatBinary(void **) {}
char __cudaInitModule(void **) {
    return 1;
}
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int) {}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    ptx::pushed.push_back({grid, block, shared, stream});
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream) {
    ptx::Configuration c = ptx::pushed.back();
    ptx::pushed.pop_back();
    *grid = c.grid;
    *block = c.block;
    *shared = c.shared;
    *static_cast<cudaStream_t *>(stream) = c.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(const void **kernel, const void *stub) {
    *kernel = stub;
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **arguments,
                               size_t shared, cudaStream_t stream) {
    return ptx::launch(kernel, grid, block, arguments, shared, stream);
}
cudaError_t cudaLaunchKernelExC(const LaunchConfig *c, const void *stub, void **arguments) {
    return ptx::launch(stub, c->grid, c->block, arguments, c->shared, c->stream);
}
cudaError_t ptx_cudaFuncGetAttributes(FunctionAttributes *a, const void *function) {
    cudaFuncAttributes emulated;
    cudaError_t error = cudaFuncGetAttributes(&emulated, function);
    *a = {0,           0,           0, emulated.maxThreadsPerBlock,       emulated.numRegs,
          ptx::arch(), ptx::arch(), 0, emulated.maxDynamicSharedSizeBytes};
    return error;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *blocks,
                                                                   const void *function, int size,
                                                                   size_t shared, unsigned) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, size, shared);
}
}
