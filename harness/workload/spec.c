/* SPDX-License-Identifier: MIT
 *
 * Reads workload specs: see spec.h for the format. A block holds one list of values per key; its
 * points are their cross product, counted off like an odometer, the last key of the file fastest.
 *
 * The work and memory that a hostile input can cause are bounded by the constants below.
 */
#include "harness/workload/spec.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/regular_file.h"
#include "harness/workload/spec_keys.h"
#include "kernels/rules.h"

enum { POINTS_MAX = 4096, POINT_TABLES_MAX = 1 << 18, FILE_MAX = 1 << 24, BLOCK_NAME_MAX = 32 };

/* One `workload` block: the values of its keys, which overrides may replace. */
struct block {
    char name[WORD_MAX];
    struct where at; /* line 0: no block was opened */
    struct values values[KEY_COUNT];
    enum key order[KEY_COUNT]; /* keys with values, in file order */
    int keys;
    struct table_spec *tables; /* [num_tables], from table lines; otherwise NULL */
    int num_tables;
};

/* --- a block from its lines, and from overrides */

static void block_free(struct block *b) {
    for (int k = 0; k < KEY_COUNT; k++) values_free(&b->values[k]);
    free(b->tables);
    *b = (struct block){0};
}

/* Starts a block with the rest of a `workload` line; overwrites *b. */
static int block_open(struct block *b, struct words *line, struct where at, struct error *err) {
    static const char *allowed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    char more[WORD_MAX];
    *b = (struct block){.at = at};
    if (!next_word(line, b->name)) return fail_at(err, at, "workload has no name; give one");
    if (strspn(b->name, allowed) != strlen(b->name) || strlen(b->name) > BLOCK_NAME_MAX)
        return fail_at(err, at, "'%s' is no name; take up to %d letters, digits, '-', '_', '.'",
                       b->name, BLOCK_NAME_MAX);
    if (next_word(line, more))
        return fail_at(err, at, "'%s' after the name; start a new line", more);
    return 0;
}

/* Adds the rest of a line that starts with a key. */
static int block_read_key(struct block *b, enum key k, struct words *line, struct where at,
                          struct error *err) {
    if (b->values[k].count)
        return fail_at(err, at, "%s was given in line %d already; delete one", key_name(k),
                       b->values[k].at.line);
    b->order[b->keys++] = k;
    return values_read(k, line, at, &b->values[k], err);
}

/* Adds the rest of a line that starts with `table`. */
static int block_read_table(struct block *b, struct words *line, struct where at,
                            struct error *err) {
    static const char *const keys[] = {"rows", "dim", "length", NULL};
    enum { ROWS, DIM, LENGTH, VALUES };
    bool seen[VALUES] = {false};
    struct pairs p = {"table rows R dim D length KIND ...", keys, seen};
    struct value v[VALUES];
    char word[WORD_MAX];
    int k, status = 0;
    while (status == 0 && (k = next_pair(&p, line, at, word, err)) >= 0)
        status = k == LENGTH ? length_read(word, line, at, &v[k], err)
                             : value_read(k == ROWS ? KEY_ROWS : KEY_DIM, word, at, &v[k], err);
    if (status || k == -2) return -1;
    if (!seen[ROWS] || !seen[DIM] || !seen[LENGTH])
        return fail_at(err, at, "the table line is incomplete; write: %s", p.form);
    if (b->num_tables == SPEC_TABLES_MAX)
        return fail_at(err, at, "more than %d tables; leave some out", SPEC_TABLES_MAX);
    size_t size = (size_t)(b->num_tables + 1) * sizeof *b->tables;
    struct table_spec *grown = realloc(b->tables, size);
    if (!grown) return fail_at(err, at, "out of memory");
    b->tables = grown;
    b->tables[b->num_tables++] = (struct table_spec){
        .rows = (int64_t)v[ROWS].number, .dim = (int32_t)v[DIM].number, .length = v[LENGTH].length};
    return 0;
}

