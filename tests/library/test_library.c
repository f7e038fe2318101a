/* SPDX-License-Identifier: MIT
 *
 * libembfuse gives the bits that the same kernels give when they are called directly, on the host and on an
 * emulated device.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/device/device.h"
#include "kernels/forward.h"
#include "tests/support/device_case.h"
#include "tests/library/library_case.h"
#include "tests/support/shapes.h"

#include "tests/support/kernel_tests.h"

static struct embfuse_model *must_open(const struct library_case *c, const struct builder *b,
                                       const struct table *tables) {
    struct embfuse_error why;
    struct embfuse_model *m = library_case_open(c, b, tables, &why);
    if (!m) fail_msg("%s", why.text);
    return m;
}

static void must_be_fine(int status, const struct embfuse_error *why) {
    if (status) fail_msg("status %d: %s", status, why->text);
}

static void build_shape(int i, struct builder *b, bool exact) {
    const struct kernel *k = registry_find(OP_STEP, "cpu_fused", &(struct error){""});
    shape_build(&shapes[i], NULL, exact, b);
    builder_rules(b, k, (enum rule_kind)(i * 5 % RULE_COUNT));
    builder_storage(b, k, i * 7);
    builder_pack(b);
}

/* --- the same bits as the kernel */

static void steps_as_the_kernel(void **state) {
    const int i = (int)((const struct shape *)((const struct kernel_test *)*state)->param - shapes);
    const struct kernel *k = registry_find(OP_STEP, "cpu_fused", &(struct error){""});
    struct embfuse_error why;
    struct builder b;
    struct library_case c;
    size_t bytes;
    build_shape(i, &b, false);
    builder_start(&b);
    for (int n = 0; n < 3; n++, b.step++)
        if (builder_run(&b, k, 3)) fail_msg("%s", b.message);
    void *expected = builder_snapshot(&b, &bytes);
    b.step -= 3;
    builder_start(&b);
    library_case_begin(&c, &b);
    c.options.kernel = "cpu_fused";
    c.options.threads = 2;
    struct embfuse_model *m = must_open(&c, &b, NULL);
    for (int n = 0; n < 3; n++) must_be_fine(embfuse_step(m, &c.batch, b.in.grad, &why), &why);
    void *now = builder_snapshot(&b, &bytes);
    assert_memory_equal(now, expected, bytes);
    int64_t steps = 0;
    must_be_fine(embfuse_get_steps(m, 0, &steps, &why), &why);
    assert_int_equal(steps, b.step + 2);
    free(now);
    free(expected);
    embfuse_model_free(m);
    library_case_free(&c);
    builder_free(&b);
}

static void *filled(size_t bytes) {
    void *p = malloc(bytes + 1);
    if (!p) abort();
    return memset(p, 0x5a, bytes);
}

static void forward_as_the_kernel(void **state) {
    const int i = (int)((const struct shape *)((const struct kernel_test *)*state)->param - shapes);
    const struct kernel *k = registry_find(OP_FORWARD, "cpu_lookup_ahead", &(struct error){""});
    struct embfuse_error why;
    struct builder b;
    struct library_case c;
    build_shape(i, &b, false);
    builder_start(&b);
    const size_t bytes = (size_t)(b.in.grad_elements * dtype_bytes(b.in.grad_type));
    const size_t elements = (size_t)b.in.grad_elements, winner = sizeof(int32_t);
    char *expected = filled(bytes), *output = filled(bytes);
    int32_t *expected_winners = filled(elements * winner), *winners = filled(elements * winner);
    k->run(&b.in, NULL, b.tables.tables,
           &(struct launch){.threads = 2, .output = expected, .winners = expected_winners});
    library_case_begin(&c, &b);
    c.batch.winners = winners;
    struct embfuse_model *m = must_open(&c, &b, NULL);
    must_be_fine(embfuse_forward(m, &c.batch, output, &why), &why);
    assert_memory_equal(output, expected, bytes);
    assert_memory_equal(winners, expected_winners, elements * winner);
    free(winners);
    free(expected_winners);
    free(output);
    free(expected);
    embfuse_model_free(m);
    library_case_free(&c);
    builder_free(&b);
}

