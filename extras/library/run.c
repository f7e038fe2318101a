/* SPDX-License-Identifier: MIT */
#include <stdlib.h>
#include <string.h>

#include "harness/registry.h"
#include "harness/workload/tables.h"
#include "harness/workload/winners.h"
#include "kernels/rules.h"
#include "kernels/shape.h"
#include "extras/library/model.h"

/* --- the kernel of a call */

/* The kernels that "auto" takes: the fastest ones in the recorded results. The second index is enum backend. */
static const char *const usual[OPERATIONS][2] = {
    [OP_STEP] = {"cpu_fused", "cuda_fused"},
    [OP_FORWARD] = {"cpu_lookup_ahead", "cuda_lookup"},
    [OP_WEIGHT_GRAD] = {"cpu_dot", "cuda_dot"},
};

static int kernel_for(struct embfuse_model *m, enum operation operation, const struct batch *in,
                      const struct kernel **out, struct embfuse_error *why) {
    const struct kernel *k = operation == OP_STEP      ? m->step
                             : operation == OP_FORWARD ? m->forward
                                                       : NULL;
    if (!k) k = registry_find(operation, usual[operation][m->place], &(struct error){""});
    if (!k)
        return said(why, EMBFUSE_UNKNOWN, "this build has no kernel for %s",
                    operation_name(operation));
    const char *no = kernel_refuses(k, in);
    if (no) return said(why, EMBFUSE_REFUSED, "%s: %s", k->name, no);
    *out = k;
    return 0;
}

int check_bound(const struct embfuse_model *m, bool states, struct embfuse_error *why) {
    if (!m->weights_missing && (!states || !m->states_missing)) return 0;
    for (int32_t t = 0; t < m->num_tables; t++)
        for (int32_t i = 0; array_of(m, t, i) >= 0 && (i == 0 || states); i++)
            if (!m->tables[t].array[array_of(m, t, i)].data)
                return said(why, EMBFUSE_INVALID,
                            "table %d: array %d is not bound; see embfuse_bind()", t, i);
    return 0;
}

/* --- scratch */

void free_scratch(struct embfuse_model *m) {
    if (m->place == ON_HOST && !m->scratch.callers) free(m->scratch.data);
    if (m->scratch.device.data) device_free(&m->scratch.device);
    memset(&m->scratch, 0, sizeof m->scratch);
}

int embfuse_set_scratch(struct embfuse_model *m, void *data, size_t bytes,
                        struct embfuse_error *why) {
    IN_CALL(m, why);
    if ((uintptr_t)data % KERNEL_ALIGN)
        return said(why, EMBFUSE_INVALID, "scratch must be aligned to %d bytes", KERNEL_ALIGN);
    free_scratch(m);
    m->scratch.data = data;
    m->scratch.bytes = data ? bytes : 0;
    m->scratch.callers = data != NULL;
    return 0;
}

static size_t scratch_bytes(const struct embfuse_model *m, const struct kernel *k,
                            const struct batch *in) {
    return k->scratch_bytes ? k->scratch_bytes(in, m->threads) : 0;
}

/* Allocates a quarter more than asked, so that batches of changing sizes soon need no new scratch. */
static int grow_scratch(struct embfuse_model *m, size_t bytes, struct embfuse_error *why) {
    struct error err;
    const size_t more = (bytes + bytes / 4 + KERNEL_ALIGN - 1) / KERNEL_ALIGN * KERNEL_ALIGN;
    free_scratch(m);
    if (m->place == ON_DEVICE) {
        if (device_alloc(&m->scratch.device, more, "scratch", &err))
            return said(why, EMBFUSE_NO_MEMORY, "%.500s", err.text);
        m->scratch.data = m->scratch.device.data;
    } else {
        m->scratch.data = aligned_alloc(KERNEL_ALIGN, more);
        if (!m->scratch.data)
            return said(why, EMBFUSE_NO_MEMORY, "%zu bytes of scratch: out of memory", more);
    }
    m->scratch.bytes = more;
    return 0;
}

static int need_scratch(struct embfuse_model *m, const struct kernel *k, const struct batch *in,
                        struct embfuse_error *why) {
    const size_t bytes = scratch_bytes(m, k, in);
    if (bytes <= m->scratch.bytes) return 0;
    if (m->scratch.callers)
        return said(why, EMBFUSE_NO_MEMORY,
                    "%s needs %zu bytes of scratch for this batch, and has %zu", k->name, bytes,
                    m->scratch.bytes);
    return grow_scratch(m, bytes, why);
}