static void replace(struct block *b, enum key k, struct values *with) {
    if (!b->values[k].count) b->order[b->keys++] = k;
    values_free(&b->values[k]);
    b->values[k] = *with;
    *with = (struct values){0};
}

static int override(struct block *b, enum key k, const char *variable, const char *text,
                    struct error *err) {
    struct words words = {text, text ? text + strlen(text) : NULL};
    while (words.at < words.end && isspace((unsigned char)*words.at)) words.at++;
    if (words.at == words.end) return 0;
    struct values list = {0};
    if (values_read(k, &words, (struct where){variable, 0}, &list, err)) {
        values_free(&list);
        return -1;
    }
    replace(b, k, &list);
    return 0;
}

/* Words are modes, numbers are fixed bag lengths. */
static int override_pooling(struct block *b, const char *text, struct error *err) {
    struct where at = {"POOLING", 0};
    struct values mode = {.at = at}, length = {.at = at};
    struct words words = {text, text ? text + strlen(text) : NULL};
    char word[WORD_MAX];
    bool bad = false;
    while (!bad && next_word(&words, word)) {
        struct value v;
        if (isdigit((unsigned char)word[0])) {
            struct words number = {word, word + strlen(word)};
            bad = length_read("fixed", &number, at, &v, err) ||
                  values_add(KEY_LENGTH, &length, &v, err);
        } else {
            bad = value_read(KEY_POOLING, word, at, &v, err) ||
                  values_add(KEY_POOLING, &mode, &v, err);
        }
    }
    if (!bad && mode.count) replace(b, KEY_POOLING, &mode);
    if (!bad && length.count) replace(b, KEY_LENGTH, &length);
    values_free(&mode);
    values_free(&length);
    return bad ? -1 : 0;
}

/* An exponent would multiply a block of histograms into copies of itself. */
static bool has_alpha(const struct block *b) {
    const struct values *ids = &b->values[KEY_IDS];
    for (int i = 0; i < ids->count; i++)
        if (ids->v[i].number == IDS_ZIPF || ids->v[i].number == IDS_POWERLAW) return true;
    return ids->count == 0;
}

/* Replaces the block's values with the overrides; over may be NULL. */
static int block_override(struct block *b, const struct spec_overrides *over, struct error *err) {
    if (!over) return 0;
    if (has_alpha(b) && override(b, KEY_ALPHA, "ALPHA", over->alpha, err)) return -1;
    if (override(b, KEY_DIM, "DIMS", over->dims, err)) return -1;
    if (override(b, KEY_ROWS, "ROWS", over->rows, err)) return -1;
    if (override(b, KEY_BATCH, "BATCH", over->batch, err)) return -1;
    if (override(b, KEY_SEED, "SEED", over->seed, err)) return -1;
    return override_pooling(b, over->pooling, err);
}

/* --- its points */

/* The line of a key, or the line of the block if the key is not there. */
static struct where place_of(const struct block *b, enum key k) {
    return b->values[k].count ? b->values[k].at : b->at;
}

