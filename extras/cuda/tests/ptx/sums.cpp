/* SPDX-License-Identifier: MIT
 *
 * Runs the translated kernels of sums.ptx, and checks what they compute. Exit status 1: a result is wrong.
 */
#include <cstdio>
#include <vector>

#include "emulation/emulation.h"
#include "extras/cuda/ptx/instructions.h"

extern "C" void ptx_register_sums(void **, const void *stub, char *, const char *symbol);
extern "C" cudaError_t __cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **arguments,
                                          size_t shared, cudaStream_t stream);

enum { THREADS = 64, N = 100, BLOCKS = 2, ROWS = N };

static const char sums_stub = 0, copies_stub = 0;

template <class T> static T *on_device(const std::vector<T> &values) {
    T *p;
    cudaMalloc(&p, values.size() * sizeof(T));
    cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
    return p;
}

template <class T> static bool same(const char *what, const T *on, const std::vector<T> &right) {
    std::vector<T> got(right.size());
    cudaMemcpy(got.data(), on, got.size() * sizeof(T), cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < got.size(); i++)
        if (got[i] != right[i]) {
            printf("%s %zu is %g, not %g\n", what, i, double(got[i]), double(right[i]));
            return false;
        }
    return true;
}

/* Thread i takes row i, or the last row if there is none. It counts the row's id, and computes 2 * (a + b - c * d). Its
 * output is this value plus the values of lanes 0, 8, 16 and 24 of both warps of its block. */
static bool sums_are_right() {
    std::vector<float> in(4 * ROWS), value(BLOCKS * THREADS), out(BLOCKS * THREADS, 0);
    std::vector<int> ids(ROWS);
    std::vector<unsigned> counts(8, 0);
    for (int i = 0; i < 4 * ROWS; i++) in[size_t(i)] = float(i % 23 - 7);
    for (int i = 0; i < ROWS; i++) ids[size_t(i)] = i / 5 % 3;
    for (size_t i = 0; i < value.size(); i++) {
        size_t row = i < N ? i : N - 1;
        const float *v = &in[4 * row];
        value[i] = 2 * (v[0] + v[1] - v[2] * v[3]);
        counts[size_t(ids[row])]++;
    }
    for (size_t i = 0; i < value.size(); i++) {
        const float *first = &value[i / THREADS * THREADS];
        out[i] = value[i];
        for (size_t warp = 0; warp < 2; warp++) /* adds lanes 0, 8, 16 and 24 */
            for (size_t lane = 0; lane < 32; lane += 8) out[i] += first[32 * warp + lane];
    }
    float *d_in = on_device(in), *d_out = on_device(out);
    int *d_ids = on_device(ids), n = N;
    unsigned *d_counts = on_device(std::vector<unsigned>(8, 0));
    void *arguments[] = {&d_in, &d_ids, &d_out, &d_counts, &n};
    __cudaLaunchKernel(&sums_stub, BLOCKS, THREADS, arguments, 0, nullptr);
    return same("sum", d_out, out) && same("count", d_counts, counts);
}

static bool copies_are_right() {
    std::vector<float> in(64), right(64);
    for (size_t i = 0; i < 64; i++) right[i] = (in[i] = float(i)) + (i < 32 ? 1 : 0);
    float *d_in = on_device(in), *d_out = on_device(std::vector<float>(64, 0));
    void *arguments[] = {&d_in, &d_out};
    __cudaLaunchKernel(&copies_stub, 1, 8, arguments, 256, nullptr);
    return same("copy", d_out, right);
}

/* Counts for the test what the kernels do. */
class Counter : public ptx::Observer {
  public:
    int kernels = 0, kinds[9] = {};
    void kernel_begins(const ptx::Kernel &) override {
        kernels++;
    }
    void access(const ptx::Access &a) override {
        kinds[int(a.kind)]++;
    }
    void barrier(const ptx::Instruction &) override {
        kinds[int(ptx::Kind::barrier)]++;
    }
    void collective(const ptx::Instruction &, uint32_t mask) override {
        kinds[int(ptx::Kind::collective)] += mask == ~0u;
    }
    void fence(const ptx::Instruction &) override {
        kinds[int(ptx::Kind::fence)]++;
    }
};

int main(int argc, char **) {
    ptx_register_sums(nullptr, &sums_stub, nullptr, "sums");
    ptx_register_sums(nullptr, &copies_stub, nullptr, "copies");
    Counter counter;
    if (argc > 1) ptx::observer = &counter;
    bool right = true;
    for (int order = 0; order < (argc > 1 ? 1 : 3); order++) {
        emulation_schedule(order, 1);
        right = right && sums_are_right() && copies_are_right();
    }
    if (argc > 1) {
        printf("kernels %d kinds", counter.kernels);
        for (int k = 0; k < 8; k++) printf(" %d", counter.kinds[k]);
        printf("\n");
    }
    return right ? 0 : 1;
}
