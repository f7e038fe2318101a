/* SPDX-License-Identifier: MIT */
#include "tiers/place_tier.h"

#include <stdlib.h>
#include <string.h>

#include "harness/memory.h"
#include "kernels/shape.h"

enum { STAGING = 4 << 20, ALIGN = 4096 };

/* A table of slots; the last row is that of padding. */
struct slots {
    struct cache *cache;
    int32_t count;
    int64_t at_once; /* records in the staging memory */
};

struct tier {
    struct place place;
    struct place_setup setup;
    struct row_file *file;
    struct slots *slots;        /* [num_tables] */
    struct table_shape *shapes; /* of the slots */
    struct table_set tables;
    struct feature *features;
    struct batch batches[PLACE_RING_MAX];
    struct row_index index[PLACE_RING_MAX];
    struct place *inner;
    char *staging;
    /* Rows of one table: those of a batch, or all in slots. */
    int64_t *rows, *some;
    int32_t *slot;
    struct cache_move *moves;
    struct tier_counts counts;
};

static struct tier *tier_of(struct place *p) {
    return (struct tier *)p;
}

static void lap(double *seconds, double *at) {
    const double now = clock_seconds();
    *seconds += now - *at;
    *at = now;
}

/* --- rows between slots and the file */

enum move { TO_FILE, FROM_FILE };

/* [count] rows and their slots, as much at a time as the staging memory takes. */
static int move_rows(struct tier *x, int32_t t, enum move how, const int64_t *rows,
                     const int32_t *slot, int64_t count, struct error *err) {
    struct table *table = &x->tables.tables[t];
    const int64_t bytes = row_file_bytes(x->file, t);
    for (int64_t first = 0; first < count; first += x->slots[t].at_once) {
        const int64_t n = min64(count - first, x->slots[t].at_once);
        if (how == FROM_FILE && row_file_fetch(x->file, t, rows + first, n, x->staging, err))
            return -1;
        for (int64_t i = 0; i < n; i++)
            if (how == TO_FILE)
                row_file_pack(x->file, t, x->staging + i * bytes, table, slot[first + i]);
            else
                row_file_unpack(x->file, t, x->staging + i * bytes, table, slot[first + i]);
        if (how == TO_FILE && row_file_store(x->file, t, rows + first, n, x->staging, err))
            return -1;
    }
    return 0;
}

/* Distinct rows of a table in a batch, ascending. */
static int64_t rows_of(const struct tier *x, int32_t t, int batch, int64_t *rows) {
    const struct row_index *index = &x->setup.index[batch];
    const int64_t first = row_index_find(index, t, 0), end = row_index_find(index, t + 1, 0);
    for (int64_t i = first; i < end; i++) rows[i - first] = index->run[i].row;
    return end - first;
}

/* Lookups of the rows that have come. */
static int64_t lookups_of(const struct tier *x, int32_t t, int batch,
                          const struct cache_move *moves, int64_t count) {
    const struct row_index *index = &x->setup.index[batch];
    int64_t at = row_index_find(index, t, 0), lookups = 0;
    for (int64_t i = 0; i < count; i++) {
        while (index->run[at].row != moves[i].row) at++;
        lookups += index->run[at + 1].first - index->run[at].first;
    }
    return lookups;
}

static int admit_table(struct tier *x, int32_t t, int batch, bool changes, double *at,
                       struct error *err) {
    struct error why;
    int64_t misses, victims = 0;
    const int64_t count = rows_of(x, t, batch, x->rows);
    if (cache_admit(x->slots[t].cache, x->rows, count, changes, x->slot, x->moves, &misses, NULL,
                    &why))
        return fail(err, "table %d, with the rows of the budget: %s", t, why.text);
    x->counts.rows += count;
    x->counts.row_misses += misses;
    x->counts.lookup_misses += lookups_of(x, t, batch, x->moves, misses);
    for (int64_t i = 0; i < misses; i++)
        if (x->moves[i].victim >= 0 && x->moves[i].dirty) {
            x->some[victims] = x->moves[i].victim;
            x->slot[victims++] = x->moves[i].slot;
        }
    lap(&x->counts.index, at);
    x->counts.written_back += victims;
    if (move_rows(x, t, TO_FILE, x->some, x->slot, victims, err)) return -1;
    lap(&x->counts.write_back, at);
    for (int64_t i = 0; i < misses; i++) {
        x->some[i] = x->moves[i].row;
        x->slot[i] = x->moves[i].slot;
    }
    if (move_rows(x, t, FROM_FILE, x->some, x->slot, misses, err)) return -1;
    lap(&x->counts.fetch, at);
    return 0;
}