/* --- a call: everything that can fail comes before the kernel changes an array */

/* The batch, and the kernel that will run it. */
static int prepare(struct embfuse_model *m, enum operation operation,
                   const struct embfuse_batch *batch, struct batch *in, const struct kernel **k,
                   struct embfuse_error *why) {
    *k = NULL;
    int status = batch_of(m, batch, in, why);
    if (status == 0 && has_pooling(in, POOL_MAX) && !in->winners && in->grad_elements)
        status = said(why, EMBFUSE_INVALID, "batch.winners is NULL, but a feature has EMBFUSE_MAX");
    if (status == 0 && operation == OP_STEP && batch->weight_grad && !in->lookup_weights)
        status = said(why, EMBFUSE_INVALID, "batch.weight_grad without batch.lookup_weights");
    if (status == 0) status = kernel_for(m, operation, in, k, why);
    return status;
}

/* how has the arrays that the kernel writes in addition to the tables; this function fills in the rest. */
static int launch(struct embfuse_model *m, const struct kernel *k, struct batch *in, void *stream,
                  struct launch how, struct embfuse_error *why) {
    const struct rule_step *steps = m->steps;
    const struct table *tables = m->tables;
    struct error err;
    how.threads = m->threads;
    how.stream = stream;
    how.scratch = m->scratch.data;
    if (m->place == ON_DEVICE && device_call_send(m, in, stream, &steps, &tables, &err))
        return said(why, EMBFUSE_DEVICE_ERROR, "%.500s", err.text);
    int status = k->plan ? k->plan(in, &how) : 0;
    if (status == 0) status = k->run(in, steps, tables, &how);
    return status ? said(why, EMBFUSE_DEVICE_ERROR, "%s: error %d of the device", k->name, status)
                  : 0;
}

/* Checks ids and offsets on the device, unless the model is on the host or the batch is trusted. */
static int check_on_device(struct embfuse_model *m, const struct embfuse_batch *batch,
                           struct batch *in, struct embfuse_error *why) {
    struct error err;
    if (m->place == ON_HOST || batch->trusted) return 0;
    const int status = device_call_validate(m, in, batch->stream, &err);
    if (status == 0) return 0;
    return said(why, status == -1 ? EMBFUSE_BAD_BATCH : EMBFUSE_DEVICE_ERROR, "%.500s", err.text);
}

static int check_winners(const struct embfuse_model *m, const struct embfuse_batch *batch,
                         const struct batch *in, struct embfuse_error *why) {
    struct error err;
    const bool checks = m->place == ON_HOST && !batch->trusted && in->winners;
    return checks && winners_validate(in, &err) ? said(why, EMBFUSE_BAD_BATCH, "%.500s", err.text)
                                                : 0;
}

int embfuse_forward(struct embfuse_model *m, const struct embfuse_batch *batch, void *output,
                    struct embfuse_error *why) {
    IN_CALL(m, why);
    struct batch in;
    const struct kernel *k;
    int status = prepare(m, OP_FORWARD, batch, &in, &k, why);
    if (status == 0) status = check_bound(m, false, why);
    if (status == 0 && !output && in.grad_elements)
        status = said(why, EMBFUSE_INVALID, "output is NULL");
    if (status == 0) status = check_on_device(m, batch, &in, why);
    if (status == 0) status = need_scratch(m, k, &in, why);
    const struct launch how = {.output = output, .winners = batch ? batch->winners : NULL};
    return status || batch_bags(m, batch) == 0 ? status
                                               : launch(m, k, &in, batch->stream, how, why);
}

int embfuse_weight_grad(struct embfuse_model *m, const struct embfuse_batch *batch,
                        const void *grad, struct embfuse_error *why) {
    IN_CALL(m, why);
    struct batch in;
    const struct kernel *k;
    if (batch && batch->lookups && (!batch->lookup_weights || !batch->weight_grad))
        return said(why, EMBFUSE_INVALID, "batch.lookup_weights or batch.weight_grad is NULL");
    if (batch && batch->lookups == 0) return batch_of(m, batch, &in, why);
    int status = prepare(m, OP_WEIGHT_GRAD, batch, &in, &k, why);
    if (status == 0) status = check_bound(m, false, why);
    if (status == 0 && !grad) status = said(why, EMBFUSE_INVALID, "grad is NULL");
    if (status == 0) status = check_on_device(m, batch, &in, why);
    if (status == 0) status = need_scratch(m, k, &in, why);
    in.grad = grad;
    const struct launch how = {.output = batch ? batch->weight_grad : NULL};
    return status ? status : launch(m, k, &in, batch->stream, how, why);
}

