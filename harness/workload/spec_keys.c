/* SPDX-License-Identifier: MIT */
#include "harness/workload/spec_keys.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/lengths.h"
#include "kernels/rules.h"

enum { VALUES_MAX = 4096, KNOWN_MAX = 1024 };

/* Whole numbers are read as doubles, so that 1e6 is one; above this they would lose their end. */
#define WHOLE_MAX 0x1p53

enum takes { WHOLE, WHOLES, REAL, WORD, LENGTH };

struct key_info {
    const char *name;
    enum takes takes;
    double least, most, preset;
    const char *const *words; /* in the order of the enum that they name; the last is NULL */
    size_t at, bytes;         /* in struct spec; 0 bytes: it is of each table, or counts tables */
};

#define WORDS(...)                                                                                 \
    (const char *const[]) {                                                                        \
        __VA_ARGS__, NULL                                                                          \
    }
#define RULE_WORD(rule, ...) #rule,
#define IN(member)           offsetof(struct spec, member), sizeof((struct spec *)0)->member

/* clang-format off */
static const struct key_info infos[KEY_COUNT] = {
    [KEY_BATCH]         = {"batch", WHOLES, 1, SPEC_BAGS_MAX, 51200, NULL},
    [KEY_MICRO_BATCHES] = {"micro_batches", WHOLE, 1, 1e6, 1, NULL, IN(micro_batches)},
    [KEY_TABLES]        = {"tables", WHOLE, 1, SPEC_TABLES_MAX, 1, NULL},
    [KEY_ROWS]          = {"rows", WHOLE, 1, 1e12, 1e7, NULL},
    [KEY_DIM]           = {"dim", WHOLE, 1, 65536, 64, NULL},
    [KEY_LENGTH]        = {"length", LENGTH, 0, 0, 0, WORDS("fixed", "uniform", "negbin")},
    [KEY_IDS]           = {"ids", WORD, 0, 0, IDS_ZIPF,
                           WORDS("zipf", "powerlaw", "uniform", "histogram-2021", "histogram-2022", "runs"), IN(ids)},
    [KEY_ALPHA]         = {"alpha", REAL, 0, 100, 1.05, NULL, IN(alpha)},
    [KEY_SHIFT]         = {"shift", REAL, 0, 1e12, 0, NULL, IN(shift)},
    [KEY_MAP]           = {"map", WORD, 0, 0, 1, WORDS("identity", "scatter"), IN(scatter)},
    [KEY_REUSE]         = {"reuse", REAL, 0, 1, 0, NULL, IN(reuse)},
    [KEY_FEATURES]      = {"features", WHOLE, 1, 1024, 1, NULL, IN(features_per_table)},
    [KEY_COLUMN_SHARDS] = {"column_shards", WHOLE, 1, 1024, 1, NULL, IN(column_shards)},
    [KEY_POOLING]       = {"pooling", WORD, 0, 0, POOL_SUM, WORDS("sum", "mean", "none", "max"), IN(pooling)},
    [KEY_WEIGHTED]      = {"weighted", WHOLE, 0, 1, 0, NULL, IN(weighted)},
    [KEY_DUPLICATES]    = {"duplicates", WORD, 0, 0, 0, WORDS("sum", "mean"), IN(mean_of_duplicates)},
    [KEY_PADDING]       = {"padding", WHOLE, -1, 1e12, -1, NULL, IN(padding_id)},
    [KEY_ID_TYPE]       = {"id_type", WORD, 0, 0, ID_INT64, WORDS("int32", "int64"), IN(id_type)},
    [KEY_RULE]          = {"rule", WORD, 0, 0, RULE_rowwise_adagrad, (const char *const[]){RULES(RULE_WORD) NULL},
                           IN(rule)},
    [KEY_HYPERS]        = {"hypers", WORD, 0, 0, 0, WORDS("preset", "varied"), IN(varied)},
    [KEY_WEIGHT_TYPE]   = {"weight_type", WORD, 0, 0, FP32, WORDS("fp32", "bf16", "fp16", "fp8"), IN(weight_type)},
    [KEY_MOMENTUM_TYPE] = {"momentum_type", WORD, 0, 0, FP32, WORDS("fp32", "bf16"), IN(momentum_type)},
    [KEY_GRAD_TYPE]     = {"grad_type", WORD, 0, 0, FP32, WORDS("fp32", "bf16", "fp16"), IN(grad_type)},
    [KEY_ROUNDING]      = {"rounding", WORD, 0, 0, ROUND_NEAREST, WORDS("nearest", "stochastic"), IN(rounding)},
    [KEY_ROW_STATE]     = {"row_state", WORD, 0, 0, ROW_STATE_APART, WORDS("apart", "beside", "all"), IN(row_state)},
    [KEY_SEED]          = {"seed", WHOLE, 0, WHOLE_MAX, 42, NULL, IN(seed)},
    [KEY_ROW_CAP]       = {"row_cap", WHOLE, 1, 1e12, 1e12, NULL},
};
/* clang-format on */

