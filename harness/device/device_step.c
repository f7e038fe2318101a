/* SPDX-License-Identifier: MIT
 *
 * One step on the device: run and watched, timed, or captured and replayed.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "harness/device/device_cuda.h"
#include "kernels/forward.h"

/* Named ranges for profilers: ncu and nsys can look at a step alone, without fills and flushes. NVTX is a header of the
 * CUDA toolkit; without it there are no ranges. */
#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#else
#define nvtxRangePushA(name) ((void)(name))
#define nvtxRangePop()       ((void)0)
#endif

typedef int enqueue_fn(const struct device_job *job, const struct launch *how);

static const char *const stage_names[STAGE_COUNT] = {"index", "zero", "reduce", "update"};

static struct launch launch_of(const struct device_job *job) {
    struct launch how = {
        .threads = 1, .stream = device_stream(), .scratch = job->scratch, .output = job->output};
    if (job->forward || job->kernel->operation == OP_FORWARD)
        forward_lay_out(job->in, job->output, &how.winners);
    return how;
}

/* The step of an iteration reads the winners of its own forward. */
static struct batch batch_of(const struct device_job *job, const struct launch *how) {
    struct batch in = *job->in;
    if (job->forward) in.winners = how->winners;
    return in;
}

static int enqueue_forward(const struct device_job *job, const struct launch *how) {
    return job->forward ? job->forward->run(job->in, job->steps, job->io, how) : 0;
}

static int enqueue_plan(const struct device_job *job, const struct launch *how) {
    const struct batch in = batch_of(job, how);
    return job->kernel->plan ? job->kernel->plan(&in, how) : 0;
}

static int enqueue_run(const struct device_job *job, const struct launch *how) {
    const struct batch in = batch_of(job, how);
    return job->kernel->run(&in, job->steps, job->io, how);
}

/* The state of device_run() at the end of a stage. */
struct follow {
    void (*mark)(void *ctx, enum stage ended);
    void *ctx;
    int stages;      /* how many have ended without an error */
    enum stage last; /* the latest that has ended, if stages > 0 */
    cudaError_t status;
};

static void wait_for_stage(void *ctx, enum stage ended) {
    struct follow *f = ctx;
    if (f->status == cudaSuccess) f->status = cudaStreamSynchronize(device_stream());
    if (f->status != cudaSuccess) return;
    f->stages++;
    f->last = ended;
    if (f->mark) f->mark(f->ctx, ended);
}

int device_plan(const struct device_job *job, struct error *err) {
    const struct launch how = launch_of(job);
    char where[160];
    nvtxRangePushA("plan");
    cudaError_t status = enqueue_plan(job, &how);
    if (status == cudaSuccess) status = cudaStreamSynchronize(device_stream());
    nvtxRangePop();
    snprintf(where, sizeof where, "%s, plan", job->kernel->name);
    return status == cudaSuccess ? 0 : device_failed(status, where, err);
}

static int run_forward(const struct device_job *job, const struct launch *how, struct error *err) {
    nvtxRangePushA("forward");
    cudaError_t status = enqueue_forward(job, how);
    if (status == cudaSuccess) status = cudaStreamSynchronize(device_stream());
    nvtxRangePop();
    return status == cudaSuccess ? 0 : device_failed(status, job->forward->name, err);
}

int device_run(const struct device_job *job, void (*mark)(void *ctx, enum stage ended), void *ctx,
               struct error *err) {
    if (device_open(err)) return -1;
    struct follow f = {.mark = mark, .ctx = ctx};
    struct launch how = launch_of(job);
    char where[160];
    if (job->forward && run_forward(job, &how, err)) return -1;
    if (!job->planned && device_plan(job, err)) return -1;
    how.mark = wait_for_stage;
    how.mark_ctx = &f;
    nvtxRangePushA("step");
    cudaError_t status = enqueue_run(job, &how);
    if (f.status != cudaSuccess) status = f.status;
    if (status == cudaSuccess) status = cudaStreamSynchronize(device_stream());
    nvtxRangePop();
    snprintf(where, sizeof where, "%s, after stage %s", job->kernel->name,
             f.stages ? stage_names[f.last] : "none");
    return status == cudaSuccess ? 0 : device_failed(status, where, err);
}

/* --- as a CUDA graph */

/* A captured step: a graph that can be launched as one. */
struct captured {
    char name[160]; /* for messages */
    cudaGraph_t graph;
    size_t nodes;
    cudaGraphExec_t exec; /* NULL if there is no node: a step without lookups enqueues nothing */
};

static void captured_close(struct captured *c) {
    if (c->exec) cudaGraphExecDestroy(c->exec);
    if (c->graph) cudaGraphDestroy(c->graph);
    c->exec = NULL;
    c->graph = NULL;
}

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

/* Captures what enqueue() enqueues, instantiates it, and uploads it: a launch does not wait for that. */
static int captured_open(struct captured *c, const struct device_job *job, const struct launch *how,
                         enqueue_fn *enqueue, struct error *err) {
    *c = (struct captured){0};
    snprintf(c->name, sizeof c->name, "%s, as a CUDA graph", job->kernel->name);
    const cudaError_t status = open_graph(c, job, how, enqueue);
    if (status == cudaSuccess) return 0;
    captured_close(c);
    return device_failed(status, c->name, err);
}

