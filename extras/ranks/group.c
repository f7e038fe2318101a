/* SPDX-License-Identifier: MIT */
#include "extras/ranks/group.h"

#include <stdlib.h>

#include "harness/measure/runner.h"
#include "kernels/forward.h"

int32_t group_shards(const struct group *g) {
    const int me = g->transport->rank;
    return g->sharding.first[me + 1] - g->sharding.first[me];
}

static bool has_copies(const struct group *g) {
    return g->routes[0].shared.num_features > 0;
}

static const struct batch *local_of(const struct group *g, int k) {
    return g->is_dense ? &g->dense[k].local : &g->routes[k].local;
}

static int open_inner(struct group *g, const struct group_setup *with, struct error *err) {
    const int ring = g->ring, count = has_copies(g) ? 3 * ring : 2 * ring;
    struct place_setup setup = with->inner;
    for (int k = 0; k < ring; k++) {
        g->batches[k] = *local_of(g, k);
        g->batches[ring + k] = g->routes[k].forward;
        g->batches[2 * ring + k] = g->routes[k].shared;
    }
    for (int k = 0; k < count; k++) {
        if (batch_validate_lookups(&g->batches[k], err)) return -1;
        g->index[k] = row_index_build(&g->batches[k]);
    }
    setup.shapes = g->batches[0].tables;
    setup.num_tables = group_shards(g);
    setup.batches = g->batches;
    setup.index = g->index;
    setup.ring = count;
    setup.tables = g->tables.tables ? &g->tables : NULL;
    g->inner = place_open(with->backend, &setup, err);
    return g->inner ? 0 : -1;
}

static int open_routes(struct group *g, const struct group_setup *setup, struct error *err) {
    for (int k = 0; k < g->ring; k++) {
        if (route_open(&g->routes[k], &g->sharding, g->transport, setup->deal->bags, &g->own[k],
                       setup->all_rows, err))
            return -1;
        if (g->is_dense && dense_open(&g->dense[k], &g->sharding, g->transport, &g->own[k], err))
            return -1;
    }
    return 0;
}

/* True if gradients travel between devices. Dense gradients are added on the host. */
static bool on_device(const struct group *g) {
    return g->own_grads && !g->is_dense;
}

/* From here on rows travel between devices. What lies only in device memory, the inner place does not get again. */
static int use_device(struct group *g, struct error *err) {
    for (int k = 0; k < g->ring; k++) {
        void *local = g->inner ? g->inner->ops->device_batch(g->inner, k)->grad.data : NULL;
        if (route_use_device(&g->routes[k], g->own_grads[k].data, local, err)) return -1;
        g->batches[g->ring + k].grad = NULL;
        if (on_device(g)) g->batches[k].grad = NULL;
    }
    return 0;
}

static int exchange_gradient(struct group *g, int batch, struct error *err) {
    return group_gradient_start(g, batch, err) || group_gradient_finish(g, batch, err) ? -1 : 0;
}

int group_open(struct group *g, const struct group_setup *setup, const bool *keep, bool is_dense,
               struct error *err) {
    struct transport *t = setup->transport;
    *g = (struct group){.transport = t,
                        .own = setup->own,
                        .ring = setup->inner.ring,
                        .threads = setup->inner.threads,
                        .own_grads = setup->own_grads,
                        .is_dense = is_dense};
    sharding_select(setup->sharding, keep, &g->sharding);
    g->steps = must_have(calloc((size_t)setup->deal->num_tables, sizeof *g->steps));
    if (transport_agree(t, open_routes(g, setup, err), err)) return -1;
    for (int k = 0; k < g->ring; k++)
        if (group_ids(g, k, err) || (!on_device(g) && exchange_gradient(g, k, err))) return -1;
    int status = 0;
    if (setup->from)
        status = checkpoint_read(setup->from, &g->sharding, t->rank, local_of(g, 0)->tables,
                                 &g->tables, err);
    if (status == 0 && group_shards(g)) status = open_inner(g, setup, err);
    if (status == 0 && setup->own_grads) status = use_device(g, err);
    if (transport_agree(t, status, err)) return -1;
    for (int k = 0; k < g->ring && on_device(g); k++)
        if (exchange_gradient(g, k, err)) return -1;
    return 0;
}

void group_close(struct group *g) {
    struct place *p = g->inner;
    if (p) {
        p->ops->scratch_close(p, &g->scratch);
        p->ops->scratch_close(p, &g->output);
        p->ops->scratch_close(p, &g->shared_output);
        p->ops->close(p);
    }
    for (int k = 0; k < PLACE_RING_MAX; k++) row_index_free(&g->index[k]);
    for (int k = 0; k < RING_MAX; k++) {
        route_close(&g->routes[k]);
        dense_close(&g->dense[k]);
    }
    tables_free(&g->tables);
    sharding_free(&g->sharding);
    free(g->steps);
    free(g->output_copy.data);
    free(g->shared_copy.data);
    *g = (struct group){0};
}

/* --- exchanges */

/* True if a batch has no work for kernels here. */
static bool is_idle(const struct group *g, int batch) {
    return !g->inner || g->batches[batch].num_features == 0 || g->batches[batch].flat_bags == 0;
}

/* A place with memory of its own gets what came to host memory. */
static int renew(struct group *g, int batch, struct error *err) {
    return is_idle(g, batch) ? 0 : g->inner->ops->renew(g->inner, batch, err);
}

int group_ids(struct group *g, int batch, struct error *err) {
    if (route_ids(&g->routes[batch], err)) return -1;
    if (g->is_dense) return dense_ids(&g->dense[batch], err);
    return on_device(g) ? renew(g, batch, err) : 0;
}

