/* SPDX-License-Identifier: MIT
 *
 * Reads PREFIX.batch and PREFIX.tables. A user may have written them by hand.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/description.h"
#include "harness/workload/regular_file.h"

/* gen can make as many features from a spec. */
enum { FEATURES_MAX = SPEC_TABLES_MAX * 1024, FILE_MAX = 1 << 27 };

/* Statements KEY N, and grad_type TYPE, each of which may occur once. */
enum { BAGS, WEIGHTED, SEED, STEPS, GRAD_TYPE, STATEMENTS };
static const struct {
    const char *key;
    double least, most;
} statements[STATEMENTS] = {{"bags", 1, 1e9},
                            {"weighted", 0, 1},
                            {"seed", 0, 0x1p53},
                            {"steps", 0, STEPS_MAX},
                            {"grad_type", 0, 0}};

struct reading {
    struct description *d;
    bool record;          /* PREFIX.tables, not PREFIX.batch */
    struct where at;      /* the current line */
    int line[STATEMENTS]; /* 0: not given */
    double number[STATEMENTS];
};

static int add_table(struct reading *r, struct table_shape shape, char hyper[HYPERS_MAX][WORD_MAX],
                     struct error *err) {
    struct rule full = rule_default(shape.rule);
    for (int k = 0; r->record && k < RULE_HYPERS; k++) *rule_value(&full, k) = NAN;
    if (r->d->num_tables == SPEC_TABLES_MAX)
        return fail_at(err, r->at, "more than %d tables; make several batches", SPEC_TABLES_MAX);
    for (int h = 0; hyper_name(h); h++) {
        if (!hyper[h][0]) continue;
        if (r->d->no_rule == r->at.line)
            return fail_at(err, r->at, "%s without a rule; name one", hyper_name(h));
        if (rule_hyper_of(shape.rule, hyper_name(h)) < 0)
            return fail_at(err, r->at, "the rule %s has no %s; leave it out",
                           rule_info(shape.rule).name, hyper_name(h));
        if (hyper_set(&full, hyper_name(h), hyper[h], r->at, err)) return -1;
    }
    return description_add_table(r->d, shape, full, err);
}

static int read_table(struct words line, struct reading *r, struct error *err) {
    enum { ROWS, DIM, RULE, WEIGHT_TYPE, MOMENTUM_TYPE, ROUNDING, ROW_STATE, HYPER };
    static const enum key meant[] = {KEY_ROWS,          KEY_DIM,      KEY_RULE,     KEY_WEIGHT_TYPE,
                                     KEY_MOMENTUM_TYPE, KEY_ROUNDING, KEY_ROW_STATE};
    const char *keys[HYPER + HYPERS_MAX + 1] = {NULL};
    bool seen[HYPER + HYPERS_MAX] = {false};
    for (int k = 0; k < HYPER; k++) keys[k] = key_name(meant[k]);
    for (int h = 0; h < HYPERS_MAX; h++) keys[HYPER + h] = hyper_name(h);
    struct pairs p = {
        "table rows R dim D [rule NAME] [weight_type TYPE] [momentum_type TYPE] [rounding "
        "nearest|stochastic] [row_state apart|beside|all] [lr X] [eps X] ...",
        keys, seen};
    char text[WORD_MAX], hyper[HYPERS_MAX][WORD_MAX] = {{0}};
    struct value value[HYPER] = {{0}};
    int k, status = 0;
    while (status == 0 && (k = next_pair(&p, &line, r->at, text, err)) >= 0) {
        if (k < HYPER) status = value_read(meant[k], text, r->at, &value[k], err);
        if (k >= HYPER) strcpy(hyper[k - HYPER], text);
    }
    if (status || k == -2) return -1;
    if (!seen[RULE] && !r->record && r->d->no_rule == 0) r->d->no_rule = r->at.line;
    if (!seen[ROWS] || !seen[DIM] || (!seen[RULE] && r->record))
        return fail_at(err, r->at, "the table line is incomplete; write: %s", p.form);
    return add_table(r,
                     (struct table_shape){.rows = (int64_t)value[ROWS].number,
                                          .dim = (int32_t)value[DIM].number,
                                          .rule = (enum rule_kind)value[RULE].number,
                                          .weight_type = (enum dtype)value[WEIGHT_TYPE].number,
                                          .momentum_type = (enum dtype)value[MOMENTUM_TYPE].number,
                                          .rounding = (enum rounding)value[ROUNDING].number,
                                          .row_state = (enum row_state)value[ROW_STATE].number},
                     hyper, err);
}