/* Ids of a batch become slots; padding becomes the last row. */
static void remap(struct tier *x, int batch) {
    const struct batch *from = &x->setup.batches[batch];
    int32_t *to = (int32_t *)x->batches[batch].ids;
    for (int32_t f = 0; f < from->num_features; f++) {
        const int64_t begin = from->offsets[f * from->bags],
                      end = from->offsets[(f + 1) * from->bags];
        const struct feature *feature = &from->features[f];
        const struct slots *s = &x->slots[feature->table];
#pragma omp parallel for num_threads(x->setup.threads) schedule(static)
        for (int64_t i = begin; i < end; i++) {
            const int64_t id = batch_id(from, i);
            to[i] = id == feature->padding_id ? s->count : cache_slot(s->cache, id);
        }
    }
}

/* The rows of a batch are in slots, and its ids are theirs. */
static int admit(struct tier *x, int batch, bool changes, struct error *err) {
    double at = clock_seconds();
    for (int32_t t = 0; t < x->setup.num_tables; t++)
        if (admit_table(x, t, batch, changes, &at, err)) return -1;
    remap(x, batch);
    lap(&x->counts.remap, &at);
    x->counts.batches++;
    x->counts.lookups += x->setup.index[batch].lookups;
    return 0;
}

static void release(struct tier *x) {
    for (int32_t t = 0; t < x->setup.num_tables; t++) cache_release(x->slots[t].cache);
}

/* --- the place */

static void tier_close(struct place *p) {
    struct tier *x = tier_of(p);
    if (x->inner) x->inner->ops->close(x->inner);
    for (int b = 0; b < PLACE_RING_MAX; b++) {
        free((void *)x->batches[b].ids);
        row_index_free(&x->index[b]);
    }
    for (int32_t t = 0; x->slots && t < x->setup.num_tables; t++) cache_close(x->slots[t].cache);
    tables_free(&x->tables);
    row_file_close(x->file);
    free(x->slots);
    free(x->shapes);
    free(x->features);
    free(x->staging);
    free(x->rows);
    free(x->some);
    free(x->slot);
    free(x->moves);
    free(x);
}

static int scratch_bytes(struct place *p, const struct kernel *k, size_t *bytes,
                         struct error *err) {
    struct tier *x = tier_of(p);
    if (k->traits & DENSE_STEP)
        return fail(err,
                    "%s changes rows that no lookup touches; with tables on a disk they are not "
                    "in memory",
                    k->name);
    return x->inner->ops->scratch_bytes(x->inner, k, bytes, err);
}

static int scratch_fill(struct place *p, struct place_scratch *s, int byte, struct error *err) {
    struct place *inner = tier_of(p)->inner;
    return inner->ops->scratch_fill(inner, s, byte, err);
}

static bool changes_rows(const struct place_job *job) {
    return job->kernel->operation == OP_STEP;
}

static int run(struct place *p, const struct place_job *job, struct error *err) {
    struct tier *x = tier_of(p);
    if (admit(x, job->batch, changes_rows(job), err)) return -1;
    const int status = x->inner->ops->run(x->inner, job, err);
    release(x);
    return status;
}

/* Slots, not rows, are what a plan sorts: so it runs with its step. */
static int no_plan(struct place *p, const struct place_job *job, struct error *err) {
    (void)p;
    return fail(err, "%s: with tables on a disk it plans within a run", job->kernel->name);
}

