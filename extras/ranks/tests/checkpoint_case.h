/* SPDX-License-Identifier: MIT
 *
 * Trainings of the test of checkpoints, on ranks that are threads and in one process, and wrapped
 * calls that write files: one fails, or its rank dies before it.
 */
#pragma once

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "kernels/rng.h"
#include "kernels/rules.h"
#include "extras/library/model.h"
#include "extras/library/tests/state_case.h"
#include "extras/ranks/tests/ranks_case.h"

#include "tests/support/kernel_tests.h"

enum { TABLES = 3, SEED = 21 };

/* --- wrapped calls */

static _Thread_local struct transport *me;

static struct {
    atomic_int writes;      /* calls */
    int fail_at;            /* number of a write; 0: none */
    bool dies;              /* the rank of that write */
    atomic_bool dirty[256]; /* of a descriptor: written, and nobody has synced it */
    atomic_bool early;      /* a rename while one was */
} files;

ssize_t __real_pwrite(int fd, const void *bytes, size_t size, off_t at);
int __real_renameat(int from, const char *a, int to, const char *b);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t at);
int __wrap_renameat(int from, const char *a, int to, const char *b);
int __wrap_fsync(int fd);

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t at) {
    const int number = atomic_fetch_add(&files.writes, 1) + 1;
    if (fd >= 256) abort();
    files.dirty[fd] = true;
    if (number != files.fail_at) return __real_pwrite(fd, bytes, size, at);
    if (files.dies && me) me->ops->abort(me, 1);
    errno = ENOSPC;
    return -1;
}

int __wrap_fsync(int fd) {
    if (fd < 256) files.dirty[fd] = false;
    return 0; /* no test cuts the power */
}

int __wrap_renameat(int from, const char *a, int to, const char *b) {
    for (int fd = 0; fd < 256; fd++)
        if (files.dirty[fd]) files.early = true;
    return __real_renameat(from, a, to, b);
}

/* --- a training on ranks */

/* Both give the same bits on any number of ranks; cpu_fused cuts the sums of hot rows. */
static const char *kernel_of(const struct builder *b) {
    return b->sums_exact ? "cpu_fused" : "cpu_sort";
}

struct run {
    const char *sharding;
    int ranks, nodes, steps;
    const char *load, *save; /* files, or NULL */
    struct builder *b;
    struct table_set *out; /* the tables afterwards; NULL: nobody asks */
    char wrong[600];
};

static int train(struct run *x, struct place *p, struct error *err) {
    struct rule rules[TABLES];
    struct rule_step steps[TABLES];
    struct place_scratch none = {0};
    const struct checkpoint *c = ranks_loaded(p);
    const struct place_job job = {
        .kernel = registry_find(OP_STEP, kernel_of(x->b), err), .steps = steps, .scratch = &none};
    int64_t taken[TABLES];
    int status = 0;
    for (int t = 0; t < TABLES; t++) { /* a new table t has taken t steps */
        rules[t] = c ? c->state.tables[t].rule : x->b->rules[t];
        taken[t] = c ? c->state.tables[t].steps : t;
    }
    for (int n = 0; n < x->steps && status == 0; n++) {
        for (int t = 0; t < TABLES; t++) steps[t] = rule_step(rules[t], ++taken[t]);
        status = p->ops->run(p, &job, err);
    }
    if (status == 0 && x->save) status = ranks_save(p, x->save, rules, taken, SEED, err);
    return status || !x->out ? status : place_get_tables(p, x->out, err);
}

static int lead(void *ctx, struct transport *t, struct error *err) {
    struct run *x = ctx;
    const struct ranks_options options = {.sharding = x->sharding, .load = x->load};
    struct place_setup setup = ranks_setup(x->b);
    setup.seed = SEED;
    struct place *p = place_ranks_open(t, &options, ON_HOST, &setup, err);
    const int status = p ? train(x, p, err) : -1;
    if (p) p->ops->close(p);
    return status;
}

static int live(struct transport *t, void *ctx) {
    struct run *x = ctx;
    me = t;
    return ranks_live(t, lead, x, x->wrong, sizeof x->wrong);
}

static int runs(struct run *x) {
    x->wrong[0] = '\0';
    return transport_threads(x->ranks, x->nodes, 7, live, x);
}

static void must_run(struct run *x) {
    if (runs(x)) fail_msg("%s on %d ranks: %s", x->sharding, x->ranks, x->wrong);
}

/* --- one process */

struct single {
    struct table_shape shapes[TABLES];
    struct table_set tables;
    struct embfuse_model *model;
};

static void must(int status, const struct embfuse_error *why) {
    if (status) fail_msg("%s", why->text);
}

