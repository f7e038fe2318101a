/* SPDX-License-Identifier: MIT
 *
 * Sharded tables in files: what n ranks save, m ranks of another sharding and one process load, and go on with the
 * same bits as a training that nobody interrupted. A rank whose writes fail, or that dies, leaves the states that were
 * there; nothing is renamed before all ranks have written and synced. Threads are the ranks; calls that write files are
 * wrapped.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/measure/runner.h"
#include "kernels/rules.h"
#include "lib/model.h"
#include "ranks/place_ranks.h"
#include "tests/ranks_case.h"
#include "tests/state_case.h"

#include "tests/kernel_tests.h"

enum { TABLES = 3, SEED = 21 };

/* --- wrapped calls */

static _Thread_local struct transport *me;

static struct {
    atomic_int writes, unsynced; /* calls; files with writes that nobody has synced */
    atomic_int early;            /* renames while some were unsynced or on their way */
    int fail_at, error;          /* number of a write; 0: none */
    int dies, slow; /* a rank that dies at that write, one that takes its time; -1: none */
    _Atomic uint64_t dirty[4]; /* file descriptors */
} files;

static void calm(void) {
    memset(&files, 0, sizeof files);
    files.dies = files.slow = -1;
}

ssize_t __real_pwrite(int fd, const void *bytes, size_t size, off_t at);
int __real_renameat(int from, const char *a, int to, const char *b);
ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t at);
int __wrap_renameat(int from, const char *a, int to, const char *b);
int __wrap_fsync(int fd);

ssize_t __wrap_pwrite(int fd, const void *bytes, size_t size, off_t at) {
    const int number = atomic_fetch_add(&files.writes, 1) + 1;
    const uint64_t bit = 1ull << fd % 64;
    if (fd >= 256) abort();
    if (!(atomic_fetch_or(&files.dirty[fd / 64], bit) & bit)) atomic_fetch_add(&files.unsynced, 1);
    if (me && me->rank == files.slow) usleep(2000);
    const bool dies = me && me->rank == files.dies;
    if (dies) me->ops->abort(me, 1);
    errno = dies ? EIO : files.error;
    return dies || number == files.fail_at ? -1 : __real_pwrite(fd, bytes, size, at);
}

int __wrap_fsync(int fd) {
    const uint64_t bit = 1ull << fd % 64;
    if (fd < 256 && atomic_fetch_and(&files.dirty[fd / 64], ~bit) & bit)
        atomic_fetch_sub(&files.unsynced, 1);
    return 0; /* no test cuts the power */
}

int __wrap_renameat(int from, const char *a, int to, const char *b) {
    if (files.unsynced) atomic_fetch_add(&files.early, 1);
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
    const char *load, *save; /* directories, or NULL */
    struct builder *b;
    struct table_set *out; /* the tables afterwards; NULL: nobody asks */
    struct embfuse_loaded loaded;
    bool memory;
    char wrong[600];
};

/* Those of a new table, where table t has taken t steps, or of the state. */
static void begin(const struct builder *b, const struct checkpoint *c, int64_t taken[TABLES],
                  struct rule rules[TABLES]) {
    for (int t = 0; t < TABLES; t++) {
        rules[t] = c ? c->state.tables[t].rule : b->rules[t];
        taken[t] = c ? c->state.tables[t].steps : t;
    }
}

static int train(struct run *x, struct place *p, struct error *err) {
    struct rule rules[TABLES];
    struct rule_step steps[TABLES];
    struct place_scratch none = {0};
    const struct checkpoint *c = ranks_loaded(p);
    const struct place_job job = {
        .kernel = registry_find(OP_STEP, kernel_of(x->b), err), .steps = steps, .scratch = &none};
    int64_t taken[TABLES], number;
    int status = 0;
    begin(x->b, c, taken, rules);
    if (c) x->loaded = c->loaded;
    for (int n = 0; n < x->steps && status == 0; n++) {
        for (int t = 0; t < TABLES; t++) steps[t] = rule_step(rules[t], ++taken[t]);
        status = p->ops->run(p, &job, err);
    }
    if (status == 0 && x->save) status = ranks_save(p, x->save, rules, taken, SEED, &number, err);
    return status || !x->out ? status : place_get_tables(p, x->out, err);
}

