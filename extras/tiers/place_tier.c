/* SPDX-License-Identifier: MIT */
#include "extras/tiers/place_tier.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/shape.h"
#include "extras/tiers/ahead.h"

struct tier {
    struct place place;
    struct resident *resident;
    struct ahead *ahead;
    struct row_index
        *index; /* [ring], of the ids of slots at opening: the inner place wants some */
    struct place *inner;
};

static struct tier *tier_of(struct place *p) {
    return (struct tier *)p;
}

static void tier_close(struct place *p) {
    struct tier *x = tier_of(p);
    ahead_close(x->ahead); /* its thread uses the inner place */
    if (x->inner) x->inner->ops->close(x->inner);
    for (int b = 0; x->index && b < x->resident->setup.ring; b++) row_index_free(&x->index[b]);
    free(x->index);
    resident_close(x->resident);
    free(x);
}

static int scratch_bytes(struct place *p, const struct kernel *k, size_t *bytes,
                         struct error *err) {
    struct tier *x = tier_of(p);
    if (k->traits & DENSE_STEP)
        return fail(err,
                    "%s changes rows that no lookup touches; with a part of the rows in slots they "
                    "are not in memory",
                    k->name);
    return x->inner->ops->scratch_bytes(x->inner, k, bytes, err);
}

static int scratch_open(struct place *p, struct place_scratch *s, size_t bytes, const char *what,
                        struct error *err) {
    struct place *inner = tier_of(p)->inner;
    return inner->ops->scratch_open(inner, s, bytes, what, err);
}

static void scratch_close(struct place *p, struct place_scratch *s) {
    struct place *inner = tier_of(p)->inner;
    inner->ops->scratch_close(inner, s);
}

static int scratch_fill(struct place *p, struct place_scratch *s, int byte, struct error *err) {
    struct place *inner = tier_of(p)->inner;
    return inner->ops->scratch_fill(inner, s, byte, err);
}

static int scratch_get(struct place *p, const struct place_scratch *s, void *to,
                       struct error *err) {
    struct place *inner = tier_of(p)->inner;
    return inner->ops->scratch_get(inner, s, to, err);
}

static bool changes_rows(const struct place_job *job) {
    return job->kernel->operation == OP_STEP;
}

static int take(struct tier *x, const struct place_job *job, struct error *err) {
    return ahead_take(x->ahead, job->batch, changes_rows(job), err);
}

static int run(struct place *p, const struct place_job *job, struct error *err) {
    struct tier *x = tier_of(p);
    if (take(x, job, err)) return -1;
    const int status = x->inner->ops->run(x->inner, job, err);
    ahead_done(x->ahead);
    return status;
}

/* Slots, not rows, are what a plan sorts: so it runs with its step. */
static int no_plan(struct place *p, const struct place_job *job, struct error *err) {
    (void)p;
    return fail(err, "%s: with rows in slots it plans within a run", job->kernel->name);
}

static int parts(struct place *p, const struct place_job *job, struct step_parts *out,
                 struct error *err) {
    struct tier *x = tier_of(p);
    if (take(x, job, err)) return -1;
    const int status = x->inner->ops->parts(x->inner, job, out, err);
    ahead_done(x->ahead);
    return status;
}

static int need_probe(const struct tier *x, struct error *err) {
    return x->resident->fast->has_probe
               ? 0
               : fail(err, "with slots in device memory there are no cold caches and no ceilings");
}

static int flush(struct place *p, struct error *err) {
    struct tier *x = tier_of(p);
    return need_probe(x, err) ? -1 : x->inner->ops->flush(x->inner, err);
}

static int time_step(struct place *p, const struct place_job *job, bool cold,
                     struct step_times *out, struct error *err) {
    struct tier *x = tier_of(p);
    if (cold && flush(p, err)) return -1;
    const double begin = clock_seconds();
    if (take(x, job, err)) return -1;
    const double before = clock_seconds() - begin;
    const int status = x->inner->ops->time(x->inner, job, false, out, err);
    out->seconds += before;
    ahead_done(x->ahead);
    return status;
}

static int ceilings(struct place *p, struct ceiling *out, struct error *err) {
    struct tier *x = tier_of(p);
    return need_probe(x, err) ? -1 : x->inner->ops->ceilings(x->inner, out, err);
}

/* Initial values of rows that follow one another. */
static int restore_rows(struct resident *r, int32_t t, int64_t begin, int64_t end,
                        struct error *err) {
    struct table_shape shape = r->setup.shapes[t];
    struct table_set rows;
    shape.part.table += t;
    shape.part.row = part_row(&shape.part, begin);
    shape.rows = end - begin;
    if (tables_create(&rows, &shape, 1, r->setup.seed, err)) return -1;
    const int status = resident_put(r, t, begin, end, &rows.tables[0], err);
    tables_free(&rows);
    return status;
}

