/* SPDX-License-Identifier: MIT */
#include "extras/ranks/member.h"

#include <stdlib.h>
#include <string.h>

#include "harness/measure/disturbance.h"
#include "harness/measure/runner.h"
#include "harness/registry.h"
#include "kernels/shape.h"

/* --- one operation */

static const struct kernel *kernel_of(int number) {
    return number < 0 ? NULL : registry()[number].kernel;
}

struct stopwatch {
    double last, *stage;
};

static void stop(void *ctx, enum stage ended) {
    struct stopwatch *s = ctx;
    const double now = clock_seconds();
    s->stage[ended] += now - s->last;
    s->last = now;
}

/* Adds the seconds since *at, which becomes now. */
static void lap(double *seconds, double *at) {
    const double now = clock_seconds();
    *seconds += now - *at;
    *at = now;
}

static int plan_groups(struct member *m, const struct kernel *k, int batch, struct error *err) {
    int status = 0;
    transport_phase(m->transport, "plan");
    for (int g = 0; g < m->num_groups && status == 0; g++)
        status = group_plan(&m->groups[g], k, batch, err);
    return status;
}

static int flush(struct member *m, struct error *err) {
    for (int g = 0; g < m->num_groups; g++)
        if (m->groups[g].inner) return m->groups[g].inner->ops->flush(m->groups[g].inner, err);
    return 0;
}

static int exchange_ids(struct member *m, int batch, struct error *err) {
    transport_phase(m->transport, "exchange of ids");
    for (int g = 0; g < m->num_groups; g++)
        if (group_ids(&m->groups[g], batch, err)) return -1;
    return 0;
}

static int forward(struct member *m, const struct kernel *k, int batch, struct rank_times *times,
                   struct error *err) {
    double at = clock_seconds();
    int status = 0;
    transport_phase(m->transport, "lookup");
    for (int g = 0; g < m->num_groups && status == 0; g++)
        status = group_lookup(&m->groups[g], k, batch, err);
    lap(&times->forward, &at);
    transport_phase(m->transport, "exchange of outputs");
    void *to = m->on_device ? m->device_result.data : m->result;
    for (int g = 0; g < m->num_groups; g++) {
        struct error *why = status ? &(struct error){""} : err;
        if (group_output(&m->groups[g], batch, to, why)) status = -1;
    }
    lap(&times->exchange[EXCHANGE_OUTPUT].seconds, &at);
    return status;
}

/* Gradients to the owners, and the step there. While a group takes its step, the gradients of the next one
 * are on their way. */
static int step(struct member *m, const struct kernel *k, int batch, int status,
                struct rank_times *times, struct error *err) {
    double at = clock_seconds(), *exchange = &times->exchange[EXCHANGE_GRADIENT].seconds;
    transport_phase(m->transport, "exchange of gradients");
    if (group_gradient_start(&m->groups[0], batch, err)) return -1;
    for (int g = 0; g < m->num_groups; g++) {
        struct group *next = g + 1 < m->num_groups ? &m->groups[g + 1] : NULL;
        transport_phase(m->transport, "exchange of gradients");
        if (group_gradient_finish(&m->groups[g], batch, err)) return -1;
        if (next && group_gradient_start(next, batch, err)) return -1;
        lap(exchange, &at);
        transport_phase(m->transport, "update");
        struct stopwatch watch = {at, times->stage};
        if (status == 0) status = group_run(&m->groups[g], k, batch, stop, &watch, err);
        at = clock_seconds();
    }
    return status;
}

/* Caches are cold, nothing is left to do on a device, and all ranks begin together. */
static int begin_together(struct member *m, const struct order *o, int status, double *begin,
                          struct error *err) {
    if (status == 0 && o->cold) status = flush(m, err);
    if (status == 0 && m->opening.backend == ON_DEVICE) status = device_wait(device_stream(), err);
    m->transport->channel = CHANNEL_CONTROL;
    if (transport_agree(m->transport, status, err)) return -1;
    *begin = clock_seconds();
    return 0;
}

/* A step begins when its ids are there and its plan is made; everything else, with its ids. The bytes of its
 * exchanges are in the transport. */