static int read_feature(struct words line, struct reading *r, struct error *err) {
    static const char *const keys[] = {"table", "bags", "pooling", "padding", NULL};
    enum { TABLE, OWN_BAGS, POOLING, PADDING };
    bool seen[PADDING + 1] = {false};
    struct pairs p = {"feature table T [pooling sum|mean|none|max] [padding ID] [bags B]", keys,
                      seen};
    char text[WORD_MAX], *end;
    struct feature f = {.table = -1, .pooling = POOL_SUM, .padding_id = -1, .bags = -1};
    struct value v;
    double bags;
    int k;
    while ((k = next_pair(&p, &line, r->at, text, err)) >= 0) {
        enum key key = k == POOLING ? KEY_POOLING : KEY_PADDING;
        if (k == OWN_BAGS) {
            if (number_read("bags", true, 0, SPEC_BAGS_MAX, text, r->at, &bags, err)) return -1;
            f.bags = (int64_t)bags;
            continue;
        }
        if (k != TABLE && value_read(key, text, r->at, &v, err)) return -1;
        if (k == POOLING) f.pooling = (enum pooling)v.number;
        if (k == PADDING) f.padding_id = (int64_t)v.number;
        if (k != TABLE) continue;
        long t = strtol(text, &end, 10);
        if (*end || t < 0 || t >= r->d->num_tables)
            return fail_at(err, r->at, "table '%s': there are %d above this line", text,
                           r->d->num_tables);
        f.table = (int32_t)t;
    }
    if (k == -2) return -1;
    if (f.table < 0)
        return fail_at(err, r->at, "the feature line names no table; write: %s", p.form);
    if (r->d->num_features == FEATURES_MAX)
        return fail_at(err, r->at, "more than %d features; make several batches", FEATURES_MAX);
    return description_add_feature(r->d, f, err);
}

static int read_statement(struct words line, struct reading *r, int k, struct error *err) {
    const char *key = statements[k].key;
    char word[WORD_MAX], more[WORD_MAX];
    struct value type;
    if (r->line[k])
        return fail_at(err, r->at, "%s was given in line %d already; delete one", key, r->line[k]);
    r->line[k] = r->at.line;
    if (!next_word(&line, word) || next_word(&line, more))
        return fail_at(err, r->at, "write: %s %s", key, k == GRAD_TYPE ? "TYPE" : "N");
    if (k != GRAD_TYPE)
        return number_read(key, true, statements[k].least, statements[k].most, word, r->at,
                           &r->number[k], err);
    if (value_read(KEY_GRAD_TYPE, word, r->at, &type, err)) return -1;
    r->number[k] = type.number;
    return 0;
}

static int read_line(struct words line, struct reading *r, struct error *err) {
    char word[WORD_MAX];
    if (!next_word(&line, word)) return 0;
    if (strcmp(word, "table") == 0) return read_table(line, r, err);
    if (strcmp(word, "feature") == 0 && !r->record) return read_feature(line, r, err);
    for (int k = 0; k < STATEMENTS; k++)
        if (strcmp(word, statements[k].key) == 0 && (k == STEPS) == r->record)
            return read_statement(line, r, k, err);
    return fail_at(err, r->at, "'%s' begins no line; known: %s", word,
                   r->record ? "steps, table" : "bags, weighted, grad_type, seed, table, feature");
}

static int read_lines(const char *path, struct reading *r, struct error *err) {
    size_t size;
    char *text = regular_file_text(path, FILE_MAX, "description", &size, err);
    if (!text) return -1;
    if (memchr(text, 0, size)) {
        free(text);
        return fail(err, "%s: a binary file; name a description, which is text", path);
    }
    struct words rest = {text, text + size}, line;
    int status = 0;
    r->at = (struct where){path, 0};
    while (status == 0 && next_line(&rest, &line, &r->at)) status = read_line(line, r, err);
    free(text);
    r->d->bags = (int64_t)r->number[BAGS];
    r->d->weighted = r->number[WEIGHTED] != 0;
    r->d->steps = (int64_t)r->number[STEPS];
    r->d->grad_type_given = r->line[GRAD_TYPE] > 0;
    r->d->grad_type = (enum dtype)r->number[GRAD_TYPE];
    const double preset = key_preset(KEY_SEED).number;
    description_seed(r->d, (uint64_t)(r->line[SEED] ? r->number[SEED] : preset));
    return status;
}

int description_read(const char *path, struct description *out, struct error *err) {
    *out = (struct description){0};
    int status = read_lines(path, &(struct reading){.d = out}, err);
    if (status == 0) status = description_check(out, path, err);
    if (status) description_free(out);
    return status;
}

int description_read_tables(const char *path, struct description *out, struct error *err) {
    *out = (struct description){0};
    struct reading r = {.d = out, .record = true};
    int status = read_lines(path, &r, err);
    if (status == 0 && (out->num_tables == 0 || !r.line[STEPS]))
        status = fail(err, "%s: needs steps N and at least one table line", path);
    if (status) description_free(out);
    return status;
}
