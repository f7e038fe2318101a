/* SPDX-License-Identifier: MIT
 *
 * libembfuse gives the bits that the same kernels give when they are called directly, on the host
 * and on an emulated device.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/device/device.h"
#include "include/embfuse.h"
#include "kernels/forward.h"
#include "tests/support/device_case.h"
#include "tests/support/shapes.h"

#include "tests/support/kernel_tests.h"
#include "tests/library/says.h"

/* A builder's batch behind the library: a model with its tables, features and rules. */
struct library_case {
    struct embfuse_table *tables;
    struct embfuse_feature *features;
    struct embfuse_options options; /* all 0 but size, grad_type and rounding_seed */
    struct embfuse_batch batch;
};

static void library_case_begin(struct library_case *c, const struct builder *b) {
    const struct batch *in = &b->in;
    *c = (struct library_case){.tables = calloc((size_t)in->num_tables, sizeof *c->tables),
                               .features = calloc((size_t)in->num_features, sizeof *c->features)};
    if (!c->tables || !c->features) abort();
    for (int32_t t = 0; t < in->num_tables; t++) {
        const struct table_shape *x = &b->shapes[t];
        c->tables[t] = (struct embfuse_table){.rows = x->rows,
                                              .dim = x->dim,
                                              .weight_type = (int32_t)x->weight_type,
                                              .momentum_type = (int32_t)x->momentum_type,
                                              .rounding = (int32_t)x->rounding,
                                              .rule = rule_info_of(x->rule)->name};
    }
    for (int32_t f = 0; f < in->num_features; f++) {
        const struct feature *x = &b->features[f];
        c->features[f] = (struct embfuse_feature){x->table, (int32_t)x->pooling, x->padding_id,
                                                  x->grad_offset, x->grad_stride};
    }
    c->options = (struct embfuse_options){
        .size = sizeof c->options, .grad_type = (int32_t)in->grad_type, .rounding_seed = b->seed};
    c->batch = (struct embfuse_batch){.size = sizeof c->batch,
                                      .bags = in->bags,
                                      .lookups = in->lookups,
                                      .ids = in->ids,
                                      .offsets = in->offsets,
                                      .lookup_weights = in->lookup_weights,
                                      .winners = (int32_t *)in->winners,
                                      .id_type = (int32_t)in->id_type};
}

static void library_case_free(struct library_case *c) {
    free(c->tables);
    free(c->features);
    *c = (struct library_case){0};
}

/* A model of the case, with the builder's hyper-parameters, its step as the next one, and these
 * arrays bound. */
static struct embfuse_model *must_open(const struct library_case *c, const struct builder *b,
                                       const struct table *tables) {
    struct embfuse_model *m;
    FINE(embfuse_model_create(&m, c->tables, b->in.num_tables, c->features, b->in.num_features,
                              &c->options, &why));
    for (int32_t t = 0; t < b->in.num_tables; t++) {
        const struct rule_info info = rule_info(b->rules[t].kind);
        struct rule rule = b->rules[t];
        int32_t i = 0;
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            const struct array *x = &tables[t].array[a];
            if (table_array_width(&b->shapes[t], a))
                FINE(embfuse_bind(m, t, i++, x->data, x->stride, &why));
        }
        for (int k = 0; k < RULE_HYPERS; k++) {
            const char *name = rule_hyper(&info, k).name;
            if (name) FINE(embfuse_set(m, t, name, (double)*rule_value(&rule, k), &why));
        }
        FINE(embfuse_set_steps(m, t, b->step - 1, &why));
    }
    return m;
}

static void *filled(size_t bytes) {
    void *p = malloc(bytes + 1);
    if (!p) abort();
    return memset(p, 0x5a, bytes);
}

static size_t output_bytes(const struct builder *b) {
    return (size_t)(b->in.grad_elements * dtype_bytes(b->in.grad_type));
}

/* What a forward kernel writes, called directly. */
struct forward {
    void *output;
    int32_t *winners;
};

static struct forward forward_of(const struct builder *b, const char *kernel, int threads) {
    const struct forward f = {filled(output_bytes(b)), filled((size_t)b->in.grad_elements * 4)};
    const struct launch how = {.threads = threads, .output = f.output, .winners = f.winners};
    registry_find(OP_FORWARD, kernel, &(struct error){""})
        ->run(&b->in, NULL, b->tables.tables, &how);
    return f;
}

static void expect_forward(const struct builder *b, const struct forward *is,
                           const struct forward *wanted) {
    assert_memory_equal(is->output, wanted->output, output_bytes(b));
    assert_memory_equal(is->winners, wanted->winners, (size_t)b->in.grad_elements * 4);
    free(is->output), free(is->winners), free(wanted->output), free(wanted->winners);
}

/* Tables after steps of a kernel, called directly, from the builder's start. */
static void *stepped(struct builder *b, const char *kernel, int steps, int threads, size_t *bytes) {
    builder_start(b);
    for (int n = 0; n < steps; n++, b->step++)
        if (builder_run(b, registry_find(OP_STEP, kernel, &(struct error){""}), threads))
            fail_msg("%s", b->message);
    b->step -= steps;
    return builder_snapshot(b, bytes);
}