static int live(struct transport *t, void *ctx) {
    struct run *x = ctx;
    struct error err = {""};
    me = t;
    if (t->rank) return ranks_follow(t, &err);
    const struct builder *b = x->b;
    const struct ranks_options options = {.sharding = x->sharding, .load = x->load};
    const struct place_setup setup = {.shapes = b->in.tables,
                                      .num_tables = TABLES,
                                      .batches = &b->in,
                                      .index = &b->index,
                                      .ring = 1,
                                      .threads = 1,
                                      .seed = SEED};
    struct place *p = place_ranks_open(t, &options, ON_HOST, &setup, &err);
    int status = p ? train(x, p, &err) : -1;
    if (status) snprintf(x->wrong, sizeof x->wrong, "%s", err.text);
    x->memory = status && err.memory;
    if (p) p->ops->close(p);
    return ranks_dismiss(t, &err) || status ? -1 : 0;
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
                                        .bags = b->in.bags,
                                        .lookups = b->in.lookups,
                                        .ids = b->in.ids,
                                        .offsets = b->in.offsets,
                                        .lookup_weights = b->in.lookup_weights,
                                        .id_type = b->in.id_type == ID_INT32 ? EMBFUSE_INT32
                                                                             : EMBFUSE_INT64};
    struct embfuse_error why;
    must(embfuse_step(s->model, &batch, b->in.grad, &why), &why);
}