/* Arrays, ids and offsets are in device memory; sums are exact, so the host's bits are the device's. */
static void device_as_the_host(void **state) {
    const int i = (int)((const struct shape *)((const struct kernel_test *)*state)->param - shapes);
    const struct kernel *k = registry_find(OP_STEP, "cuda_fused", &(struct error){""});
    if (!k) skip();
    struct embfuse_error why;
    struct error err;
    struct builder b;
    struct library_case c;
    struct device_case d;
    struct device_buffer output, winners;
    shape_build(&shapes[i], k, true, &b);
    builder_rules(&b, k, (enum rule_kind)(i * 5 % RULE_COUNT));
    builder_start(&b);
    if (!b.sums_exact || kernel_refuses(k, &b.in)) {
        builder_free(&b);
        skip();
    }
    if (device_case_create(&d, &b, k, &err)) fail_msg("%s", err.text);
    const size_t bytes = (size_t)(b.in.grad_elements * dtype_bytes(b.in.grad_type));
    assert_int_equal(device_alloc(&output, bytes, "output", &err), 0);
    device_set(&output, 0x5a, &err);
    const size_t elements = (size_t)b.in.grad_elements, winner = sizeof(int32_t);
    assert_int_equal(device_alloc(&winners, elements * winner, "winners", &err), 0);
    device_set(&winners, 0x5a, &err);
    library_case_begin(&c, &b);
    c.options.place = EMBFUSE_DEVICE;
    c.batch.ids = d.batch.batch.ids;
    c.batch.offsets = d.batch.batch.offsets;
    c.batch.lookup_weights = d.batch.batch.lookup_weights;
    c.batch.stream = device_stream();
    c.batch.winners = winners.data;
    struct embfuse_model *m = must_open(&c, &b, d.tables.tables);
    must_be_fine(embfuse_forward(m, &c.batch, output.data, &why), &why);
    c.batch.winners = (int32_t *)d.batch.batch.winners;
    must_be_fine(embfuse_step(m, &c.batch, d.batch.batch.grad, &why), &why);
    c.batch.trusted = 1;
    int64_t *told = malloc((size_t)b.in.num_features * sizeof *told);
    for (int32_t f = 0; f < b.in.num_features; f++) told[f] = b.features[f].lookups;
    c.batch.feature_lookups = told;
    must_be_fine(embfuse_step(m, &c.batch, d.batch.batch.grad, &why), &why);
    device_wait(device_stream(), &err);
    char *expected = filled(bytes), *got = filled(bytes);
    if (bytes) assert_int_equal(device_get(got, output.data, bytes, &err), 0);
    int32_t *expected_winners = filled(elements * winner), *got_winners = filled(elements * winner);
    if (bytes) assert_int_equal(device_get(got_winners, winners.data, elements * winner, &err), 0);
    const struct launch how = {.threads = 1, .output = expected, .winners = expected_winners};
    registry_find(OP_FORWARD, "cpu_lookup", &err)->run(&b.in, NULL, b.tables.tables, &how);
    assert_memory_equal(got, expected, bytes);
    assert_memory_equal(got_winners, expected_winners, elements * winner);
    free(got_winners);
    free(expected_winners);
    const struct kernel *host = registry_find(OP_STEP, "cpu_fused", &err);
    for (int n = 0; n < 2; n++, b.step++)
        if (builder_run(&b, host, 1)) fail_msg("%s", b.message);
    size_t all;
    void *want = builder_snapshot(&b, &all);
    assert_int_equal(device_tables_get(&d.tables, b.tables.tables, &err), 0);
    void *have = builder_snapshot(&b, &all);
    assert_memory_equal(have, want, all);
    free(want);
    free(have);
    free(got);
    free(expected);
    free(told);
    embfuse_model_free(m);
    device_free(&output);
    device_free(&winners);
    device_case_free(&d);
    library_case_free(&c);
    builder_free(&b);
}

TESTS(library) {
    for (int i = 0; i < num_shapes; i += SHAPE_STEP) {
        char name[100];
        snprintf(name, sizeof name, "step as the kernel: %s", shapes[i].name);
        add_test(name, steps_as_the_kernel, NULL, &shapes[i]);
        snprintf(name, sizeof name, "forward as the kernel: %s", shapes[i].name);
        add_test(name, forward_as_the_kernel, NULL, &shapes[i]);
        snprintf(name, sizeof name, "device as the host: %s", shapes[i].name);
        add_test(name, device_as_the_host, NULL, &shapes[i]);
    }
    return run_listed("library");
}
