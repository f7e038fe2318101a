/* SPDX-License-Identifier: MIT
 *
 * Reads workload specs: see spec.h for the format. A block (spec_block.h) holds one list of values
 * per key; its points are their cross product, counted off like an odometer, the last key of the
 * file fastest.
 *
 * The work and memory that a hostile input can cause are bounded by the constants below.
 */
#include "harness/workload/spec.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/regular_file.h"
#include "harness/workload/spec_block.h"

enum { POINTS_MAX = 4096, POINT_TABLES_MAX = 1 << 18, FILE_MAX = 1 << 24 };

/* The place of a key, or of the block if it lacks the key. */
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

static int make_point(const struct block *b, const struct value pick[KEY_COUNT], struct spec *s,
                      struct error *err) {
    s->batch = (int64_t)pick[KEY_BATCH].number;
    s->ids = (enum ids_kind)pick[KEY_IDS].number;
    s->alpha = pick[KEY_ALPHA].number;
    s->shift = pick[KEY_SHIFT].number;
    s->scatter = pick[KEY_MAP].number != 0;
    s->reuse = pick[KEY_REUSE].number;
    s->features_per_table = (int32_t)pick[KEY_FEATURES].number;
    s->pooling = (enum pooling)pick[KEY_POOLING].number;
    s->weighted = pick[KEY_WEIGHTED].number != 0;
    s->padding_id = (int64_t)pick[KEY_PADDING].number;
    s->id_type = (enum id_type)pick[KEY_ID_TYPE].number;
    s->rule = (enum rule_kind)pick[KEY_RULE].number;
    s->weight_type = (enum dtype)pick[KEY_WEIGHT_TYPE].number;
    s->row_state = (enum row_state)pick[KEY_ROW_STATE].number;
    s->seed = (uint64_t)pick[KEY_SEED].number;
    if (s->reuse > 0 && (s->ids == IDS_HISTOGRAM_2021 || s->ids == IDS_HISTOGRAM_2022))
        return fail_at(err, place_of(b, KEY_REUSE),
                       "reuse would change the histogram; leave reuse out or take other ids");
    return make_tables(b, pick, s, err);
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

static bool replaced_by_tables(enum key k) {
    return k == KEY_TABLES || k == KEY_ROWS || k == KEY_DIM || k == KEY_LENGTH;
}

static int check_block(const struct block *b, const struct spec_list *list, int64_t *points,
                       struct error *err) {
    size_t size = strlen(b->name);
    for (int i = 0; i < list->count; i++)
        if (!strncmp(list->specs[i].name, b->name, size) &&
            (list->specs[i].name[size] == '\0' || list->specs[i].name[size] == '/'))
            return fail_at(err, b->at, "workload %s is there already; take another name", b->name);
    for (int k = 0; b->num_tables && k < KEY_COUNT; k++)
        if (replaced_by_tables((enum key)k) && b->values[k].at.line)
            return fail_at(err, b->values[k].at, "%s beside table lines; delete one of the two",
                           key_name((enum key)k));
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
    int status = text ? spec_parse(path, text, size, over, out, err) : -1;
    free(text);
    return status;
}

void spec_list_free(struct spec_list *list) {
    for (int i = 0; i < list->count; i++) free(list->specs[i].tables);
    free(list->specs);
    *list = (struct spec_list){0};
}

struct table_shape spec_table(const struct spec *s, int t) {
    return (struct table_shape){.rows = s->tables[t].rows,
                                .dim = s->tables[t].dim,
                                .rule = s->rule,
                                .weight_type = s->weight_type,
                                .row_state = s->row_state};
}

void spec_describe_storage(const struct spec *s, char *text, size_t size) {
    const struct {
        enum key key;
        int word;
    } of[] = {{KEY_WEIGHT_TYPE, (int)s->weight_type}, {KEY_ROW_STATE, (int)s->row_state}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].word != (int)key_preset(of[i].key).number)
            text_add(text, size, " %s %s", key_name(of[i].key), key_word(of[i].key, of[i].word));
}