int embfuse_step(struct embfuse_model *m, const struct embfuse_batch *batch, const void *grad,
                 struct embfuse_error *why) {
    IN_CALL(m, why);
    struct batch in;
    const struct kernel *k, *dots = NULL;
    int status = prepare(m, OP_STEP, batch, &in, &k, why);
    if (status == 0 && batch->weight_grad) status = kernel_for(m, OP_WEIGHT_GRAD, &in, &dots, why);
    if (status == 0) status = check_bound(m, true, why);
    if (status == 0 && !grad && in.grad_elements)
        status = said(why, EMBFUSE_INVALID, "grad is NULL");
    if (status == 0) status = check_on_device(m, batch, &in, why);
    if (status == 0) status = check_winners(m, batch, &in, why);
    if (status == 0) status = need_scratch(m, k, &in, why);
    for (int32_t t = 0; status == 0 && t < m->num_tables; t++)
        if (!rule_has_step(m->shapes[t].rule, m->steps[t].number + 1))
            status = said(why, EMBFUSE_INVALID,
                          "table %d: %s counts the steps of each row in a float, so a table takes "
                          "%d steps at most",
                          t, rule_info(m->shapes[t].rule).name, RULE_COUNTED_STEPS);
    if (status) return status;
    in.grad = grad;
    const struct launch first = {.output = batch->weight_grad};
    if (dots && (status = launch(m, dots, &in, batch->stream, first, why))) return status;
    if (m->nonfinite_mode && in.grad_elements && count_nonfinite(m, &in) &&
        m->nonfinite_mode == EMBFUSE_NONFINITE_SKIP)
        return 0;
    for (int32_t t = 0; t < m->num_tables; t++)
        m->steps[t] = rule_step(m->rules[t], m->steps[t].number + 1);
    status = launch(m, k, &in, batch->stream, (struct launch){0}, why);
    for (int32_t t = 0; status && t < m->num_tables; t++) m->steps[t].number--;
    return status;
}

/* --- rows that catch up: a step with a zero gradient, and with the number of the last one */

/* The caller restores m->features. */
static int step_by_zero(struct embfuse_model *m, struct batch *in, void *stream,
                        struct embfuse_error *why) {
    const size_t bytes = (size_t)(widest(in) * dtype_bytes(in->grad_type));
    struct device_buffer there = {0};
    struct error err;
    const struct kernel *k;
    for (int32_t f = 0; f < in->num_features; f++) {
        m->features[f].pooling = POOL_SUM;
        m->features[f].grad_offset = m->features[f].grad_stride = 0; /* one row for all */
    }
    in->grad_elements = widest(in);
    in->lookup_weights = NULL;
    in->winners = NULL;
    int status = kernel_for(m, OP_STEP, in, &k, why);
    if (status == 0) status = need_scratch(m, k, in, why);
    if (status) return status;
    void *zeros = calloc(1, bytes);
    if (!zeros) return said(why, EMBFUSE_NO_MEMORY, "%zu bytes of zeros: out of memory", bytes);
    in->grad = zeros;
    if (m->place == ON_DEVICE) {
        if (device_alloc(&there, bytes, "zeros", &err) == 0) in->grad = there.data;
        if (!there.data || device_put(there.data, zeros, bytes, &err))
            status = said(why, EMBFUSE_DEVICE_ERROR, "%.500s", err.text);
    }
    for (int32_t t = 0; t < m->num_tables; t++) {
        struct rule rule = m->rules[t];
        memset(rule.shared, 0, sizeof rule.shared);
        m->steps[t] = rule_step(rule, m->steps[t].number);
    }
    if (status == 0) status = launch(m, k, in, stream, (struct launch){0}, why);
    if (there.data && device_wait(stream, &err) && status == 0)
        status = said(why, EMBFUSE_DEVICE_ERROR, "%.500s", err.text);
    if (there.data) device_free(&there);
    free(zeros);
    return status;
}

