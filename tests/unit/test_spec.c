/* SPDX-License-Identifier: MIT
 *
 * The spec reader: what the format means; one case for every way in which a spec can be wrong, with
 * the place that the message must name; and the spec files of datasets/.
 */
#include <glob.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/spec.h"

#include "tests/support/cmocka_cases.h"

/* Parses from a buffer of exactly the right size, for AddressSanitizer. */
static int parse(const char *text, const struct spec_overrides *over, struct spec_list *out,
                 struct error *err) {
    size_t size = strlen(text);
    char *copy = malloc(size ? size : 1);
    assert_non_null(copy);
    memcpy(copy, text, size);
    int failed = spec_parse("x.spec", copy, size, over, out, err);
    free(copy);
    return failed;
}

static struct spec_list parse_good(const char *text, const struct spec_overrides *over) {
    struct spec_list list;
    struct error err = {""};
    if (parse(text, over, &list, &err)) fail_msg("refused: %s", err.text);
    return list;
}

/* --- what is wrong, and where */

struct bad_case {
    const char *test, *text, *message; /* message: its beginning, after the name of the file */
    struct spec_overrides over;
};

#define W "workload w\n"
#define T "table rows 5 dim 4 length fixed 3\n"
static const struct bad_case bad_cases[] = {
    {"empty file", "", " no workload in this file", {0}},
    {"shards without columns", W "dim 3\ncolumn_shards 4\n", "3: table 0 has 3 columns", {0}},
    {"unknown rule", W "rule no\n", "2: rule is one of ", {0}},
    {"unknown key", W "rows 5\ncolor red\n", "3: unknown key 'color'; known keys: workload", {0}},
    {"key before a workload", "\nrows 5\n" W, "2: rows before any workload", {0}},
    {"bad name", "workload a/b\n", "1: 'a/b' is no name", {0}},
    {"name twice", W "rows 5 6\nworkload b\n" W, "4: workload w is there already", {0}},
    {"key twice", W "rows 5\ndim 4\nrows 6\n", "4: rows was given in line 2 already", {0}},
    {"value twice", W "alpha 1 1.0\n", "2: alpha has the value 1 twice", {0}},
    {"not a number", W "rows many\n", "2: rows is a whole number from 1 to ", {0}},
    {"many bags", W "batch 1e6\nmicro_batches 1001\n", "3: 1001000000 bags per feature", {0}},
    {"padding is no row", W "padding 10\nrows 10\n", "2: padding 10 is no row of table 0", {0}},
    {"int32 and many rows", W "rows 3e9\nid_type int32\n", "3: int32 ids do not reach", {0}},
    {"histogram and reuse", W "ids histogram-2021\nreuse .5\n", "3: reuse would change", {0}},
    {"unknown ids", W "ids zipfian\n", "2: ids is one of zipf, powerlaw, uniform, hist", {0}},
    {"gradients of fp8", W "grad_type fp8\n", "2: grad_type is one of fp32, bf16, fp16, not", {0}},
    {"fixed without number", W "length fixed\n", "2: length fixed: a number is missing", {0}},
    {"fixed with a word", W "length fixed x\n", "2: length fixed x: a number is missing", {0}},
    {"uniform falling", W "length uniform 9 3\n", "2: length uniform 9 3 is no range", {0}},
    {"negbin too regular", W "length negbin 4 0.5\n", "2: length negbin 4 0.5: a neg", {0}},
    {"two lengths", W "length fixed 3 4\n", "2: '4' is too much", {0}},
    {"tables and table", W T "dim 4\n", "3: dim beside table lines", {0}},
    {"max, weighted", W "pooling max\nweighted 1\n", "3: pooling max takes no per-sample", {0}},
    {"bad ALPHA", W, "ALPHA: alpha is a number from 0 to 100, not 'hot'", {.alpha = "1 hot"}},
    {"bad POOLING", W, "POOLING: pooling is one of sum, mean, none, max", {.pooling = "min"}},
    {"padding and ROWS", W "padding 7\n", "2: padding 7 is no row", {.rows = "5"}},
};