static int operate(struct member *m, const struct order *o, struct rank_times *times,
                   struct error *err) {
    const struct kernel *k = kernel_of(o->kernel), *lookup = kernel_of(o->forward);
    const bool is_step = k->operation == OP_STEP, step_alone = is_step && !lookup;
    double begin = clock_seconds(), at = begin;
    int status = 0;
    if (!step_alone && begin_together(m, o, 0, &begin, err)) return -1;
    at = clock_seconds();
    if (exchange_ids(m, o->batch, err)) return -1;
    lap(&times->exchange[EXCHANGE_IDS].seconds, &at);
    if (step_alone) {
        status = plan_groups(m, k, o->batch, err);
        lap(&times->plan, &at);
        times->plan += times->exchange[EXCHANGE_IDS].seconds;
        if (begin_together(m, o, status, &begin, err)) return -1;
    } else
        status = forward(m, is_step ? lookup : k, o->batch, times, err);
    if (is_step) {
        at = clock_seconds();
        if (!step_alone && status == 0) status = plan_groups(m, k, o->batch, err);
        if (!step_alone) lap(&times->plan, &at);
        status = step(m, k, o->batch, status, times, err);
    }
    times->seconds = clock_seconds() - begin;
    return status;
}

static int gather_output(struct member *m, int batch, struct error *err) {
    struct transport *t = m->transport;
    const struct batch *own = &m->own[batch];
    t->channel = CHANNEL_CONTROL;
    if (m->on_device && device_get(m->result, m->device_result.data, deal_grad_bytes(own), err))
        return -1;
    if (t->rank == 0) return 0; /* rank 0 takes them in: place_ranks.c */
    return transport_send(t, 0, TAG_OUTPUT, m->result, deal_grad_bytes(own), err);
}

static int prepare(struct member *m, const struct order *o, struct error *err) {
    const struct kernel *k = kernel_of(o->kernel);
    const bool writes = k->operation == OP_FORWARD || o->forward >= 0;
    if (writes && m->opening.grad_type != FP32 && route_sums_in_parts(&m->sharding, &m->own[0]))
        return fail(err,
                    "outputs narrower than fp32 are not summed over ranks, since each part would "
                    "be rounded; take another sharding than by rows");
    for (int g = 0; g < m->num_groups; g++)
        if ((writes && group_open_outputs(&m->groups[g], err)) ||
            (k->operation == OP_STEP && group_open_scratch(&m->groups[g], k, o->fill, err)))
            return -1;
    return 0;
}

static int run(struct member *m, const struct order *o, struct reply *out, struct error *err) {
    struct transport *t = m->transport;
    struct transport_bytes before[CHANNELS];
    t->channel = CHANNEL_CONTROL;
    if (transport_agree(t, prepare(m, o, err), err)) return -1;
    memcpy(before, t->bytes, sizeof before);
    const struct disturbance calm = disturbance_now("/proc");
    int status = operate(m, o, &out->times, err);
    out->times.disturbed = disturbed(calm, disturbance_now("/proc"), out->times.seconds);
    times_add_bytes(&out->times, t, before);
    transport_phase(t, "end of the step");
    t->channel = CHANNEL_CONTROL;
    if (transport_agree(t, status, err) || times_merge(&out->times, t, m->of_rank, err)) return -1;
    return o->gather ? gather_output(m, o->batch, err) : 0;
}

static int parts(struct member *m, const struct order *o, struct reply *out, struct error *err) {
    const struct kernel *k = kernel_of(o->kernel);
    int64_t appeared = 0;
    int status = prepare(m, o, err);
    for (int g = 0; g < m->num_groups && status == 0; g++) {
        int64_t own = 0;
        if (k->operation == OP_STEP) status = group_parts(&m->groups[g], k, o->batch, &own, err);
        appeared += own;
    }
    double most = (double)appeared;
    m->transport->channel = CHANNEL_CONTROL;
    if (transport_agree(m->transport, status, err) || transport_most(m->transport, &most, 1, err))
        return -1;
    out->appeared = (int64_t)most;
    return 0;
}

/* Ranks measure at the same time: together they have what they can have together. */
static int ceilings(struct member *m, struct reply *out, struct error *err) {
    struct transport *t = m->transport;
    struct ceiling own = {.pingpong_ns = -1},
                   *all = must_have(calloc((size_t)t->ranks, sizeof *all));
    int status = 0;
    for (int g = 0; g < m->num_groups; g++)
        if (m->groups[g].inner) {
            status = m->groups[g].inner->ops->ceilings(m->groups[g].inner, &own, err);
            break;
        }
    t->channel = CHANNEL_CONTROL;
    const int failed =
        transport_agree(t, status, err) || transport_all_gather(t, &own, sizeof own, all, err);
    out->ceiling = all[0];
    for (int r = 1; r < t->ranks; r++) {
        out->ceiling.copy_gbs += all[r].copy_gbs;
        out->ceiling.rmw_gbs += all[r].rmw_gbs;
        out->ceiling.random_gbs += all[r].random_gbs;
        out->ceiling.gather_gbs += all[r].gather_gbs;
    }
    free(all);
    return failed ? -1 : 0;
}