int group_gradient_start(struct group *g, int batch, struct error *err) {
    return g->is_dense ? 0 : route_gradient_start(&g->routes[batch], err);
}

int group_gradient_finish(struct group *g, int batch, struct error *err) {
    const int status = g->is_dense ? dense_gradient(&g->dense[batch], err)
                                   : route_gradient_finish(&g->routes[batch], err);
    if (status) return -1;
    return on_device(g) ? 0 : renew(g, batch, err);
}

/* --- kernels of the inner place */

static int run_inner(struct group *g, const struct kernel *k, int batch,
                     struct place_scratch *scratch, struct place_scratch *output,
                     void (*mark)(void *, enum stage), void *ctx, struct error *err) {
    if (is_idle(g, batch)) return 0;
    const struct place_job job = {.kernel = k,
                                  .batch = batch,
                                  .steps = g->steps,
                                  .scratch = scratch,
                                  .output = output,
                                  .planned = true,
                                  .mark = mark,
                                  .mark_ctx = ctx};
    return g->inner->ops->run(g->inner, &job, err);
}

int group_plan(struct group *g, const struct kernel *k, int batch, struct error *err) {
    if (!k->plan || is_idle(g, batch)) return 0;
    const struct place_job job = {
        .kernel = k, .batch = batch, .steps = g->steps, .scratch = &g->scratch};
    return g->inner->ops->plan(g->inner, &job, err);
}

int group_run(struct group *g, const struct kernel *k, int batch, void (*mark)(void *, enum stage),
              void *ctx, struct error *err) {
    return run_inner(g, k, batch, &g->scratch, NULL, mark, ctx, err);
}

int group_parts(struct group *g, const struct kernel *k, int batch, int64_t *appeared,
                struct error *err) {
    struct step_parts parts = {0};
    int status = 0;
    if (g->inner && g->batches[batch].num_features) {
        const struct place_job job = {
            .kernel = k, .batch = batch, .steps = g->steps, .scratch = &g->scratch};
        status = g->inner->ops->parts(g->inner, &job, &parts, err);
    }
    *appeared = parts.appeared;
    return status;
}

int group_lookup(struct group *g, const struct kernel *k, int batch, struct error *err) {
    const int sharded = g->ring + batch, copies = 2 * g->ring + batch;
    if (renew(g, sharded, err) || run_inner(g, k, sharded, &g->none, &g->output, NULL, NULL, err))
        return -1;
    return run_inner(g, k, copies, &g->none, &g->shared_output, NULL, NULL, err);
}

/* The output of a forward, where its rows travel from. */
static int sent_from(struct group *g, const struct place_scratch *s, struct room *copy,
                     const void **out, struct error *err) {
    *out = s->data;
    if (g->own_grads || !g->inner || s->bytes == 0 || g->inner->ops->tables(g->inner)) return 0;
    void *to = room_for(copy, s->bytes);
    *out = to;
    return g->inner->ops->scratch_get(g->inner, s, to, err);
}

int group_output(struct group *g, int batch, void *to, struct error *err) {
    const void *own, *shared;
    if (sent_from(g, &g->output, &g->output_copy, &own, err) ||
        sent_from(g, &g->shared_output, &g->shared_copy, &shared, err))
        return -1;
    return route_output(&g->routes[batch], own, shared, to, err);
}

/* --- their memory */

int group_scratch_bytes(struct group *g, const struct kernel *k, size_t *bytes, struct error *err) {
    *bytes = 0;
    if (!g->inner) return 0;
    bool copies = false;
    for (int32_t i = 0; i < g->sharding.count; i++)
        copies |= g->sharding.kind[g->sharding.shards[i].table] == SHARD_DATA;
    if (k->operation == OP_STEP && g->transport->ranks > 1 && copies &&
        !(k->traits & DETERMINISTIC))
        return fail(err,
                    "%s gives other bits on every run, so the ranks' copies of a table would drift "
                    "apart; take another kernel or sharding",
                    k->name);
    const int first = k->operation == OP_FORWARD ? g->ring : 0;
    const struct place_setup setup = {
        .batches = g->batches + first, .ring = g->ring, .threads = g->threads};
    return setup_scratch_bytes(&setup, k, bytes, err);
}

int group_open_scratch(struct group *g, const struct kernel *k, int fill, struct error *err) {
    struct place *p = g->inner;
    size_t bytes;
    if (!p) return 0;
    const bool fresh = g->scratch_of != k;
    if (fresh) {
        if (group_scratch_bytes(g, k, &bytes, err)) return -1;
        p->ops->scratch_close(p, &g->scratch);
        g->scratch_of = NULL;
        if (p->ops->scratch_open(p, &g->scratch, bytes, "scratch", err)) return -1;
        g->scratch_of = k;
    }
    if (fill == AS_IT_IS && fresh) fill = POISON;
    return fill == AS_IT_IS ? 0 : p->ops->scratch_fill(p, &g->scratch, fill, err);
}

static size_t output_bytes(const struct batch *in) {
    int32_t *winners;
    return in->num_features ? forward_lay_out(in, NULL, &winners) : 0;
}

int group_open_outputs(struct group *g, struct error *err) {
    struct place *p = g->inner;
    size_t most = 0, shared = 0;
    if (!p || g->output.data || g->shared_output.data) return 0;
    for (int k = 0; k < g->ring; k++) {
        const size_t bytes = output_bytes(&g->routes[k].forward),
                     beside = output_bytes(&g->routes[k].shared);
        most = bytes > most ? bytes : most;
        shared = beside > shared ? beside : shared;
    }
    return p->ops->scratch_open(p, &g->output, most, "the output", err) ||
                   p->ops->scratch_open(p, &g->shared_output, shared, "the output", err)
               ? -1
               : 0;
}
