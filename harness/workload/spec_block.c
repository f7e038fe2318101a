/* SPDX-License-Identifier: MIT */
#include "harness/workload/spec_block.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

void block_free(struct block *b) {
    for (int k = 0; k < KEY_COUNT; k++) values_free(&b->values[k]);
    free(b->tables);
    *b = (struct block){0};
}

int block_open(struct block *b, struct words *line, struct where at, struct error *err) {
    static const char *allowed =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    char more[WORD_MAX];
    *b = (struct block){.at = at};
    if (!next_word(line, b->name)) return fail_at(err, at, "workload has no name; give one");
    if (strspn(b->name, allowed) != strlen(b->name) || strlen(b->name) > WORD_MAX / 2)
        return fail_at(err, at, "'%s' is no name; take up to %d letters, digits, '-', '_', '.'",
                       b->name, WORD_MAX / 2);
    if (next_word(line, more))
        return fail_at(err, at, "'%s' after the name; start a new line", more);
    return 0;
}

int block_read_key(struct block *b, enum key k, struct words *line, struct where at,
                   struct error *err) {
    if (b->values[k].count)
        return fail_at(err, at, "%s was given in line %d already; delete one", key_name(k),
                       b->values[k].at.line);
    b->order[b->keys++] = k;
    return values_read(k, line, at, &b->values[k], err);
}

int block_read_table(struct block *b, struct words *line, struct where at, struct error *err) {
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
        return fail_at(err, at, "a table line lacks something; write: %s", p.form);
    if (b->num_tables == SPEC_TABLES_MAX)
        return fail_at(err, at, "more than %d tables; leave some out", SPEC_TABLES_MAX);
    size_t size = (size_t)(b->num_tables + 1) * sizeof *b->tables;
    struct table_spec *grown = realloc(b->tables, size);
    if (!grown) return fail_at(err, at, "out of memory");
    b->tables = grown;
    b->tables[b->num_tables++] =
        (struct table_spec){(int64_t)v[ROWS].number, (int32_t)v[DIM].number, v[LENGTH].length};
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

int block_override(struct block *b, const struct spec_overrides *over, struct error *err) {
    if (!over) return 0;
    if (has_alpha(b) && override(b, KEY_ALPHA, "ALPHA", over->alpha, err)) return -1;
    if (override(b, KEY_DIM, "DIMS", over->dims, err)) return -1;
    if (override(b, KEY_ROWS, "ROWS", over->rows, err)) return -1;
    if (override(b, KEY_BATCH, "BATCH", over->batch, err)) return -1;
    if (override(b, KEY_SEED, "SEED", over->seed, err)) return -1;
    return override_pooling(b, over->pooling, err);
}
