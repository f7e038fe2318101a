/* SPDX-License-Identifier: MIT
 *
 * libembfuse gives the bits that the same kernels give when they are called directly, on the host
 * and on an emulated device.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/device/device.h"
#include "kernels/forward.h"
#include "tests/support/device_case.h"
#include "tests/support/shapes.h"

#include "tests/support/kernel_tests.h"
#include "extras/library/tests/built_model.h"

enum { STEPS = 2 };

/* A forward and steps of the library, the last one without checks. in, tables, output and winners
 * are on the host or on a device. */
static void run(const struct builder *b, int32_t place, const struct batch *in,
                const struct table *tables, void *output, int32_t *winners) {
    struct embfuse_model *m = built_model(b, tables, place, 0);
    int64_t *bags = calloc((size_t)b->in.num_features, sizeof *bags);
    struct embfuse_batch batch = built_batch(in, bags);
    batch.winners = winners;
    batch.stream = place == EMBFUSE_DEVICE ? device_stream() : NULL;
    int64_t *told = calloc((size_t)b->in.num_features, sizeof *told), steps;
    FINE(embfuse_forward(m, &batch, output, &why));
    for (int32_t f = 0; f < b->in.num_features; f++) told[f] = b->features[f].lookups;
    batch.winners = (int32_t *)in->winners;
    batch.padded = 1;
    batch.lookups += in->lookups ? 3 : 0; /* the arrays end before */
    for (int n = 0; n < STEPS; n++) {
        FINE(embfuse_step(m, &batch, in->grad, &why));
        batch.trusted = 1;
        batch.feature_lookups = told;
    }
    FINE(embfuse_get_steps(m, 0, &steps, &why));
    assert_int_equal(steps, b->step - 1 + STEPS);
    if (place == EMBFUSE_DEVICE) device_wait(device_stream(), &(struct error){""});
    embfuse_model_free(m);
    free(told);
    free(bags);
}

static void *filled(size_t bytes) {
    void *p = malloc(bytes + 1);
    if (!p) abort();
    return memset(p, 0x5a, bytes);
}

/* In device memory, where sums are exact: so the host's bits are the device's. */
static void run_on_device(struct builder *b, const struct kernel *k, void *output, size_t bytes,
                          int32_t *winners, size_t winner_bytes) {
    struct error err;
    struct device_case d;
    struct device_buffer there[2];
    if (device_case_create(&d, b, k, &err)) fail_msg("%s", err.text);
    assert_int_equal(device_alloc(&there[0], bytes, "output", &err), 0);
    assert_int_equal(device_alloc(&there[1], winner_bytes, "winners", &err), 0);
    device_set(&there[0], 0x5a, &err);
    device_set(&there[1], 0x5a, &err);
    run(b, EMBFUSE_DEVICE, &d.batch.batch, d.tables.tables, there[0].data, there[1].data);
    if (bytes) assert_int_equal(device_get(output, there[0].data, bytes, &err), 0);
    if (bytes) assert_int_equal(device_get(winners, there[1].data, winner_bytes, &err), 0);
    assert_int_equal(device_tables_get(&d.tables, b->tables.tables, &err), 0);
    device_free(&there[0]);
    device_free(&there[1]);
    device_case_free(&d);
}

/* Output, winners and tables are those of kernels that are called directly. */
static void as_the_kernels(const struct shape *shape, bool device) {
    const struct kernel *fused = registry_find(OP_STEP, "cpu_fused", &(struct error){""}),
                        *k = device ? registry_find(OP_STEP, "cuda_fused", &(struct error){""})
                                    : fused;
    const int i = (int)(shape - shapes);
    struct builder b;
    size_t all;
    if (!k) skip();
    shape_build(shape, device ? k : NULL, device, &b);
    builder_rules(&b, k, (enum rule_kind)(i * 5 % RULE_COUNT));
    if (!device) builder_storage(&b, k, i * 7), builder_pack(&b);
    builder_start(&b);
    if (device && (!b.sums_exact || kernel_refuses(k, &b.in))) {
        builder_free(&b);
        skip();
    }
    const size_t bytes = (size_t)(b.in.grad_elements * dtype_bytes(b.in.grad_type)),
                 winner_bytes = (size_t)b.in.grad_elements * 4;
    void *output = filled(bytes), *wanted = filled(bytes);
    int32_t *winners = filled(winner_bytes), *wanted_winners = filled(winner_bytes);
    const struct launch how = {.threads = 1, .output = wanted, .winners = wanted_winners};
    registry_find(OP_FORWARD, "cpu_lookup", &(struct error){""})
        ->run(&b.in, NULL, b.tables.tables, &how);
    for (int n = 0; n < STEPS; n++, b.step++)
        if (builder_run(&b, fused, 3)) fail_msg("%s", b.message);
    b.step -= STEPS;
    void *expected = builder_snapshot(&b, &all);
    builder_start(&b);
    if (device)
        run_on_device(&b, k, output, bytes, winners, winner_bytes);
    else
        run(&b, EMBFUSE_HOST, &b.in, b.tables.tables, output, winners);
    void *have = builder_snapshot(&b, &all);
    assert_memory_equal(output, wanted, bytes);
    assert_memory_equal(winners, wanted_winners, winner_bytes);
    assert_memory_equal(have, expected, all);
    free(output), free(wanted), free(winners), free(wanted_winners), free(expected), free(have);
    builder_free(&b);
}

static void on_the_host(void **state) {
    as_the_kernels(((const struct kernel_test *)*state)->param, false);
}

static void on_a_device(void **state) {
    as_the_kernels(((const struct kernel_test *)*state)->param, true);
}

/* The library only hands batches on, so about fifteen shapes are enough. */
TESTS(library) {
    for (int i = 0; i < num_shapes; i += 1 + num_shapes / 15) {
        char name[100];
        snprintf(name, sizeof name, "host: %s", shapes[i].name);
        add_test(name, on_the_host, NULL, &shapes[i]);
        snprintf(name, sizeof name, "device: %s", shapes[i].name);
        add_test(name, on_a_device, NULL, &shapes[i]);
    }
    return run_listed("library");
}
