/* SPDX-License-Identifier: MIT
 *
 * What describes a call is one block: copied to the device with one copy on the caller's stream.
 * Calls on one stream are in order, so they can share the block on the device. The copy from pageable
 * memory returns when it has read it, so they can share the block on the host as well.
 */
#include <stdlib.h>
#include <string.h>

#include "harness/workload/workload.h"
#include "kernels/scratch.h"
#include "extras/library/model.h"

struct device_call {
    void *host; /* the block */
    size_t bytes;
    struct device_buffer device;
};

/* The parts of a block. */
struct parts {
    struct table_shape *shapes;
    struct feature *features;
    struct rule_step *steps;
    struct table *tables;
    int64_t *no_offsets;
};

static size_t lay_out(const struct embfuse_model *m, void *block, struct parts *p) {
    struct scratch s = {block, 0};
    p->shapes = scratch_take(&s, m->num_tables, sizeof *p->shapes);
    p->features = scratch_take(&s, m->num_features, sizeof *p->features);
    p->steps = scratch_take(&s, m->num_tables, sizeof *p->steps);
    p->tables = scratch_take(&s, m->num_tables, sizeof *p->tables);
    p->no_offsets = scratch_take(&s, m->num_features + 1, sizeof *p->no_offsets);
    return s.used;
}

int device_call_open(struct embfuse_model *m, struct error *err) {
    struct parts none;
    if (device_open(err)) return -1;
    m->call = calloc(1, sizeof *m->call);
    if (!m->call) return fail(err, "out of memory");
    m->call->bytes = lay_out(m, NULL, &none);
    m->call->host = calloc(1, m->call->bytes);
    if (!m->call->host) return fail(err, "out of memory");
    return device_alloc(&m->call->device, m->call->bytes, "a model", err);
}

void device_call_close(struct embfuse_model *m) {
    if (m->call->device.data) device_free(&m->call->device);
    free(m->call->host);
    free(m->call);
}

const int64_t *device_call_no_offsets(const struct embfuse_model *m) {
    struct parts device;
    lay_out(m, m->call->device.data, &device);
    return device.no_offsets;
}

int device_call_lookups(struct embfuse_model *m, const struct embfuse_batch *batch,
                        struct error *err) {
    int64_t begin = 0, end;
    const bool told = batch->trusted && batch->feature_lookups;
    if (!told && device_wait(batch->stream, err)) return -1;
    for (int32_t f = 0; f < m->num_features; f++, begin = end) {
        if (told)
            end = begin + batch->feature_lookups[f];
        else if (device_get(&end, batch->offsets + m->features[f].first_bag + m->features[f].bags,
                            sizeof end, err))
            return -1;
        m->features[f].lookups = end - begin;
    }
    return 0;
}

int device_call_send(struct embfuse_model *m, struct batch *in, void *stream,
                     const struct rule_step **steps, const struct table **tables,
                     struct error *err) {
    struct parts host, device;
    lay_out(m, m->call->host, &host);
    lay_out(m, m->call->device.data, &device);
    memcpy(host.shapes, m->shapes, (size_t)m->num_tables * sizeof *host.shapes);
    memcpy(host.features, m->features, (size_t)m->num_features * sizeof *host.features);
    memcpy(host.steps, m->steps, (size_t)m->num_tables * sizeof *host.steps);
    memcpy(host.tables, m->tables, (size_t)m->num_tables * sizeof *host.tables);
    in->device_tables = device.shapes;
    in->device_features = device.features;
    *steps = device.steps;
    *tables = device.tables;
    return device_put_on(stream, m->call->device.data, m->call->host, m->call->bytes, err);
}

int device_call_validate(struct embfuse_model *m, const struct batch *in, void *stream,
                         struct error *err) {
    struct device_batch d = {.batch = *in};
    d.ids.bytes = (size_t)in->lookups * (in->id_type == ID_INT32 ? 4 : 8);
    d.offsets.bytes = (size_t)(in->flat_bags + 1) * sizeof *in->offsets;
    const struct rule_step *steps;
    const struct table *tables;
    if (device_call_send(m, &d.batch, stream, &steps, &tables, err)) return -2;
    if (device_wait(stream, err)) return -2;
    return device_batch_validate(&d, err) == 0 ? 0 : device_lost() ? -2 : -1;
}
