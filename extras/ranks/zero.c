/* SPDX-License-Identifier: MIT */
#include "extras/ranks/zero.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "harness/registry.h"
#include "kernels/gradient.h"
#include "kernels/host/update.h"

struct zero {
    struct transport *t;
    bool parts; /* weights and gradients are partitioned: ZERO_3 */
    struct rule rule;
    struct table_shape shape; /* of a shard's rows */
    int64_t rows, own, shard; /* rows of the table; own ones without padding; elements of a shard */
    float *weights, *gradient;   /* ZERO_1: of all shards; ZERO_3: of this one */
    float *states[TABLE_ARRAYS]; /* of this shard */
    struct zero_report report;
};

/* --- memory, counted */

static void count(struct zero *z, int64_t elements) {
    z->report.held += elements * (int64_t)sizeof(float);
    z->report.peak = max64(z->report.peak, z->report.held);
}

/* Zeroed. NULL: out of memory. */
static float *take(struct zero *z, int64_t elements, struct error *err) {
    float *data = array_require(elements, sizeof *data, "a partitioned table", err);
    if (data) memset(data, 0, (size_t)elements * sizeof *data);
    if (data) count(z, elements);
    return data;
}

static void release(struct zero *z, float *data, int64_t elements) {
    if (data) count(z, -elements);
    free(data);
}

/* Where this rank's shard begins in the weights and the gradient. */
static int64_t own_at(const struct zero *z) {
    return z->parts ? 0 : z->t->rank * z->shard;
}

/* The memory of an array of this rank's rows. */
static float *own_array(const struct zero *z, int array) {
    return array == TABLE_WEIGHT ? z->weights + own_at(z) : z->states[array];
}

/* --- opening */

static int gather_weights(struct zero *z, float *all, struct error *err) {
    z->t->channel = CHANNEL_WEIGHT;
    z->report.gathers++;
    return transport_all_gather(z->t, z->weights + own_at(z), (size_t)z->shard * sizeof *z->weights,
                                all, err);
}

static int fill(struct zero *z, const struct table *start, struct error *err) {
    const int64_t kept = z->parts ? z->shard : z->report.padded;
    if (!(z->weights = take(z, kept, err)) || !(z->gradient = take(z, kept, err))) return -1;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t width = table_array_width(&z->shape, a);
        if (a != TABLE_WEIGHT && width && !(z->states[a] = take(z, z->shape.rows * width, err)))
            return -1;
        for (int64_t row = 0; width && row < z->own; row++)
            memcpy(own_array(z, a) + row * width,
                   array_row(&start->array[a], z->shape.part.row + row),
                   (size_t)width * sizeof(float));
    }
    return z->parts ? 0 : gather_weights(z, z->weights, err);
}

int zero_open(struct zero **out, struct transport *t, enum zero_stage stage,
              const struct table_shape *shape, const struct table *start, const struct rule *rule,
              struct error *err) {
    struct zero *z = must_have(calloc(1, sizeof *z));
    *z = (struct zero){.t = t, .parts = stage == ZERO_3, .rule = *rule, .shape = *shape};
    z->rows = shape->rows;
    z->shape.rows = (z->rows + t->ranks - 1) / t->ranks;
    z->shape.part.row = t->rank * z->shape.rows;
    z->shape.adjusts = rule_adjusts(rule);
    z->own = max64(0, min64(z->shape.rows, z->rows - z->shape.part.row));
    z->shard = z->shape.rows * shape->dim;
    z->report.padded = t->ranks * z->shard;
    const int status =
        table_is_narrow(shape) ? fail(err, "ZeRO takes fp32 tables") : fill(z, start, err);
    z->report.gathers = 0;
    *out = status ? NULL : z;
    if (status) zero_close(z);
    return status;
}

void zero_close(struct zero *z) {
    free(z->weights);
    free(z->gradient);
    for (int a = 0; a < TABLE_ARRAYS; a++) free(z->states[a]);
    free(z);
}

struct zero_report zero_report(const struct zero *z) {
    return z->report;
}

/* --- forward, backward, step */