/* Rows of a batch, those that follow one another together. */
static int restore_batch(struct resident *r, int32_t t, int batch, struct error *err) {
    int64_t *rows = must_have(calloc((size_t)r->setup.index[batch].rows + 1, sizeof *rows));
    const int64_t count = resident_rows_of(r, t, batch, rows);
    int status = 0;
    for (int64_t i = 0, end; i < count && status == 0; i = end) {
        for (end = i + 1; end < count && rows[end] == rows[end - 1] + 1; end++) continue;
        status = restore_rows(r, t, rows[i], rows[end - 1] + 1, err);
    }
    free(rows);
    return status;
}

static int restore(struct place *p, int batch, struct error *err) {
    enum { AT_ONCE = 4096 };
    struct tier *x = tier_of(p);
    struct resident *r = x->resident;
    if (ahead_none(x->ahead, err)) return -1;
    for (int32_t t = 0; t < r->setup.num_tables; t++) {
        const int64_t all = r->setup.shapes[t].rows;
        for (int64_t row = 0; batch < 0 && row < all; row += AT_ONCE)
            if (restore_rows(r, t, row, min64(all, row + AT_ONCE), err)) return -1;
        if (batch >= 0 && restore_batch(r, t, batch, err)) return -1;
    }
    return 0;
}

static int get_rows(struct place *p, int32_t t, int64_t begin, int64_t end, struct table *rows,
                    struct error *err) {
    struct tier *x = tier_of(p);
    if (ahead_none(x->ahead, err)) return -1;
    return resident_get(x->resident, t, begin, end, rows, err);
}

static int intact(struct place *p, int batch, const struct place_scratch *s, struct error *err) {
    struct resident *r = tier_of(p)->resident;
    (void)batch;
    return r->fast->ops->intact(r, s, err);
}

static const struct place_ops tier_ops = {.close = tier_close,
                                          .scratch_bytes = scratch_bytes,
                                          .scratch_open = scratch_open,
                                          .scratch_close = scratch_close,
                                          .scratch_fill = scratch_fill,
                                          .scratch_get = scratch_get,
                                          .plan = no_plan,
                                          .flush = flush,
                                          .run = run,
                                          .parts = parts,
                                          .time = time_step,
                                          .ceilings = ceilings,
                                          .restore = restore,
                                          .tables = place_tables_elsewhere,
                                          .get_rows = get_rows,
                                          .intact = intact};

/* --- opening */

static const char *refuses(const struct place_setup *s) {
    if (s->tables) return "tables with a given content";
    for (int32_t t = 0; t < s->num_tables; t++) {
        if (s->shapes[t].rounding == ROUND_STOCHASTIC) return "stochastic rounding";
        if (s->shapes[t].rows >= INT32_MAX) return "tables of 2^31 - 1 rows or more";
    }
    return NULL;
}

static int open_inner(struct tier *x, struct error *err) {
    struct resident *r = x->resident;
    struct place_setup inner = r->setup;
    x->index = must_have(calloc((size_t)inner.ring, sizeof *x->index));
    for (int b = 0; b < inner.ring; b++) x->index[b] = row_index_build(&r->batches[b]);
    inner.shapes = r->shapes;
    inner.batches = r->batches;
    inner.index = x->index;
    x->inner = r->fast->ops->open_place(r, &inner, err);
    return x->inner ? 0 : -1;
}

struct place *place_tier_open(const struct tier_options *o, const struct place_setup *setup,
                              struct error *err) {
    const char *why = refuses(setup);
    if (why) return fail(err, "with a part of the rows in slots there are no %s", why), NULL;
    if (!(o->budget > 0 && o->budget <= 1))
        return fail(err, "budget %g: a share of the rows, above 0 and up to 1", o->budget), NULL;
    struct resident *r = resident_open(o, setup, err);
    if (!r) return NULL;
    struct tier *x = must_have(calloc(1, sizeof *x));
    x->place.ops = &tier_ops;
    x->resident = r;
    x->ahead = ahead_open(r);
    if (open_inner(x, err) == 0) return &x->place;
    tier_close(&x->place);
    return NULL;
}

/* --- of this place alone */

int tier_announce(struct place *p, int batch, bool changes, struct error *err) {
    return ahead_announce(tier_of(p)->ahead, batch, changes, err);
}

int tier_commit(struct place *p, struct error *err) {
    struct tier *x = tier_of(p);
    return ahead_none(x->ahead, err) ? -1 : resident_commit(x->resident, err);
}

struct tier_counts tier_counts(const struct place *p) {
    const struct resident *r = ((const struct tier *)p)->resident;
    struct tier_counts c = r->counts;
    c.store = r->store->ops->counts(r->store);
    return c;
}

const char *tier_engine(const struct place *p) {
    return ((const struct tier *)p)->resident->store->engine;
}

int64_t tier_bytes(const struct place *p) {
    return resident_bytes(((const struct tier *)p)->resident);
}

int64_t tier_record_bytes(const struct place *p, int32_t table) {
    return ((const struct tier *)p)->resident->slots[table].layout.bytes;
}