static void host_as_the_kernel(void **state) {
    enum { STEPS = 3 };
    const struct shape *shape = ((const struct kernel_test *)*state)->param;
    const struct kernel *k = registry_find(OP_STEP, "cpu_fused", &(struct error){""});
    const int i = (int)(shape - shapes);
    struct builder b;
    struct library_case c;
    size_t bytes;
    int64_t steps = 0;
    shape_build(shape, NULL, false, &b);
    builder_rules(&b, k, (enum rule_kind)(i * 5 % RULE_COUNT));
    builder_storage(&b, k, i * 7);
    builder_pack(&b);
    void *expected = stepped(&b, "cpu_fused", STEPS, 3, &bytes);
    builder_start(&b);
    const struct forward wanted = forward_of(&b, "cpu_lookup_ahead", 2);
    const struct forward is = {filled(output_bytes(&b)), filled((size_t)b.in.grad_elements * 4)};
    library_case_begin(&c, &b);
    c.options.kernel = "cpu_fused";
    c.options.threads = 2;
    int32_t *const of_the_batch = c.batch.winners;
    struct embfuse_model *m = must_open(&c, &b, b.tables.tables);
    c.batch.winners = is.winners;
    FINE(embfuse_forward(m, &c.batch, is.output, &why));
    expect_forward(&b, &is, &wanted);
    c.batch.winners = of_the_batch;
    for (int n = 0; n < STEPS; n++) FINE(embfuse_step(m, &c.batch, b.in.grad, &why));
    void *now = builder_snapshot(&b, &bytes);
    assert_memory_equal(now, expected, bytes);
    FINE(embfuse_get_steps(m, 0, &steps, &why));
    assert_int_equal(steps, b.step - 1 + STEPS);
    free(now);
    free(expected);
    embfuse_model_free(m);
    library_case_free(&c);
    builder_free(&b);
}

/* Arrays, ids and offsets are in device memory; sums are exact, so the host's bits are the
 * device's. */
static void device_as_the_host(void **state) {
    const struct shape *shape = ((const struct kernel_test *)*state)->param;
    const struct kernel *k = registry_find(OP_STEP, "cuda_fused", &(struct error){""});
    if (!k) skip();
    struct error err;
    struct builder b;
    struct library_case c;
    struct device_case d;
    struct device_buffer output, winners;
    shape_build(shape, k, true, &b);
    builder_rules(&b, k, (enum rule_kind)((shape - shapes) * 5 % RULE_COUNT));
    builder_start(&b);
    if (!b.sums_exact || kernel_refuses(k, &b.in)) {
        builder_free(&b);
        skip();
    }
    if (device_case_create(&d, &b, k, &err)) fail_msg("%s", err.text);
    const size_t bytes = output_bytes(&b), winner_bytes = (size_t)b.in.grad_elements * 4;
    assert_int_equal(device_alloc(&output, bytes, "output", &err), 0);
    assert_int_equal(device_alloc(&winners, winner_bytes, "winners", &err), 0);
    device_set(&output, 0x5a, &err);
    device_set(&winners, 0x5a, &err);
    library_case_begin(&c, &b);
    c.options.place = EMBFUSE_DEVICE;
    c.batch.ids = d.batch.batch.ids;
    c.batch.offsets = d.batch.batch.offsets;
    c.batch.lookup_weights = d.batch.batch.lookup_weights;
    c.batch.stream = device_stream();
    c.batch.winners = winners.data;
    struct embfuse_model *m = must_open(&c, &b, d.tables.tables);
    FINE(embfuse_forward(m, &c.batch, output.data, &why));
    c.batch.winners = (int32_t *)d.batch.batch.winners;
    FINE(embfuse_step(m, &c.batch, d.batch.batch.grad, &why));
    c.batch.trusted = 1;
    int64_t *told = malloc((size_t)b.in.num_features * sizeof *told);
    for (int32_t f = 0; f < b.in.num_features; f++) told[f] = b.features[f].lookups;
    c.batch.feature_lookups = told;
    FINE(embfuse_step(m, &c.batch, d.batch.batch.grad, &why));
    device_wait(device_stream(), &err);
    const struct forward wanted = forward_of(&b, "cpu_lookup", 1);
    const struct forward is = {filled(bytes), filled(winner_bytes)};
    if (bytes) assert_int_equal(device_get(is.output, output.data, bytes, &err), 0);
    if (bytes) assert_int_equal(device_get(is.winners, winners.data, winner_bytes, &err), 0);
    expect_forward(&b, &is, &wanted);
    size_t all;
    void *expected = stepped(&b, "cpu_fused", 2, 1, &all);
    assert_int_equal(device_tables_get(&d.tables, b.tables.tables, &err), 0);
    void *have = builder_snapshot(&b, &all);
    assert_memory_equal(have, expected, all);
    free(expected);
    free(have);
    free(told);
    embfuse_model_free(m);
    device_free(&output);
    device_free(&winners);
    device_case_free(&d);
    library_case_free(&c);
    builder_free(&b);
}

/* The library only hands batches on, so about thirty shapes are enough. */
TESTS(library) {
    for (int i = 0; i < num_shapes; i += 1 + num_shapes / 30) {
        char name[100];
        snprintf(name, sizeof name, "host as the kernel: %s", shapes[i].name);
        add_test(name, host_as_the_kernel, NULL, &shapes[i]);
        snprintf(name, sizeof name, "device as the host: %s", shapes[i].name);
        add_test(name, device_as_the_host, NULL, &shapes[i]);
    }
    return run_listed("library");
}