static void bad_input_is_named(void **state) {
    const struct bad_case *c = *state;
    struct spec_list list = {7, NULL};
    struct error err = {""};
    assert_int_equal(parse(c->text, &c->over, &list, &err), -1);
    const char *said = strncmp(err.text, "x.spec:", 7) == 0 ? err.text + 7 : err.text;
    if (strncmp(said, c->message, strlen(c->message)))
        fail_msg("message: %s\n instead of: %s", err.text, c->message);
    assert_int_equal(list.count, 0);
    assert_null(list.specs);
}

/* --- what a good one means */

static void every_key(void **state) {
    (void)state;
    /* Empty overrides change nothing. */
    struct spec_list l = parse_good(
        "  workload w # name\r\n"
        "\tbatch 1e3\nmicro_batches 4\n tables 3\nrows 1000000\ndim 17\ncolumn_shards 2\n"
        "length negbin 13.6 1\nids powerlaw\nalpha .5\nshift 2.7\n"
        "map identity\nreuse 0.25\nfeatures 2\npooling none\nduplicates mean\n"
        "weighted 1\npadding 0\nid_type int32\nrule adam\n"
        "weight_type bf16\nmomentum_type bf16\ngrad_type fp16\nrounding stochastic\n"
        "row_state beside\nseed 9007199254740992\nrow_cap 5e5",
        &(struct spec_overrides){"", " ", NULL, "\t", "  ", ""});
    const struct spec *s = l.specs;
    const struct table_spec *half = s->tables;
    assert_int_equal(l.count, 1);
    assert_string_equal(s->name, "w");
    assert_true(half->bags == 4000 && s->micro_batches == 4 && s->seed == 9007199254740992);
    assert_true(s->num_tables == 6 && s->column_shards == 2 && s->features_per_table == 2);
    assert_true(half->rows == 500000 && half->dim == 8 && half->length.kind == LENGTH_NEGBIN);
    assert_true(half->length.a == 13.6 && half->length.b == 1);
    assert_true(s->ids == IDS_POWERLAW && s->alpha == 0.5 && s->shift == 2.7 && !s->scatter);
    assert_true(s->reuse == 0.25 && s->padding_id == 0 && s->id_type == ID_INT32);
    assert_true(s->pooling == POOL_NONE && s->weighted && s->mean_of_duplicates);
    assert_true(s->rule == RULE_adam && s->weight_type == BF16 && s->momentum_type == BF16);
    assert_true(s->grad_type == FP16 && s->rounding == ROUND_STOCHASTIC);
    assert_true(s->row_state == ROW_STATE_BESIDE);
    spec_list_free(&l);
}

static void presets(void **state) {
    struct spec_list l = parse_good("workload w", NULL);
    const struct spec *s = l.specs;
    (void)state;
    assert_int_equal(s->tables[0].bags, 51200);
    assert_int_equal(s->tables[0].rows, 10000000);
    assert_int_equal(s->tables[0].dim, 64);
    assert_int_equal(s->rule, RULE_rowwise_adagrad);
    assert_true(s->alpha == 1.05 && s->tables[0].length.a == 20 && s->scatter && s->seed == 42);
    assert_true(s->padding_id == -1 && s->id_type == ID_INT64 && s->features_per_table == 1);
    spec_list_free(&l);
}

/* Names with a blank behind each. */
static void assert_names(const struct spec_list *l, const char *want) {
    char names[1000] = "";
    for (int i = 0; i < l->count; i++) strcat(strcat(names, l->specs[i].name), " ");
    assert_string_equal(names, want);
}

static void axes_in_file_order(void **state) {
    struct spec_list l = parse_good(
        W "pooling sum mean\nrows 1e6 70\ndim 8\nalpha 0 1.05\nworkload v\ndim 8 9\n", NULL);
    (void)state;
    assert_names(&l, "w/pooling:sum/rows:1000000/alpha:0 w/pooling:sum/rows:1000000/alpha:1.05 "
                     "w/pooling:sum/rows:70/alpha:0 w/pooling:sum/rows:70/alpha:1.05 "
                     "w/pooling:mean/rows:1000000/alpha:0 w/pooling:mean/rows:1000000/alpha:1.05 "
                     "w/pooling:mean/rows:70/alpha:0 w/pooling:mean/rows:70/alpha:1.05 "
                     "v/dim:8 v/dim:9 ");
    assert_int_equal(l.specs[6].pooling, POOL_MEAN);
    assert_int_equal(l.specs[6].tables[0].rows, 70);
    assert_true(l.specs[7].alpha == 1.05);
    assert_int_equal(l.specs[9].tables[0].dim, 9);
    spec_list_free(&l);
}