/* --- orders about memory */

static int scratch_bytes(struct member *m, const struct order *o, struct reply *out,
                         struct error *err) {
    struct transport *t = m->transport;
    size_t all = 0;
    int status = 0;
    for (int g = 0; g < m->num_groups && status == 0; g++) {
        size_t bytes = 0;
        status = group_scratch_bytes(&m->groups[g], kernel_of(o->kernel), &bytes, err);
        all += bytes;
    }
    double most = (double)all;
    t->channel = CHANNEL_CONTROL;
    if (transport_agree(t, status, err) || transport_most(t, &most, 1, err)) return -1;
    out->scratch = (size_t)most;
    return 0;
}

static int restore(struct member *m, const struct order *o, struct error *err) {
    int status = 0;
    for (int g = 0; g < m->num_groups && status == 0; g++) {
        struct place *p = m->groups[g].inner;
        if (p) status = p->ops->restore(p, o->batch, err);
    }
    m->transport->channel = CHANNEL_CONTROL;
    return transport_agree(m->transport, status, err);
}

static int intact(struct member *m, const struct order *o, struct error *err) {
    int status = 0;
    for (int g = 0; g < m->num_groups && status == 0; g++) {
        const struct group *x = &m->groups[g];
        const struct place_scratch *scratch = x->scratch_of ? &x->scratch : &x->none;
        if (x->inner) status = x->inner->ops->intact(x->inner, o->batch, scratch, err);
    }
    m->transport->channel = CHANNEL_CONTROL;
    return transport_agree(m->transport, status, err);
}

static int send_rows(struct member *m, const struct order *o, struct error *err) {
    struct transport *t = m->transport;
    int32_t number = -1;
    const struct group *x = NULL;
    for (int g = 0; g < m->num_groups && number < 0; g++) {
        x = &m->groups[g];
        number = x->sharding.part[(int64_t)o->table * t->ranks + t->rank];
    }
    t->channel = CHANNEL_CONTROL;
    if (number < 0) return 0;
    const struct sharding *s = &x->sharding;
    const struct shard *part = &s->shards[number];
    const struct table_shape shape = sharding_shape(s, part, m->shapes);
    int64_t first;
    const int64_t count = deal_rows_in(part, o->begin, o->end, &first);
    const size_t bytes = deal_rows_bytes(s, part, m->shapes, count);
    char *data = must_have(malloc(bytes + 1));
    struct table rows = deal_rows_in_message(&shape, count, data);
    struct error why;
    const int lost = count ? x->inner->ops->get_rows(x->inner, number - s->first[t->rank], first,
                                                     first + count, &rows, &why)
                           : 0;
    data[bytes] = (char)(lost != 0); /* rank 0 asks this byte whether the rows are there */
    const int status = transport_send(t, 0, TAG_ROWS, data, bytes + 1, err);
    free(data);
    return status;
}

int member_do(struct member *m, const struct order *o, const struct rule_step *steps,
              struct reply *out, struct error *err) {
    *out = (struct reply){0};
    for (int g = 0; steps && g < m->num_groups; g++) {
        const struct sharding *s = &m->groups[g].sharding;
        const int32_t first = s->first[m->transport->rank];
        for (int32_t i = 0; i < group_shards(&m->groups[g]); i++)
            m->groups[g].steps[i] = steps[s->shards[first + i].table];
    }
    switch (o->what) {
    case DO_SCRATCH: return scratch_bytes(m, o, out, err);
    case DO_RUN:
    case DO_TIME: return run(m, o, out, err);
    case DO_PARTS: return parts(m, o, out, err);
    case DO_CEILINGS: return ceilings(m, out, err);
    case DO_RESTORE: return restore(m, o, err);
    case DO_ROWS: return send_rows(m, o, err);
    case DO_INTACT: return intact(m, o, err);
    default: return fail(err, "rank %d got an order that it does not know", m->transport->rank);
    }
}
