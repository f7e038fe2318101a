/* SPDX-License-Identifier: MIT
 *
 * Sharded tables in files: what n ranks save, m ranks of another sharding and one process load, and
 * go on with the same bits as a training that nobody interrupted. A write that fails, or a rank that
 * dies before it, leaves the file that was there; nothing is renamed before all is written and
 * synced. Threads are the ranks; calls that write files are
 * wrapped.
 */
#define _GNU_SOURCE
#include "extras/ranks/tests/checkpoint_case.h"

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

/* Each saves for two others. */
static const struct run ways[] = {{.sharding = "row", .ranks = 1, .nodes = 1},
                                  {.sharding = "row-modulo", .ranks = 5, .nodes = 1},
                                  {.sharding = "column", .ranks = 2, .nodes = 1},
                                  {.sharding = "table-row", .ranks = 4, .nodes = 2},
                                  {.sharding = "row,data,table", .ranks = 3, .nodes = 1},
                                  {.sharding = "row,data-dense,column", .ranks = 3, .nodes = 1}};
enum { WAYS_HERE = sizeof ways / sizeof *ways };

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
    const struct work_path file = state_file("ranks");
    snprintf(what, sizeof what, "%s on %d ranks, then %s on %d", from.sharding, from.ranks,
             to.sharding, to.ranks);
    memset(&files, 0, sizeof files);
    single_open(&loaded, b);
    if (tables_create(&out, b->in.tables, TABLES, 1, &err)) fail_msg("%s", err.text);
    from.b = to.b = b;
    from.save = to.load = to.save = file.text;
    from.steps = to.steps = 1;
    to.out = &out;
    must_run(&from);
    single_load(&loaded, b, &file);
    expect_single(after1, &loaded, what);
    must_run(&to);
    expect_rows(&after2->tables, &out, what);
    single_load(&loaded, b, &file);
    expect_single(after2, &loaded, what);
    assert_true(files.writes > 0 && !files.early);
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
    for (int i = 0; i < 2 * WAYS_HERE; i++) {
        const struct run *from = &ways[i % WAYS_HERE],
                         *to = &ways[(i + 1 + i / WAYS_HERE) % WAYS_HERE];
        if (!takes(k, from) || !takes(k, to)) continue;
        resumes(&b, &after1, &after2, *from, *to);
        pairs++;
    }
    assert_true(pairs >= 4);
    single_close(&after1);
    single_close(&after2);
    builder_free(&b);
}

/* --- what goes wrong */

struct broken {
    struct builder b;
    struct single before; /* the file has its state */
    struct work_path file;
    struct run save, load;
};

static void broken_begin(struct broken *x) {
    struct embfuse_error why;
    *x = (struct broken){.file = state_file("ranks")};
    memset(&files, 0, sizeof files);
    open_case(&x->b, &kinds[0]);
    single_open(&x->before, &x->b);
    x->save = x->load = (struct run){.sharding = "row", .ranks = 3, .nodes = 1, .b = &x->b};
    x->save.save = x->load.load = x->file.text;
    must(embfuse_save(x->before.model, x->file.text, &why), &why);
    x->save.steps = 1;
}

static void broken_end(struct broken *x) {
    single_close(&x->before);
    builder_free(&x->b);
}

static void expect_first_state(struct broken *x, const char *what, bool clean) {
    struct work_path part = x->file;
    struct single loaded;
    if (files.early) fail_msg("%s: a rename before all was synced", what);
    memset(&files, 0, sizeof files);
    single_open(&loaded, &x->b);
    single_load(&loaded, &x->b, &x->file);
    expect_single(&x->before, &loaded, what);
    single_close(&loaded);
    strcat(part.text, ".part");
    if (clean && access(part.text, F_OK) == 0) fail_msg("%s: %s is left", what, part.text);
}

static void expect_said(const struct run *r, int status, const char *said) {
    if (status == 0 || !strstr(r->wrong, said))
        fail_msg("status %d: '%s', wanted '%s'", status, r->wrong, said);
}

/* Each write in turn fails, or its rank dies before it. */
static void each_write(void **state) {
    const bool dies = *(const bool *)((const struct kernel_test *)*state)->param;
    struct broken x;
    char what[40];
    broken_begin(&x);
    for (int at = 1;; at++) {
        memset(&files, 0, sizeof files);
        files.fail_at = at;
        files.dies = dies;
        const int status = runs(&x.save);
        if (files.writes < at) break;
        if (!dies) expect_said(&x.save, status, "No space left on device; nothing was saved");
        assert_int_not_equal(status, 0);
        snprintf(what, sizeof what, "write %d", at);
        expect_first_state(&x, what, !dies);
        assert_true(at < 200);
    }
    broken_end(&x);
}

/* A flipped bit of an array, whose line names it. */
static void damage(void **state) {
    (void)state;
    struct broken x;
    size_t size;
    broken_begin(&x);
    must_run(&x.save);
    unsigned char *bytes = state_contents(x.file.text, &size);
    bytes[size - 1] ^= 1;
    assert_int_equal(work_write(x.file.text, bytes, size), 0);
    free(bytes);
    expect_said(&x.load, runs(&x.load), "model.safetensors: damaged: table.");
    broken_end(&x);
}

static void refused(void **state) {
    (void)state;
    struct broken x;
    broken_begin(&x);
    x.b.shapes[1].rule = RULE_adagrad;
    expect_said(&x.load, runs(&x.load),
                "rule of table 1 is \"adam\", but the model's is \"adagrad\"");
    expect_said(&x.save, runs(&x.save), "save to another file, or remove it");
    x.b.shapes[1].rule = RULE_adam;
    const struct work_path none = state_file("ranks_none");
    x.load.load = none.text;
    expect_said(&x.load, runs(&x.load), "No such file");
    broken_end(&x);
}

TESTS(checkpoint) {
    static const bool fails = false, dies = true;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        add_test(kinds[i].name, any_ranks, NULL, &kinds[i]);
    add_test("each write fails", each_write, NULL, &fails);
    add_test("a rank dies before each write", each_write, NULL, &dies);
    add_test("damage", damage, NULL, NULL);
    add_test("refused", refused, NULL, NULL);
    return run_listed("checkpoints of ranks");
}