static int parts(struct place *p, const struct place_job *job, struct step_parts *out,
                 struct error *err) {
    struct tier *x = tier_of(p);
    if (admit(x, job->batch, changes_rows(job), err)) return -1;
    const int status = x->inner->ops->parts(x->inner, job, out, err);
    release(x);
    return status;
}

static int flush(struct place *p, struct error *err) {
    struct place *inner = tier_of(p)->inner;
    return inner->ops->flush(inner, err);
}

static int time_step(struct place *p, const struct place_job *job, bool cold,
                     struct step_times *out, struct error *err) {
    struct tier *x = tier_of(p);
    if (cold && flush(p, err)) return -1;
    const double begin = clock_seconds();
    if (admit(x, job->batch, changes_rows(job), err)) return -1;
    const double before = clock_seconds() - begin;
    const int status = x->inner->ops->time(x->inner, job, false, out, err);
    out->seconds += before;
    release(x);
    return status;
}

static int ceilings(struct place *p, struct ceiling *out, struct error *err) {
    struct place *inner = tier_of(p)->inner;
    return inner->ops->ceilings(inner, out, err);
}

/* Rows that are in slots go there, the others to the file. */
static int put_rows(struct tier *x, int32_t t, int64_t begin, int64_t end, const struct table *rows,
                    struct error *err) {
    for (int64_t r = begin; r < end; r++) {
        const int32_t slot = cache_slot(x->slots[t].cache, r);
        row_file_pack(x->file, t, x->staging, rows, r - begin);
        if (slot >= 0) {
            row_file_unpack(x->file, t, x->staging, &x->tables.tables[t], slot);
            cache_change(x->slots[t].cache, slot);
        } else if (row_file_store(x->file, t, &r, 1, x->staging, err))
            return -1;
    }
    return 0;
}

/* Initial values of rows that follow one another. */
static int restore_rows(struct tier *x, int32_t t, int64_t begin, int64_t end, struct error *err) {
    struct table_shape shape = x->setup.shapes[t];
    struct table_set rows;
    shape.part.table += t;
    shape.part.row = part_row(&shape.part, begin);
    shape.rows = end - begin;
    if (tables_create(&rows, &shape, 1, x->setup.seed, err)) return -1;
    const int status = put_rows(x, t, begin, end, &rows.tables[0], err);
    tables_free(&rows);
    return status;
}

static int restore(struct place *p, int batch, struct error *err) {
    enum { AT_ONCE = 4096 };
    struct tier *x = tier_of(p);
    for (int32_t t = 0; t < x->setup.num_tables; t++) {
        const int64_t all = x->setup.shapes[t].rows;
        for (int64_t r = 0; batch < 0 && r < all; r += AT_ONCE)
            if (restore_rows(x, t, r, min64(all, r + AT_ONCE), err)) return -1;
        const int64_t count = batch < 0 ? 0 : rows_of(x, t, batch, x->rows);
        for (int64_t i = 0, end; i < count; i = end) {
            for (end = i + 1; end < count && x->rows[end] == x->rows[end - 1] + 1; end++) continue;
            if (restore_rows(x, t, x->rows[i], x->rows[end - 1] + 1, err)) return -1;
        }
    }
    return 0;
}

static int get_rows(struct place *p, int32_t t, int64_t begin, int64_t end, struct table *rows,
                    struct error *err) {
    struct tier *x = tier_of(p);
    for (int64_t r = begin; r < end; r++) {
        const int32_t slot = cache_slot(x->slots[t].cache, r);
        if (slot >= 0)
            row_file_pack(x->file, t, x->staging, &x->tables.tables[t], slot);
        else if (row_file_fetch(x->file, t, &r, 1, x->staging, err))
            return -1;
        row_file_unpack(x->file, t, x->staging, rows, r - begin);
    }
    return 0;
}