/* Rows of a table, one piece after the other: its ids are a bag. */
static int catch_up_table(struct embfuse_model *m, int32_t table, struct embfuse_error *why) {
    enum { PIECE = 1 << 18 };
    const int64_t rows = m->shapes[table].rows;
    int64_t *ids = malloc(PIECE * sizeof *ids);
    int status = ids ? 0 : said(why, EMBFUSE_NO_MEMORY, "ids of a table: out of memory");
    for (int64_t first = 0; status == 0 && first < rows; first += PIECE) {
        const int64_t n = min64(PIECE, rows - first), offsets[] = {0, n};
        for (int64_t i = 0; i < n; i++) ids[i] = first + i;
        m->features[0] =
            (struct feature){.table = table, .padding_id = -1, .bags = 1, .lookups = n};
        struct batch in = {.num_tables = m->num_tables,
                           .num_features = 1,
                           .id_type = ID_INT64,
                           .ids = ids,
                           .offsets = offsets,
                           .grad_type = m->grad_type};
        batch_derive_counted(&in, m->shapes, m->features);
        status = step_by_zero(m, &in, NULL, why);
    }
    free(ids);
    return status;
}

/* Whether rows can catch up at all; -1: there was no step yet, so that there is nothing to do. */
static int can_catch_up(const struct embfuse_model *m, const struct embfuse_batch *batch,
                        struct embfuse_error *why) {
    int64_t least = INT64_MAX, most = 0;
    for (int32_t t = 0; t < m->num_tables; t++) {
        least = min64(least, m->steps[t].number), most = max64(most, m->steps[t].number);
        if (!rule_info(m->shapes[t].rule).catches_up)
            return said(why, EMBFUSE_REFUSED, "table %d: with %s no row owes anything", t,
                        rule_info(m->shapes[t].rule).name);
    }
    if (!batch && m->place == ON_DEVICE)
        return said(why, EMBFUSE_REFUSED, "arrays on a device: give a batch that has all rows");
    if (least == 0 && most > 0)
        return said(why, EMBFUSE_INVALID, "a table has taken no step, others have");
    return most ? check_bound(m, true, why) : -1;
}

int embfuse_catch_up(struct embfuse_model *m, const struct embfuse_batch *batch,
                     struct embfuse_error *why) {
    IN_CALL(m, why);
    struct batch in;
    int status = can_catch_up(m, batch, why);
    if (status == 0 && !batch) status = has_threads(m->threads, why);
    if (status == 0 && batch) status = batch_of(m, batch, &in, why);
    if (status == 0 && batch) status = check_on_device(m, batch, &in, why);
    if (status) return status < 0 ? 0 : status;
    struct feature *features = malloc((size_t)m->num_features * sizeof *features);
    struct watch **watch = malloc((size_t)m->num_tables * sizeof *watch);
    if (!features || !watch) status = said(why, EMBFUSE_NO_MEMORY, "out of memory");
    if (status == 0) {
        memcpy(features, m->features, (size_t)m->num_features * sizeof *features);
        for (int32_t t = 0; t < m->num_tables; t++)
            watch[t] = m->tables[t].watch, m->tables[t].watch = NULL;
        if (batch) status = step_by_zero(m, &in, batch->stream, why);
        for (int32_t t = 0; !batch && status == 0 && t < m->num_tables; t++)
            status = catch_up_table(m, t, why);
        memcpy(m->features, features, (size_t)m->num_features * sizeof *features);
        for (int32_t t = 0; t < m->num_tables; t++) m->tables[t].watch = watch[t];
    }
    free(features);
    free(watch);
    return status;
}

/* --- questions about a batch */

int embfuse_output_elements(struct embfuse_model *m, const struct embfuse_batch *batch,
                            int64_t *out, struct embfuse_error *why) {
    IN_CALL(m, why);
    if (!out) return said(why, EMBFUSE_INVALID, "out is NULL");
    struct batch in;
    const int status = batch_of(m, batch, &in, why);
    if (status == 0) *out = in.grad_elements;
    return status;
}

int embfuse_step_kernel(struct embfuse_model *m, const struct embfuse_batch *batch,
                        const char **name, struct embfuse_error *why) {
    IN_CALL(m, why);
    if (!name) return said(why, EMBFUSE_INVALID, "name is NULL");
    struct batch in;
    const struct kernel *k;
    const int status = prepare(m, OP_STEP, batch, &in, &k, why);
    if (status == 0) *name = k->name;
    return status;
}

int embfuse_scratch_bytes(struct embfuse_model *m, const struct embfuse_batch *batch, size_t *bytes,
                          struct embfuse_error *why) {
    IN_CALL(m, why);
    if (!bytes) return said(why, EMBFUSE_INVALID, "bytes is NULL");
    struct batch in;
    const struct kernel *k;
    const int status = prepare(m, OP_STEP, batch, &in, &k, why);
    if (status == 0) *bytes = scratch_bytes(m, k, &in);
    return status;
}