static int make_tables(const struct block *b, const struct value pick[KEY_COUNT], struct spec *s,
                       struct error *err) {
    s->num_tables = b->num_tables ? b->num_tables : (int32_t)pick[KEY_TABLES].number;
    s->tables = calloc((size_t)s->num_tables, sizeof *s->tables);
    if (!s->tables) return fail_at(err, b->at, "out of memory");
    for (int t = 0; t < s->num_tables; t++) {
        struct table_spec *table = &s->tables[t];
        bool listed = b->num_tables > 0;
        if (listed) *table = b->tables[t];
        /* beside table lines these keys can only be overrides */
        if (!listed || b->values[KEY_ROWS].count) table->rows = (int64_t)pick[KEY_ROWS].number;
        if (!listed || b->values[KEY_DIM].count) table->dim = (int32_t)pick[KEY_DIM].number;
        if (!listed || b->values[KEY_LENGTH].count) table->length = pick[KEY_LENGTH].length;
        table->bags = s->batches[t % s->num_batches] * s->micro_batches;
        if (table->rows > pick[KEY_ROW_CAP].number) table->rows = (int64_t)pick[KEY_ROW_CAP].number;
        if (s->padding_id >= table->rows)
            return fail_at(err, place_of(b, KEY_PADDING),
                           "padding %lld is no row of table %d with %lld rows; take a smaller id",
                           (long long)s->padding_id, t, (long long)table->rows);
        if (s->id_type == ID_INT32 && table->rows > (int64_t)INT32_MAX + 1)
            return fail_at(err, place_of(b, KEY_ID_TYPE),
                           "int32 ids do not reach all of %lld rows; take int64",
                           (long long)table->rows);
    }
    return 0;
}

/* Cuts every table into column_shards tables. */
static int cut_columns(const struct block *b, struct spec *s, struct error *err) {
    const int32_t shards = s->column_shards, tables = s->num_tables;
    if (shards == 1) return 0;
    if ((int64_t)tables * shards > SPEC_TABLES_MAX)
        return fail_at(err, place_of(b, KEY_COLUMN_SHARDS),
                       "%d tables in %d column shards are more than %d; take fewer", tables, shards,
                       SPEC_TABLES_MAX);
    struct table_spec *cut = calloc((size_t)(tables * shards), sizeof *cut);
    if (!cut) return fail_at(err, b->at, "out of memory");
    for (int32_t i = 0; i < tables * shards; i++) {
        const struct table_spec *whole = &s->tables[i / shards];
        const int64_t dim = whole->dim, part = i % shards;
        cut[i] = *whole;
        cut[i].column = (int32_t)(dim * part / shards);
        cut[i].dim = (int32_t)(dim * (part + 1) / shards) - cut[i].column;
        if (dim >= shards) continue;
        free(cut);
        return fail_at(err, place_of(b, KEY_COLUMN_SHARDS),
                       "table %d has %d columns, too few for %d shards; take fewer", i / shards,
                       (int)dim, shards);
    }
    free(s->tables);
    s->tables = cut;
    s->num_tables = tables * shards;
    return 0;
}

/* The numbers of B+C+..., which value_read() has checked. */
static int batches_of(const char *text, int64_t batches[SPEC_BATCHES_MAX]) {
    int count = 0;
    for (; text; text = strchr(text, '+')) batches[count++] = atoll(text += *text == '+');
    return count;
}

static int make_point(const struct block *b, const struct value pick[KEY_COUNT], struct spec *s,
                      struct error *err) {
    for (int k = 0; k < KEY_COUNT; k++) key_set((enum key)k, pick[k].number, s);
    s->num_batches = batches_of(pick[KEY_BATCH].text, s->batches);
    for (int i = 0; i < s->num_batches; i++)
        if ((double)s->batches[i] * (double)s->micro_batches > SPEC_BAGS_MAX)
            return fail_at(err, place_of(b, KEY_MICRO_BATCHES),
                           "%lld bags per feature in all micro-batches, more than %.0f; take fewer",
                           (long long)(s->batches[i] * s->micro_batches), SPEC_BAGS_MAX);
    if (s->reuse > 0 && s->ids >= IDS_HISTOGRAM_2021)
        return fail_at(err, place_of(b, KEY_REUSE),
                       "reuse would change the histogram; leave reuse out or take other ids");
    if (s->pooling == POOL_MAX && (s->weighted || s->mean_of_duplicates))
        return fail_at(err, place_of(b, s->weighted ? KEY_WEIGHTED : KEY_DUPLICATES),
                       "pooling max takes no per-sample weights; leave %s out",
                       key_name(s->weighted ? KEY_WEIGHTED : KEY_DUPLICATES));
    return make_tables(b, pick, s, err) || cut_columns(b, s, err) ? -1 : 0;
}