/* The words of a table line come in any order, and row_cap bounds its rows. */
static void table_lines(void **state) {
    struct spec_list l = parse_good(W "row_cap 100\ntable rows 1000 dim 4 length fixed 3\nseed 1\n"
                                      "table length uniform 0 3 dim 5 rows 7\n",
                                    NULL);
    const struct table_spec *t = l.specs[0].tables;
    (void)state;
    assert_int_equal(l.specs[0].num_tables, 2);
    assert_true(t[0].rows == 100 && t[0].dim == 4 && t[0].length.a == 3);
    assert_true(t[1].rows == 7 && t[1].dim == 5 && t[1].length.kind == LENGTH_UNIFORM);
    assert_true(t[1].length.b == 3);
    spec_list_free(&l);
}

/* Tables take the numbers of a batch in turn. */
static void own_batches(void **state) {
    struct spec_list l =
        parse_good(W "tables 3\nbatch 5 70+1e3\nmicro_batches 2\ncolumn_shards 2\n", NULL);
    static const int64_t bags[] = {140, 140, 2000, 2000, 140, 140};
    (void)state;
    assert_names(&l, "w/batch:5 w/batch:70+1000 ");
    for (int t = 0; t < 6; t++) {
        assert_int_equal(l.specs[0].tables[t].bags, 10);
        assert_int_equal(l.specs[1].tables[t].bags, bags[t]);
    }
    spec_list_free(&l);
}

static void overrides_replace(void **state) {
    struct spec_overrides over = {" 0 2 ", "4\t5", "1e3", "77", "none 6", "9"};
    struct spec_list l = parse_good(W "alpha 1\nworkload h\nids histogram-2022\n", &over);
    (void)state;
    assert_names(&l, "w/alpha:0/dim:4 w/alpha:0/dim:5 w/alpha:2/dim:4 w/alpha:2/dim:5 "
                     "h/dim:4 h/dim:5 ");
    assert_true(l.specs[2].alpha == 2);
    assert_int_equal(l.specs[2].tables[0].rows, 1000);
    assert_int_equal(l.specs[2].tables[0].dim, 4);
    assert_int_equal(l.specs[2].tables[0].bags, 77);
    assert_int_equal(l.specs[2].pooling, POOL_NONE);
    assert_true(l.specs[2].tables[0].length.a == 6);
    assert_int_equal(l.specs[2].seed, 9);
    spec_list_free(&l);
}

static void too_many(void **state) {
    char text[2000] = W;
    struct spec_list list;
    struct error err = {""};
    (void)state;
    for (int key = 0; key < 2; key++) {
        strcat(text, key ? "\ndim" : "rows");
        for (int i = 1; i <= 65; i++) snprintf(text + strlen(text), 5, " %d", i);
    }
    assert_int_equal(parse(text, NULL, &list, &err), -1);
    assert_non_null(strstr(err.text, "x.spec:1: the axes make more than 4096 points"));
    assert_int_equal(
        parse(W "tables 1024\nrows 1 2 3\nseed 1 2 3 4 5 6 7 8 9\nalpha 1 2 3 4 5 6 7 8 9 10", NULL,
              &list, &err),
        -1);
    assert_non_null(strstr(err.text, "x.spec:1: more than 262144 tables"));
}

/* --- the files of datasets/ */

static void shipped_files(void **state) {
    glob_t files;
    (void)state;
    assert_int_equal(glob("datasets/*.spec", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        struct spec_list l;
        struct error err = {""};
        if (spec_read(files.gl_pathv[i], NULL, &l, &err)) fail_msg("%s", err.text);
        spec_list_free(&l);
    }
    globfree(&files);
}

TESTS(spec) {
    ADD_CASES(bad_cases, bad_input_is_named);
    ADD_TEST(presets);
    ADD_TEST(every_key);
    ADD_TEST(axes_in_file_order);
    ADD_TEST(table_lines);
    ADD_TEST(own_batches);
    ADD_TEST(overrides_replace);
    ADD_TEST(too_many);
    ADD_TEST(shipped_files);
    return run_listed("spec");
}