/* Enqueues the graph; without nodes, nothing. */
static cudaError_t captured_launch(const struct captured *c) {
    return c->exec ? cudaGraphLaunch(c->exec, device_stream()) : cudaSuccess;
}

/* Counts its nodes. */
static cudaError_t captured_count(const struct captured *c, struct device_graph *out) {
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

/* --- timed */

/* An event at the beginning, at the end, and at the end of every stage that a kernel marks. */
enum { BEGIN, FORWARD, PLAN, FINISH, STAGES, EVENTS = STAGES + STAGE_COUNT };
struct timeline {
    cudaEvent_t at[EVENTS];
    bool recorded[STAGE_COUNT];
};

static void record_stage(void *ctx, enum stage ended) {
    struct timeline *t = ctx;
    cudaEventRecord(t->at[STAGES + ended], device_stream());
    t->recorded[ended] = true;
}

static double seconds_between(cudaEvent_t from, cudaEvent_t to) {
    float ms = NAN;
    cudaEventElapsedTime(&ms, from, to);
    return 1e-3 * ms;
}

/* The launches of an iteration; how has no mark if its parts are not timed. */
static int enqueue_iteration(const struct device_job *job, const struct launch *how) {
    const struct timeline *t = how->mark_ctx;
    int status = enqueue_forward(job, how);
    if (status == 0 && t) status = cudaEventRecord(t->at[FORWARD], device_stream());
    if (status == 0) status = enqueue_plan(job, how);
    if (status == 0 && t) status = cudaEventRecord(t->at[PLAN], device_stream());
    return status ? status : enqueue_run(job, how);
}

/* Times a plan, a run, an iteration, or a graph of one. */
static int time_part(const struct device_job *job, const struct launch *how, enqueue_fn *enqueue,
                     const struct captured *graph, const struct timeline *t, double *seconds,
                     struct error *err) {
    TRY(cudaEventRecord(t->at[BEGIN], device_stream()), "timing");
    TRY(graph ? (int)captured_launch(graph) : enqueue(job, how), job->kernel->name);
    TRY(cudaEventRecord(t->at[FINISH], device_stream()), "timing");
    TRY(cudaStreamSynchronize(device_stream()), job->kernel->name);
    *seconds = seconds_between(t->at[BEGIN], t->at[FINISH]);
    return 0;
}

static void time_parts(const struct device_job *job, const struct timeline *t,
                       struct device_times *out) {
    cudaEvent_t last = t->at[BEGIN];
    if (job->forward) {
        out->forward = seconds_between(t->at[BEGIN], t->at[FORWARD]);
        out->plan = job->kernel->plan ? seconds_between(t->at[FORWARD], t->at[PLAN]) : 0;
        last = t->at[PLAN];
    }
    for (int s = 0; s < STAGE_COUNT; s++) {
        if (!t->recorded[s]) continue;
        out->stage[s] = seconds_between(last, t->at[STAGES + s]);
        last = t->at[STAGES + s];
    }
}

static int time_run(const struct device_job *job, struct launch how, struct timeline *t,
                    enum timing timing, struct device_times *out, struct error *err) {
    enqueue_fn *enqueue = job->forward ? enqueue_iteration : enqueue_run;
    struct captured captured = {0};
    struct captured *const graph = timing == TIMED_REPLAY ? &captured : NULL;
    if (graph && captured_open(graph, job, &how, enqueue, err)) return -1;
    if (timing == TIMED_STAGES) how.mark = record_stage, how.mark_ctx = t;
    int status = job->before_run ? job->before_run(job->before_ctx, err) : 0;
    nvtxRangePushA(graph ? "replay" : job->forward ? "iteration" : "step");
    if (status == 0) status = time_part(job, &how, enqueue, graph, t, &out->seconds, err);
    nvtxRangePop();
    captured_close(&captured);
    if (status == 0 && timing == TIMED_STAGES) time_parts(job, t, out);
    return status;
}

int device_time(const struct device_job *job, enum timing timing, struct device_times *out,
                struct error *err) {
    *out = (struct device_times){0};
    if (device_open(err)) return -1;
    struct timeline t = {0};
    for (int e = 0; e < EVENTS; e++) TRY(cudaEventCreate(&t.at[e]), "timing");
    struct launch how = launch_of(job);
    int status = 0;
    if (job->kernel->plan && !job->forward)
        status = time_part(job, &how, enqueue_plan, NULL, &t, &out->plan, err);
    if (status == 0) status = time_run(job, how, &t, timing, out, err);
    for (int e = 0; e < EVENTS; e++) cudaEventDestroy(t.at[e]);
    return status;
}

int device_replay(const struct device_job *job, int replays, struct device_graph *out,
                  struct error *err) {
    if (device_open(err)) return -1;
    const struct launch how = launch_of(job);
    struct captured graph;
    if (captured_open(&graph, job, &how, enqueue_iteration, err)) return -1;
    cudaError_t status = captured_count(&graph, out);
    for (int i = 0; i < replays && status == cudaSuccess; i++) status = captured_launch(&graph);
    if (status == cudaSuccess) status = cudaStreamSynchronize(device_stream());
    captured_close(&graph);
    return status == cudaSuccess ? 0 : device_failed(status, graph.name, err);
}