/* The values of point number `index`, and its name. */
static int pick_values(const struct block *b, int64_t index, struct value pick[KEY_COUNT],
                       char name[SPEC_NAME_MAX], struct error *err) {
    for (int k = 0; k < KEY_COUNT; k++) pick[k] = key_preset((enum key)k);
    for (int i = b->keys - 1; i >= 0; i--) {
        const struct values *list = &b->values[b->order[i]];
        pick[b->order[i]] = list->v[index % list->count];
        index /= list->count;
    }
    int used = snprintf(name, SPEC_NAME_MAX, "%s", b->name);
    for (int i = 0; i < b->keys && used < SPEC_NAME_MAX; i++)
        if (b->values[b->order[i]].count > 1)
            used += snprintf(name + used, (size_t)(SPEC_NAME_MAX - used), "/%s:%s",
                             key_name(b->order[i]), pick[b->order[i]].text);
    if (used < SPEC_NAME_MAX) return 0;
    return fail_at(err, b->at, "the axes of %s make names too long; take fewer", b->name);
}

static int check_block(const struct block *b, const struct spec_list *list, int64_t *points,
                       struct error *err) {
    size_t size = strlen(b->name);
    for (int i = 0; i < list->count; i++)
        if (!strncmp(list->specs[i].name, b->name, size) &&
            (list->specs[i].name[size] == '\0' || list->specs[i].name[size] == '/'))
            return fail_at(err, b->at, "workload %s is there already; take another name", b->name);
    static const enum key listed[] = {KEY_TABLES, KEY_ROWS, KEY_DIM, KEY_LENGTH};
    for (int i = 0; b->num_tables && i < 4; i++)
        if (b->values[listed[i]].at.line)
            return fail_at(err, b->values[listed[i]].at,
                           "%s beside table lines; delete one of the two", key_name(listed[i]));
    *points = 1;
    for (int k = 0; k < KEY_COUNT; k++) {
        if (b->values[k].count > 1) *points *= b->values[k].count;
        if (list->count + *points > POINTS_MAX)
            return fail_at(err, b->at, "the axes make more than %d points; take fewer values",
                           POINTS_MAX);
    }
    return 0;
}

/* Closes a block: overrides it and appends its points. */
static int add_block(struct block *b, const struct spec_overrides *over, struct spec_list *list,
                     struct error *err) {
    int64_t points = 0, tables = 0;
    if (block_override(b, over, err) || check_block(b, list, &points, err)) return -1;
    size_t size = (size_t)(list->count + points) * sizeof *list->specs;
    struct spec *grown = realloc(list->specs, size);
    if (!grown) return fail_at(err, b->at, "out of memory");
    list->specs = grown;
    for (int i = 0; i < list->count; i++) tables += list->specs[i].num_tables;
    for (int64_t i = 0; i < points; i++) {
        struct value pick[KEY_COUNT];
        struct spec *s = &list->specs[list->count++];
        *s = (struct spec){0};
        if (pick_values(b, i, pick, s->name, err) || make_point(b, pick, s, err)) return -1;
        tables += s->num_tables;
        if (tables > POINT_TABLES_MAX)
            return fail_at(err, b->at, "more than %d tables in all points; take fewer",
                           POINT_TABLES_MAX);
    }
    return 0;
}

static int parse_line(struct words line, struct where at, struct block *b,
                      const struct spec_overrides *over, struct spec_list *list,
                      struct error *err) {
    char word[WORD_MAX];
    if (!next_word(&line, word)) return 0;
    if (!strcmp(word, "workload")) {
        if (b->at.line && add_block(b, over, list, err)) return -1;
        block_free(b);
        return block_open(b, &line, at, err);
    }
    bool table = !strcmp(word, "table");
    enum key k = table ? KEY_COUNT : key_find(word, at, err);
    if (!table && k == KEY_COUNT) return -1;
    if (!b->at.line)
        return fail_at(err, at, "%s before any workload; start with: workload NAME", word);
    return table ? block_read_table(b, &line, at, err) : block_read_key(b, k, &line, at, err);
}