static void single_load(struct single *s, const struct builder *b, const struct work_path *from,
                        int64_t number) {
    struct embfuse_loaded loaded = {.size = sizeof loaded};
    struct embfuse_error why;
    for (int t = 0; t < TABLES; t++) { /* what is loaded must replace this */
        s->model->rules[t] = rule_default(b->rules[t].kind);
        s->model->steps[t].number = 99;
    }
    set_rounding_seed(s->model, 1);
    must(embfuse_load(s->model, from->text, &loaded, &why), &why);
    assert_int_equal(loaded.number, number);
    assert_int_equal(loaded.passed_over, 0);
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

/* --- save on n, load on m */

struct kind {
    const char *name;
    enum rule_kind rule;
    enum dtype weight, momentum;
    enum rounding rounding;
    enum row_state row_state;
    bool exact;
};
static const struct kind kinds[] = {
    {"adam, bf16, stochastic", RULE_adam, BF16, BF16, ROUND_STOCHASTIC, ROW_STATE_APART, false},
    {"counters of rows beside them", RULE_rowwise_adagrad_counter, FP32, FP32, ROUND_NEAREST,
     ROW_STATE_BESIDE, false},
    {"adam with a row's own state, fp16", RULE_adam_row_bias, FP16, FP32, ROUND_STOCHASTIC,
     ROW_STATE_BESIDE, true},
    {"adagrad by columns", RULE_adagrad, BF16, FP32, ROUND_NEAREST, ROW_STATE_APART, true},
};

static const struct run saved_by[] = {{.sharding = "table", .ranks = 1, .nodes = 1},
                                      {.sharding = "row-modulo", .ranks = 2, .nodes = 1},
                                      {.sharding = "row,data,table", .ranks = 3, .nodes = 1},
                                      {.sharding = "column", .ranks = 2, .nodes = 1},
                                      {.sharding = "data-dense", .ranks = 3, .nodes = 1},
                                      {.sharding = "row", .ranks = 3, .nodes = 1}};
static const struct run loaded_by[] = {
    {.sharding = "row", .ranks = 1, .nodes = 1},
    {.sharding = "table-row", .ranks = 2, .nodes = 2},
    {.sharding = "data", .ranks = 3, .nodes = 1},
    {.sharding = "row-modulo", .ranks = 5, .nodes = 1},
    {.sharding = "table", .ranks = 3, .nodes = 1},
    {.sharding = "column", .ranks = 5, .nodes = 1},
    {.sharding = "table-row", .ranks = 4, .nodes = 2},
    {.sharding = "row,data-dense,column", .ranks = 3, .nodes = 1}};

static void open_case(struct builder *b, const struct kind *k) {
    builder_begin(b, SEED, k->exact);
    ranks_case(b, 47, POOL_SUM, 5, 2);
    builder_storage(b, registry_find(OP_STEP, "cpu_fused", &(struct error){""}), 0);
    b->in.grad_type = FP32;
    for (int32_t t = 0; t < TABLES; t++) {
        builder_rule(b, t, k->rule);
        b->shapes[t].weight_type = k->weight;
        b->shapes[t].momentum_type = k->momentum;
        b->shapes[t].rounding = k->rounding;
        b->shapes[t].row_state = k->row_state;
    }
    builder_pack(b);
}

/* Does the kind of table allow this cut, with the same bits? */
static bool takes(const struct kind *k, const struct run *r) {
    if (strstr(r->sharding, "column") && k->rule != RULE_adagrad) return false;
    return k->exact || !strstr(r->sharding, "dense");
}

/* Save after a step; load elsewhere, take another step, and save again. */
static void resumes(struct builder *b, const struct single *after1, const struct single *after2,
                    struct run from, struct run to) {
    struct single loaded;
    struct error err;
    struct table_set out;
    char what[120];
    const struct work_path folder = state_no_folder("ranks");
    snprintf(what, sizeof what, "%s on %d ranks, then %s on %d", from.sharding, from.ranks,
             to.sharding, to.ranks);
    calm();
    single_open(&loaded, b);
    if (tables_create(&out, b->in.tables, TABLES, 1, &err)) fail_msg("%s", err.text);
    from.b = to.b = b;
    from.save = to.load = to.save = folder.text;
    from.steps = to.steps = 1;
    to.out = &out;
    must_run(&from);
    single_load(&loaded, b, &folder, 1);
    expect_single(after1, &loaded, what);
    must_run(&to);
    assert_int_equal(to.loaded.number, 1);
    expect_rows(&after2->tables, &out, what);
    single_load(&loaded, b, &folder, 2);
    expect_single(after2, &loaded, what);
    assert_true(files.writes > 0 && files.early == 0 && files.unsynced == 0);
    tables_free(&out);
    single_close(&loaded);
}

static void any_ranks(void **state) {
    const struct kind *k = ((const struct kernel_test *)*state)->param;
    struct builder b;
    struct single after1, after2;
    int pairs = 0;
    open_case(&b, k);
    single_open(&after1, &b);
    single_open(&after2, &b);
    single_step(&after1, &b);
    single_step(&after2, &b);
    single_step(&after2, &b);
    for (size_t i = 0; i < sizeof saved_by / sizeof *saved_by; i++)
        for (size_t j = 0; j < sizeof loaded_by / sizeof *loaded_by; j++)
            if ((i + j + (size_t)(k - kinds)) % 2 == 0 && takes(k, &saved_by[i]) &&
                takes(k, &loaded_by[j])) {
                resumes(&b, &after1, &after2, saved_by[i], loaded_by[j]);
                pairs++;
            }
    assert_true(pairs >= 12); /* other pairs with other kinds */
    single_close(&after1);
    single_close(&after2);
    builder_free(&b);
}

/* Ranks load what one process saved. */
static void from_one_process(void **state) {
    (void)state;
    struct builder b;
    struct single s;
    struct table_set out;
    struct embfuse_error why;
    struct error err;
    const struct work_path folder = state_no_folder("ranks");
    calm();
    open_case(&b, &kinds[0]);
    single_open(&s, &b);
    single_step(&s, &b);
    must(embfuse_save(s.model, folder.text, &why), &why);
    if (tables_create(&out, b.in.tables, TABLES, 1, &err)) fail_msg("%s", err.text);
    struct run to = {.sharding = "row-modulo",
                     .ranks = 3,
                     .nodes = 1,
                     .steps = 1,
                     .load = folder.text,
                     .b = &b,
                     .out = &out};
    must_run(&to);
    single_step(&s, &b);
    expect_rows(&s.tables, &out, "one process, then three ranks");
    tables_free(&out);
    single_close(&s);
    builder_free(&b);
}

/* --- what goes wrong */

struct broken {
    struct builder b;
    struct single before; /* state 1 */
    struct work_path folder;
    struct run save, load;
};

static void broken_begin(struct broken *x) {
    *x = (struct broken){.folder = state_no_folder("ranks")};
    calm();
    open_case(&x->b, &kinds[0]);
    single_open(&x->before, &x->b);
    x->save = x->load = (struct run){.sharding = "row", .ranks = 3, .nodes = 1, .b = &x->b};
    x->save.save = x->load.load = x->folder.text;
    must_run(&x->save);
    x->save.steps = 1;
}

static void broken_end(struct broken *x) {
    single_close(&x->before);
    builder_free(&x->b);
}

static int entries(const char *path) {
    DIR *folder = opendir(path);
    int count = -2;
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

static void expect_first_state(struct broken *x, const char *what) {
    struct single loaded;
    if (files.early) fail_msg("%s: a rename before all was synced", what);
    calm();
    single_open(&loaded, &x->b);
    single_load(&loaded, &x->b, &x->folder, 1);
    expect_single(&x->before, &loaded, what);
    single_close(&loaded);
    if (entries(x->folder.text) != 1) fail_msg("%s: more than state 1 is left", what);
}

static void expect_said(const struct run *r, int status, const char *const said[3]) {
    for (int i = 0; i < 3 && said[i]; i++)
        if (status == 0 || !strstr(r->wrong, said[i]))
            fail_msg("status %d: '%s', wanted '%s'", status, r->wrong, said[i]);
}

/* Every write of every rank. */
static void full_disk(void **state) {
    (void)state;
    struct broken x;
    char what[40];
    broken_begin(&x);
    for (int at = 1;; at++) {
        calm();
        files.fail_at = at;
        files.error = ENOSPC;
        const int status = runs(&x.save);
        snprintf(what, sizeof what, "write %d", at);
        if (files.writes < at) break;
        expect_said(&x.save, status,
                    (const char *[3]){"No space left on device; nothing was saved"});
        if (!strstr(x.save.wrong, "manifest"))
            expect_said(&x.save, status, (const char *[3]){"rank ", ", saving: "});
        expect_first_state(&x, what);
        assert_true(at < 200);
    }
    broken_end(&x);
}

static void a_rank_dies(void **state) {
    (void)state;
    struct broken x;
    broken_begin(&x);
    for (int rank = 0; rank < 3; rank++) {
        calm();
        files.dies = rank;
        assert_int_not_equal(runs(&x.save), 0);
        expect_first_state(&x, "a dead rank");
    }
    broken_end(&x);
}

/* Nothing is renamed while a slow rank still writes. */
static void a_slow_rank(void **state) {
    (void)state;
    struct broken x;
    struct single loaded;
    broken_begin(&x);
    single_step(&x.before, &x.b);
    single_open(&loaded, &x.b);
    for (int rank = 0; rank < 3; rank++) {
        calm();
        files.slow = rank;
        must_run(&x.save);
        assert_int_equal(files.early, 0);
        single_load(&loaded, &x.b, &x.folder, rank + 2);
        expect_single(&x.before, &loaded, "a slow rank");
    }
    single_close(&loaded);
    broken_end(&x);
}

/* A flipped bit: the state before is loaded, and the line names the file. Then there is none. */
static void damage(void **state) {
    (void)state;
    struct broken x;
    char path[PATH_MAX + 60];
    size_t size;
    broken_begin(&x);
    must_run(&x.save);
    for (int number = 2; number >= 1; number--) {
        snprintf(path, sizeof path, "%s/state-%08d/state.1.1.npy", x.folder.text, number);
        unsigned char *bytes = state_contents(path, &size);
        bytes[size - 1] ^= 1;
        assert_int_equal(work_write(path, bytes, size), 0);
        free(bytes);
        const int status = runs(&x.load);
        if (number == 1) {
            expect_said(&x.load, status,
                        (const char *[3]){"state-00000002/state.1.1.npy: damaged: its checksum",
                                          "no other state there is whole"});
            break;
        }
        must(status, &(struct embfuse_error){"the older state"});
        assert_int_equal(x.load.loaded.number, 1);
        assert_int_equal(x.load.loaded.passed_over, 1);
        assert_non_null(strstr(x.load.loaded.damage, "state.1.1.npy: damaged"));
    }
    broken_end(&x);
}

static void refused(void **state) {
    (void)state;
    struct broken x;
    broken_begin(&x);
    x.b.shapes[1].rule = RULE_adagrad;
    expect_said(&x.load, runs(&x.load),
                (const char *[3]){"state-00000001: table 1 has rule adam, but the model's has "
                                  "adagrad"});
    x.b.shapes[1].rule = RULE_adam;
    const struct work_path none = state_no_folder("ranks_none"), empty = state_folder("ranks_none");
    x.load.load = empty.text;
    expect_said(&x.load, runs(&x.load), (const char *[3]){"no saved state"});
    rmdir(none.text);
    expect_said(
        &x.load, runs(&x.load),
        (const char *[3]){"rank 0, verifying a saved state: ", "cannot open: No such file"});
    assert_false(x.load.memory);
    broken_end(&x);
}

int main(void) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        add_test(kinds[i].name, any_ranks, NULL, &kinds[i]);
    add_test("from one process", from_one_process, NULL, NULL);
    add_test("a full disk", full_disk, NULL, NULL);
    add_test("a rank dies", a_rank_dies, NULL, NULL);
    add_test("a slow rank", a_slow_rank, NULL, NULL);
    add_test("damage", damage, NULL, NULL);
    add_test("refused", refused, NULL, NULL);
    return run_listed("checkpoints of ranks");
}