/* A model of the same tables with their initial values; rows' own states lie apart. */
static void single_open(struct single *s, const struct builder *b) {
    struct embfuse_table tables[TABLES];
    struct embfuse_feature features[8];
    const struct embfuse_options options = {
        .size = sizeof options, .kernel = kernel_of(b), .threads = 1, .rounding_seed = SEED};
    struct embfuse_error why;
    struct error err;
    memcpy(s->shapes, b->in.tables, sizeof s->shapes);
    for (int t = 0; t < TABLES; t++) {
        const struct table_shape *x = &s->shapes[t];
        s->shapes[t].row_state = ROW_STATE_APART;
        tables[t] = (struct embfuse_table){.rows = x->rows,
                                           .dim = x->dim,
                                           .weight_type = (int32_t)x->weight_type,
                                           .momentum_type = (int32_t)x->momentum_type,
                                           .rounding = (int32_t)x->rounding,
                                           .rule = rule_info_of(x->rule)->name};
    }
    for (int32_t f = 0; f < b->in.num_features; f++) {
        const struct feature *x = &b->in.features[f];
        features[f] = (struct embfuse_feature){.table = x->table,
                                               .pooling = (int32_t)x->pooling,
                                               .has_padding = x->padding_id >= 0,
                                               .padding_id = x->padding_id,
                                               .grad_offset = x->grad_offset,
                                               .grad_stride = x->grad_stride};
    }
    must(embfuse_model_create(&s->model, tables, TABLES, features, b->in.num_features, &options,
                              &why),
         &why);
    if (tables_create(&s->tables, s->shapes, TABLES, SEED, &err)) fail_msg("%s", err.text);
    for (int32_t t = 0; t < TABLES; t++) {
        for (int32_t i = 0, a = 0; a < TABLE_ARRAYS; a++) {
            const struct array *x = &s->tables.tables[t].array[a];
            if (x->data) must(embfuse_bind(s->model, t, i++, x->data, x->stride, &why), &why);
        }
        s->model->rules[t] = b->rules[t];
        s->model->shapes[t].adjusts = rule_adjusts(&b->rules[t]);
        must(embfuse_set_steps(s->model, t, t, &why), &why);
    }
}

static void single_close(struct single *s) {
    embfuse_model_free(s->model);
    tables_free(&s->tables);
}

static void single_step(struct single *s, const struct builder *b) {
    const struct embfuse_batch batch = {.size = sizeof batch,
                                        .bags = b->in.features[0].bags,
                                        .lookups = b->in.lookups,
                                        .ids = b->in.ids,
                                        .offsets = b->in.offsets,
                                        .lookup_weights = b->in.lookup_weights,
                                        .id_type = b->in.id_type == ID_INT32 ? EMBFUSE_INT32
                                                                             : EMBFUSE_INT64};
    struct embfuse_error why;
    must(embfuse_step(s->model, &batch, b->in.grad, &why), &why);
}

static void single_load(struct single *s, const struct builder *b, const struct work_path *from) {
    struct embfuse_error why;
    for (int t = 0; t < TABLES; t++) { /* what is loaded must replace this */
        s->model->rules[t] = rule_default(b->rules[t].kind);
        s->model->steps[t].number = 99;
    }
    set_rounding_seed(s->model, 1);
    must(embfuse_load(s->model, from->text, &why), &why);
}

/* Both have the same bits in every row of every array. */
static void expect_rows(const struct table_set *a, const struct table_set *b, const char *what) {
    for (int t = 0; t < TABLES; t++)
        for (int k = 0; k < TABLE_ARRAYS; k++) {
            const struct table_shape *x = &a->shapes[t];
            const size_t bytes =
                (size_t)(table_array_width(x, k) * dtype_bytes(table_array_type(x, k)));
            for (int64_t row = 0; bytes && row < x->rows; row++)
                if (memcmp(array_row(&a->tables[t].array[k], row),
                           array_row(&b->tables[t].array[k], row), bytes))
                    fail_msg("%s: table %d, array %d, row %d has other bits", what, t, k, (int)row);
        }
}

static void expect_single(const struct single *a, const struct single *b, const char *what) {
    expect_rows(&a->tables, &b->tables, what);
    for (int t = 0; t < TABLES; t++)
        if (a->model->steps[t].number != b->model->steps[t].number ||
            memcmp(&a->model->rules[t], &b->model->rules[t], sizeof b->model->rules[t]))
            fail_msg("%s: table %d has other steps or hyper-parameters", what, t);
    assert_int_equal(a->model->rounding_seed, b->model->rounding_seed);
}