/* Runs a kernel on the whole table, which is gathered for it if it is partitioned. */
static int run(struct zero *z, const struct batch *in, enum operation operation, const char *name,
               void *output, struct error *err) {
    const struct kernel *k = registry_find(operation, name, err);
    const char *refused = k ? kernel_refuses(k, in) : NULL;
    if (!k || refused) return refused ? fail(err, "ZeRO: %s: %s", name, refused) : -1;
    float *all = z->parts ? take(z, z->report.padded, err) : z->weights;
    int status = all ? 0 : -1;
    if (status == 0 && z->parts) status = gather_weights(z, all, err);
    const struct table table = {.weight = {all, z->shape.dim * (int64_t)sizeof *all}};
    struct launch how = {.threads = 1, .output = output};
    if (k->scratch_bytes)
        how.scratch = must_have(array_alloc((int64_t)k->scratch_bytes(in, 1) + 1, 1));
    if (status == 0 && in->flat_bags &&
        ((k->plan && k->plan(in, &how)) || k->run(in, NULL, &table, &how)))
        status = fail(err, "ZeRO: %s failed", name);
    free(how.scratch);
    if (z->parts) release(z, all, z->report.padded);
    return status;
}

int zero_forward(struct zero *z, const struct batch *own, void *output, struct error *err) {
    return run(z, own, OP_FORWARD, "cpu_lookup", output, err);
}

/* The dense gradient, from the merged one. */
static int fill_gradient(struct zero *z, const struct batch *own, float *gradient,
                         struct error *err) {
    const int64_t dim = z->shape.dim;
    struct sparse_gradient of;
    void *output = must_have(array_alloc((int64_t)gradient_lay_out(own, true, NULL, NULL) + 1, 1));
    gradient_lay_out(own, true, output, &of);
    *of.count = 0;
    const int status = run(z, own, OP_GRADIENT, "cpu_merged", output, err);
    for (int64_t k = 0; status == 0 && k < *of.count; k++)
        memcpy(gradient + of.rows[k] * dim, of.values + k * dim, (size_t)dim * sizeof *gradient);
    free(output);
    return status;
}

/* The gradient of this rank's rows, summed over the ranks. */
static int backward(struct zero *z, const struct batch *own, struct error *err) {
    float *all = z->parts ? take(z, z->report.padded, err) : z->gradient;
    if (!all) return -1;
    int64_t *shards = must_have(calloc((size_t)z->t->ranks + 1, sizeof *shards));
    for (int r = 1; r <= z->t->ranks; r++) shards[r] = r * z->shard;
    memset(all, 0, (size_t)z->report.padded * sizeof *all);
    int status = fill_gradient(z, own, all, err);
    z->t->channel = CHANNEL_GRADIENT;
    z->report.reductions++;
    if (status == 0)
        status = transport_reduce_scatter(z->t, all, shards, z->gradient + own_at(z), err);
    if (z->parts) release(z, all, z->report.padded);
    free(shards);
    return status;
}

int zero_step(struct zero *z, const struct batch *own, int64_t t, struct error *err) {
    if (backward(z, own, err)) return -1;
    const struct rule_step step = rule_step(z->rule, t);
    const struct batch in = {.num_tables = 1, .tables = &z->shape};
    struct table io = {.watch = NULL};
    for (int a = 0; a < TABLE_ARRAYS; a++)
        io.array[a] = (struct array){own_array(z, a),
                                     table_array_width(&z->shape, a) * (int64_t)sizeof(float)};
    const struct updater u = updater_of(&in, 0, &step, &io);
    float *gradient = z->gradient + own_at(z);
    for (int64_t row = 0; row < z->own; row++) updater_row(&u, row, gradient + row * z->shape.dim);
    return z->parts ? 0 : gather_weights(z, z->weights, err);
}

int zero_get_table(struct zero *z, struct table *to, struct error *err) {
    z->t->channel = CHANNEL_CONTROL;
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const int64_t bytes = table_array_width(&z->shape, a) * (int64_t)sizeof(float),
                      shard = z->shape.rows * bytes;
        if (bytes == 0) continue;
        char *all = must_have(malloc((size_t)(z->t->ranks * shard)));
        const int status = transport_all_gather(z->t, own_array(z, a), (size_t)shard, all, err);
        for (int64_t row = 0; status == 0 && row < z->rows; row++)
            memcpy(array_row(&to->array[a], row), all + row * bytes, (size_t)bytes);
        free(all);
        if (status) return -1;
    }
    return 0;
}