int fail_at(struct error *err, struct where at, const char *format, ...) {
    char what[sizeof err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (!at.file) return fail(err, "%s", what);
    if (at.line == 0) return fail(err, "%s: %s", at.file, what);
    return fail(err, "%s:%d: %s", at.file, at.line, what);
}

bool next_line(struct words *text, struct words *line, struct where *at) {
    if (text->at == text->end) return false;
    const char *end = memchr(text->at, '\n', (size_t)(text->end - text->at));
    *line = (struct words){text->at, end ? end : text->end};
    text->at = end ? end + 1 : text->end;
    const char *comment = memchr(line->at, '#', (size_t)(line->end - line->at));
    if (comment) line->end = comment;
    at->line++;
    return true;
}

bool next_word(struct words *line, char word[WORD_MAX]) {
    while (line->at < line->end && isspace((unsigned char)*line->at)) line->at++;
    size_t size = 0;
    for (; line->at < line->end && !isspace((unsigned char)*line->at); line->at++, size++)
        if (size < WORD_MAX - 1) word[size] = isprint((unsigned char)*line->at) ? *line->at : '?';
    word[size < WORD_MAX - 1 ? size : WORD_MAX - 1] = '\0';
    if (size > WORD_MAX - 1) memcpy(word + WORD_MAX - 4, "...", 3);
    return size > 0;
}

int next_pair(struct pairs *p, struct words *line, struct where at, char value[WORD_MAX],
              struct error *err) {
    char key[WORD_MAX];
    int k = 0;
    if (!next_word(line, key)) return -1;
    while (p->keys[k] && strcmp(p->keys[k], key) != 0) k++;
    if (!p->keys[k])
        fail_at(err, at, "'%s' in this line; write: %s", key, p->form);
    else if (p->seen[k])
        fail_at(err, at, "%s twice; write: %s", key, p->form);
    else if (!next_word(line, value))
        fail_at(err, at, "%s has no value; write: %s", key, p->form);
    else
        return p->seen[k] = true, k;
    return -2;
}

/* The position of the word; -1: it is not there, and known lists "a, b, c". */
static int find(const char *const *words, const char *word, char known[KNOWN_MAX]) {
    known[0] = '\0';
    for (int i = 0; words[i]; i++) {
        if (!strcmp(words[i], word)) return i;
        text_add(known, KNOWN_MAX, "%s%s", i ? ", " : "", words[i]);
    }
    return -1;
}

/* A decimal number and nothing else: no hexadecimal, no inf, no nan. One that is too close to 0 is not 0. */
static bool is_number(const char *word, double *out) {
    if (!*word || strspn(word, "0123456789+-.eE") != strlen(word)) return false;
    char *end;
    errno = 0;
    *out = strtod(word, &end);
    if (errno == ERANGE && *out == 0) *out = copysign(DBL_TRUE_MIN, *out);
    return *end == '\0' && isfinite(*out);
}

const char *key_name(enum key key) {
    return infos[key].name;
}

struct value key_preset(enum key key) {
    struct value v = {infos[key].preset, {LENGTH_FIXED, 20, 0}, ""};
    if (infos[key].takes == WHOLES) snprintf(v.text, sizeof v.text, "%.0f", v.number);
    return v;
}

void key_set(enum key key, double number, struct spec *s) {
    char *at = (char *)s + infos[key].at;
    if (infos[key].bytes == sizeof(bool))
        *(bool *)at = number != 0;
    else if (infos[key].bytes == sizeof(int32_t)) /* of an enum, too */
        *(int32_t *)at = (int32_t)number;
    else if (infos[key].takes == REAL)
        *(double *)at = number;
    else if (infos[key].bytes)
        *(int64_t *)at = (int64_t)number;
}

const char *key_word(enum key key, int number) {
    return infos[key].words[number];
}

enum key key_find(const char *name, struct where at, struct error *err) {
    const char *names[KEY_COUNT + 1] = {0};
    char known[KNOWN_MAX];
    for (int k = 0; k < KEY_COUNT; k++) names[k] = infos[k].name;
    int k = find(names, name, known);
    if (k >= 0) return (enum key)k;
    fail_at(err, at, "unknown key '%s'; known keys: workload, table, %s", name, known);
    return KEY_COUNT;
}

int number_read(const char *name, bool whole, double least, double most, const char *word,
                struct where at, double *out, struct error *err) {
    double x;
    if (!is_number(word, &x) || x < least || x > most || (whole && x != floor(x)))
        return fail_at(err, at, "%s is a %snumber from %.16g to %.16g, not '%s'", name,
                       whole ? "whole " : "", least, most, word);
    *out = x + 0.0; /* no -0 */
    return 0;
}

/* Whole numbers joined by '+'. */
static int numbers_read(const struct key_info *k, const char *word, struct where at,
                        struct value *out, struct error *err) {
    char number[WORD_MAX];
    out->text[0] = '\0';
    for (int count = 0; word; count++) {
        const int length = (int)strcspn(word, "+");
        snprintf(number, sizeof number, "%.*s", length, word);
        word = word[length] ? word + length + 1 : NULL;
        if (number_read(k->name, true, k->least, k->most, number, at, &out->number, err)) return -1;
        if (count == SPEC_BATCHES_MAX)
            return fail_at(err, at, "%s has more than %d numbers", k->name, SPEC_BATCHES_MAX);
        text_add(out->text, sizeof out->text, "%s%.0f", count ? "+" : "", out->number);
    }
    return 0;
}

int value_read(enum key key, const char *word, struct where at, struct value *out,
               struct error *err) {
    const struct key_info *k = &infos[key];
    *out = key_preset(key);
    if (k->takes == WORD) {
        char known[KNOWN_MAX];
        int i = find(k->words, word, known);
        if (i < 0) return fail_at(err, at, "%s is one of %s, not '%s'", k->name, known, word);
        out->number = i;
        snprintf(out->text, sizeof out->text, "%s", word);
        return 0;
    }
    if (k->takes == WHOLES) return numbers_read(k, word, at, out, err);
    if (number_read(k->name, k->takes == WHOLE, k->least, k->most, word, at, &out->number, err))
        return -1;
    snprintf(out->text, sizeof out->text, k->takes == WHOLE ? "%.0f" : "%.15g", out->number);
    return 0;
}

int length_read(const char *name, struct words *line, struct where at, struct value *out,
                struct error *err) {
    char word[WORD_MAX], known[KNOWN_MAX];
    int kind = find(infos[KEY_LENGTH].words, name, known);
    if (kind < 0)
        return fail_at(err, at, "length is one of fixed L, uniform LO HI, negbin MEAN CV, not '%s'",
                       name);
    double number[2] = {0, 0};
    for (int i = 0; i < (kind == LENGTH_FIXED ? 1 : 2); i++)
        if (!next_word(line, word) || !is_number(word, &number[i]))
            return fail_at(err, at,
                           "length %s%s%s: a number is missing; it is one of: fixed L, "
                           "uniform LO HI, negbin MEAN CV",
                           infos[KEY_LENGTH].words[kind], *word ? " " : "", word);
    *out = (struct value){0, {(enum length_kind)kind, number[0], number[1]}, ""};
    snprintf(out->text, sizeof out->text, "%.15g", number[0]);
    struct error why;
    if (length_spec_check(&out->length, &why)) return fail_at(err, at, "length %s", why.text);
    return 0;
}

int values_add(enum key key, struct values *list, const struct value *v, struct error *err) {
    for (int i = 0; i < list->count; i++)
        if (!strcmp(list->v[i].text, v->text))
            return fail_at(err, list->at, "%s has the value %s twice; delete one", infos[key].name,
                           v->text);
    if (list->count == VALUES_MAX)
        return fail_at(err, list->at, "%s has more than %d values", infos[key].name, VALUES_MAX);
    struct value *grown = realloc(list->v, (size_t)(list->count + 1) * sizeof *grown);
    if (!grown) return fail_at(err, list->at, "out of memory");
    list->v = grown;
    list->v[list->count++] = *v;
    return 0;
}

int values_read(enum key key, struct words *line, struct where at, struct values *out,
                struct error *err) {
    char word[WORD_MAX];
    struct value v;
    out->at = at;
    if (key == KEY_LENGTH) {
        if (!next_word(line, word)) word[0] = '\0';
        if (length_read(word, line, at, &v, err) || values_add(key, out, &v, err)) return -1;
        if (next_word(line, word))
            return fail_at(err, at, "'%s' is too much: a block has one length", word);
        return 0;
    }
    while (next_word(line, word))
        if (value_read(key, word, at, &v, err) || values_add(key, out, &v, err)) return -1;
    if (out->count == 0) return fail_at(err, at, "%s has no value; give one", infos[key].name);
    return 0;
}

void values_free(struct values *list) {
    free(list->v);
    *list = (struct values){0};
}

void spec_describe_batch(const struct spec *s, char *text, size_t size) {
    text_add(text, size, "%s ", key_name(KEY_BATCH));
    for (int i = 0; i < s->num_batches; i++)
        text_add(text, size, "%s%lld", i ? "+" : "", (long long)s->batches[i]);
}

void spec_describe_others(const struct spec *s, char *text, size_t size) {
    const struct {
        enum key key;
        int word;
    } of[] = {{KEY_DUPLICATES, s->mean_of_duplicates}, {KEY_HYPERS, s->varied},
              {KEY_WEIGHT_TYPE, (int)s->weight_type},  {KEY_MOMENTUM_TYPE, (int)s->momentum_type},
              {KEY_GRAD_TYPE, (int)s->grad_type},      {KEY_ROUNDING, (int)s->rounding},
              {KEY_ROW_STATE, (int)s->row_state}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].word != (int)key_preset(of[i].key).number)
            text_add(text, size, " %s %s", key_name(of[i].key), key_word(of[i].key, of[i].word));
    if (s->column_shards > 1)
        text_add(text, size, " %s %d", key_name(KEY_COLUMN_SHARDS), s->column_shards);
    if (s->micro_batches > 1)
        text_add(text, size, " %s %lld", key_name(KEY_MICRO_BATCHES), (long long)s->micro_batches);
}

int rule_parse(const char *name, enum rule_kind *out, struct error *err) {
    char known[KNOWN_MAX];
    int i = find(infos[KEY_RULE].words, name, known);
    if (i < 0) return fail(err, "unknown rule '%s'; known rules: %s", name, known);
    *out = (enum rule_kind)i;
    return 0;
}

int hyper_set(struct rule *rule, const char *name, const char *text, struct where at,
              struct error *err) {
    const int k = rule_hyper_of(rule->kind, name);
    const struct rule_info info = rule_info(rule->kind);
    const struct rule_param h = rule_hyper(&info, k);
    char *end;
    errno = 0;
    const float value = strtof(text, &end);
    const bool number = *text && !*end,
               lost = number && errno == ERANGE && (value == 0 || isinf(value));
    const bool good = number && !lost && rule_hyper_takes(&h, value);
    if (lost && !h.flag)
        return fail_at(err, at, "%s %.40s is too %s for single precision", name, text,
                       value == 0 ? "close to 0" : "large");
    if (!good) return fail_at(err, at, "%s is %s, not '%.40s'", name, h.range, text);
    *rule_value(rule, k) = value;
    return 0;
}