static int intact(struct place *p, int batch, const struct place_scratch *s, struct error *err) {
    struct tier *x = tier_of(p);
    (void)batch;
    if (!buffer_intact(&s->host)) return fail(err, "wrote outside of its scratch"), 1;
    if (!tables_intact(&x->tables)) return fail(err, "wrote outside of the tables"), 1;
    return 0;
}

static const struct place_ops tier_ops = {.close = tier_close,
                                          .scratch_bytes = scratch_bytes,
                                          .scratch_open = place_scratch_open,
                                          .scratch_close = place_scratch_close,
                                          .scratch_fill = scratch_fill,
                                          .scratch_get = place_scratch_get,
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
    if (s->weight_grad) return "gradients of per-sample weights";
    for (int32_t t = 0; t < s->num_tables; t++)
        if (s->shapes[t].rounding == ROUND_STOCHASTIC) return "stochastic rounding";
    return NULL;
}

/* All batches to come, as far as they are known: the ring in turn. Rows by how many of its batches touch them. */
static struct cache *open_cache(struct tier *x, const struct tier_options *o, int32_t t,
                                int32_t slots, struct error *err) {
    const int64_t rows = x->setup.shapes[t].rows, runs = max64(1, o->belady_runs);
    const int ring = x->setup.ring;
    struct cache_setup s = {.rows = rows, .slots = slots, .policy = o->policy};
    int64_t *first = must_have(calloc((size_t)(runs + 1), sizeof *first)),
            *count = must_have(calloc((size_t)rows, sizeof *count)),
            *hottest = must_have(calloc((size_t)rows, sizeof *hottest)), *all = NULL;
    for (int64_t b = 0; b < runs; b++) {
        const int64_t more = rows_of(x, t, (int)(b % ring), x->rows);
        if (o->policy != POLICY_BELADY && b >= ring) break;
        for (int64_t i = 0; i < more; i++) count[x->rows[i]]++;
        all = must_have(realloc(all, (size_t)(first[b] + more + 1) * sizeof *all));
        memcpy(all + first[b], x->rows, (size_t)more * sizeof *all);
        first[b + 1] = first[b] + more;
    }
    /* A counting sort: those of many batches first, then by number. */
    int64_t at = 0;
    for (int64_t n = runs; n >= 0; n--)
        for (int64_t r = 0; o->policy == POLICY_STATIC && r < rows; r++)
            if (count[r] == n) hottest[at++] = r;
    s.hottest = hottest;
    s.first = first;
    s.batch_rows = all;
    s.num_batches = runs;
    struct cache *c = cache_open(&s, err);
    free(first);
    free(count);
    free(hottest);
    free(all);
    return c;
}

static int open_slots(struct tier *x, const struct tier_options *o, struct error *err) {
    const struct place_setup *s = &x->setup;
    int64_t first_row = 0, staging = ALIGN;
    for (int32_t t = 0; t < s->num_tables; t++) {
        struct slots *own = &x->slots[t];
        const int64_t rows = s->shapes[t].rows;
        own->count = (int32_t)max64(1, min64(rows, (int64_t)(o->budget * (double)rows)));
        own->at_once = max64(1, STAGING / row_file_bytes(x->file, t));
        staging = max64(staging, own->at_once * row_file_bytes(x->file, t));
        own->cache = open_cache(x, o, t, own->count, err);
        if (!own->cache) return -1;
        x->shapes[t] = s->shapes[t];
        x->shapes[t].rows = own->count + 1;
        x->shapes[t].first_row = first_row;
        x->shapes[t].part = (struct table_part){0};
        first_row += x->shapes[t].rows;
    }
    x->staging = must_have(aligned_alloc(ALIGN, (size_t)((staging + ALIGN - 1) / ALIGN * ALIGN)));
    return tables_create(&x->tables, x->shapes, s->num_tables, 0, err);
}