int spec_parse(const char *name, const char *text, uint64_t size, const struct spec_overrides *over,
               struct spec_list *out, struct error *err) {
    struct block block = {0};
    struct where at = {name, 0};
    struct words rest = {text, size ? text + size : text}, line;
    int status = 0;
    *out = (struct spec_list){0};
    while (status == 0 && next_line(&rest, &line, &at))
        status = parse_line(line, at, &block, over, out, err);
    if (status == 0 && !block.at.line)
        status = fail_at(err, at, "no workload in this file; start with: workload NAME");
    if (status == 0) status = add_block(&block, over, out, err);
    block_free(&block);
    if (status) spec_list_free(out);
    return status;
}

int spec_read(const char *path, const struct spec_overrides *over, struct spec_list *out,
              struct error *err) {
    size_t size;
    char *text = regular_file_text(path, FILE_MAX, "spec file", &size, err);
    *out = (struct spec_list){0};
    int status = -1;
    if (text && memchr(text, 0, size))
        fail(err, "%s: a binary file; name a spec file, which is text, or a trace", path);
    else if (text)
        status = spec_parse(path, text, size, over, out, err);
    free(text);
    return status;
}

void spec_list_free(struct spec_list *list) {
    for (int i = 0; i < list->count; i++) free(list->specs[i].tables);
    free(list->specs);
    *list = (struct spec_list){0};
}

/* A valid value other than the preset, and large enough to show in a step. Many are powers of two,
 * so that narrow weights meet ties. */
static float varied_value(const struct rule_param *p) {
    const float size = fabsf(p->preset);
    const float value = size < 0x1p-6f ? 0x1p-6f : p->preset * (size < 2 ? 0.75f : 0x1p-6f);
    if (p->flag) return 1 - p->preset;
    return rule_hyper_takes(p, value) ? value : 2 * p->preset;
}

struct rule spec_rule(enum rule_kind kind, bool varied, int32_t t) {
    static const float shared[][RULE_SHARED] = {
        {[GRAD_SCALE] = 3,
         [MAXIMIZE] = 1,
         [CLIP_VALUE] = 0.1f,
         [CLIP_NORM] = 0.25f,
         [WEIGHT_DECAY] = 0.125f},
        {[CLIP_VALUE] = 0.05f, [WEIGHT_DECAY] = 0.125f, [DECOUPLED_WEIGHT_DECAY] = 1},
        {[GRAD_SCALE] = 0.375f}};
    const struct rule_info info = rule_info(kind);
    struct rule rule = rule_default(kind);
    for (int k = 0; varied && k < RULE_HYPERS; k++) {
        const struct rule_param p = rule_hyper(&info, k);
        if (p.name && k < RULE_PARAMS) rule.param[k] = varied_value(&p);
        if (p.name && k >= RULE_PARAMS && !info.linear)
            rule.shared[k - RULE_PARAMS] = shared[t % 3][k - RULE_PARAMS];
    }
    return rule;
}

struct table_shape spec_table(const struct spec *s, int t) {
    const struct rule rule = spec_rule(s->rule, s->varied, t);
    return (struct table_shape){
        .rows = s->tables[t].rows,
        .dim = s->tables[t].dim,
        .rule = s->rule,
        .adjusts = rule_adjusts(&rule),
        .weight_type = s->weight_type,
        .momentum_type = s->momentum_type,
        .rounding = s->rounding,
        .rounding_key = rng_key(s->seed, (uint64_t)t),
        .row_state = s->row_state,
        .part = {.table = t / s->column_shards - t, .column = s->tables[t].column}};
}