static int open_inner(struct tier *x, struct error *err) {
    struct place_setup inner = x->setup;
    const struct batch *like = &x->setup.batches[0];
    x->features = must_have(calloc((size_t)like->num_features, sizeof *x->features));
    for (int32_t f = 0; f < like->num_features; f++) {
        x->features[f] = like->features[f];
        if (x->features[f].padding_id >= 0)
            x->features[f].padding_id = x->slots[x->features[f].table].count;
    }
    for (int b = 0; b < inner.ring; b++) {
        struct batch *own = &x->batches[b];
        *own = x->setup.batches[b];
        own->tables = x->shapes;
        own->features = x->features;
        own->id_type = ID_INT32;
        own->ids = must_have(calloc((size_t)own->lookups + 1, sizeof(int32_t)));
        x->index[b] = row_index_build(own);
    }
    inner.shapes = x->shapes;
    inner.batches = x->batches;
    inner.index = x->index;
    inner.tables = &x->tables;
    x->inner = place_host_open(&inner, err);
    return x->inner ? 0 : -1;
}

struct place *place_tier_open(const struct tier_options *o, const struct place_setup *setup,
                              struct error *err) {
    const char *why = refuses(setup);
    if (why) return fail(err, "with tables on a disk there are no %s", why), NULL;
    if (!(o->budget > 0 && o->budget <= 1))
        return fail(err, "budget %g: a share of the rows, above 0 and up to 1", o->budget), NULL;
    struct tier *x = must_have(calloc(1, sizeof *x));
    const struct row_file_setup file = {.directory = o->directory,
                                        .shapes = setup->shapes,
                                        .num_tables = setup->num_tables,
                                        .seed = setup->seed,
                                        .depth = o->depth,
                                        .direct = o->direct};
    x->place.ops = &tier_ops;
    x->setup = *setup;
    int64_t most = 1;
    for (int b = 0; b < setup->ring; b++) most = max64(most, setup->index[b].rows);
    for (int32_t t = 0; t < setup->num_tables; t++)
        most = max64(most, (int64_t)(o->budget * (double)setup->shapes[t].rows) + 1);
    const size_t count = (size_t)setup->num_tables;
    x->slots = must_have(calloc(count, sizeof *x->slots));
    x->shapes = must_have(calloc(count, sizeof *x->shapes));
    x->rows = must_have(calloc((size_t)most, sizeof *x->rows));
    x->some = must_have(calloc((size_t)most, sizeof *x->some));
    x->slot = must_have(calloc((size_t)most, sizeof *x->slot));
    x->moves = must_have(calloc((size_t)most, sizeof *x->moves));
    x->file = row_file_open(&file, err);
    if (x->file && open_slots(x, o, err) == 0 && open_inner(x, err) == 0) return &x->place;
    tier_close(&x->place);
    return NULL;
}

/* --- commits and counts */

struct flushing {
    struct tier *x;
    int64_t count;
};

static void take_changed(void *ctx, int64_t row, int32_t slot) {
    struct flushing *f = ctx;
    f->x->some[f->count] = row;
    f->x->slot[f->count++] = slot;
}

int tier_commit(struct place *p, uint64_t mark, struct error *err) {
    struct tier *x = tier_of(p);
    for (int32_t t = 0; t < x->setup.num_tables; t++) {
        struct flushing f = {x, 0};
        cache_flush(x->slots[t].cache, take_changed, &f);
        if (move_rows(x, t, TO_FILE, x->some, x->slot, f.count, err)) return -1;
        x->counts.written_back += f.count;
    }
    return row_file_commit(x->file, mark, err);
}

struct tier_counts tier_counts(const struct place *p) {
    const struct tier *x = (const struct tier *)p;
    struct tier_counts c = x->counts;
    c.file = row_file_counts(x->file);
    return c;
}

int64_t tier_bytes(const struct place *p) {
    const struct tier *x = (const struct tier *)p;
    int64_t bytes = x->tables.bytes + STAGING;
    for (int32_t t = 0; t < x->setup.num_tables; t++)
        bytes += cache_bytes(x->slots[t].cache) + row_file_memory(x->file, t);
    return bytes;
}
