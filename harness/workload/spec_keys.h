/* SPDX-License-Identifier: MIT
 *
 * The vocabulary of workload specs: the keys, the values that each takes, and functions that read
 * the values of one line. harness/workload/spec.c builds specs from them.
 */
#pragma once

#include <stdbool.h>

#include "harness/error.h"
#include "harness/workload/spec.h"

enum key {
    KEY_BATCH,
    KEY_MICRO_BATCHES,
    KEY_TABLES,
    KEY_ROWS,
    KEY_DIM,
    KEY_LENGTH,
    KEY_IDS,
    KEY_ALPHA,
    KEY_SHIFT,
    KEY_MAP,
    KEY_REUSE,
    KEY_FEATURES,
    KEY_COLUMN_SHARDS,
    KEY_POOLING,
    KEY_WEIGHTED,
    KEY_DUPLICATES,
    KEY_PADDING,
    KEY_ID_TYPE,
    KEY_RULE,
    KEY_HYPERS,
    KEY_WEIGHT_TYPE,
    KEY_MOMENTUM_TYPE,
    KEY_GRAD_TYPE,
    KEY_ROUNDING,
    KEY_ROW_STATE,
    KEY_SEED,
    KEY_ROW_CAP,
    KEY_COUNT
};

/* Where a text stands, for messages: FILE:LINE, or the name of a variable (line 0), or all NULL and 0. */
struct where {
    const char *file;
    int line;
};

int fail_at(struct error *err, struct where at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The unread words of a line, or lines of a text. */
struct words {
    const char *at, *end;
};

/* Takes the next line off a text, without its comment, and counts it. False at the end. */
bool next_line(struct words *text, struct words *line, struct where *at);

enum { WORD_MAX = 256 };

/* Copies the next word in printable form; "..." replaces the end of a long one, so that it matches
 * no known word. False at the end of the line. */
bool next_word(struct words *line, char word[WORD_MAX]);

/* A line of KEY VALUE pairs: only known keys, each at most once. */
struct pairs {
    const char *form;        /* the right form, for messages */
    const char *const *keys; /* the last is NULL */
    bool *seen;              /* by index in keys */
};

/* Reads the next pair and returns the key's index in keys. -1: end of the line; -2: err. */
int next_pair(struct pairs *p, struct words *line, struct where at, char value[WORD_MAX],
              struct error *err);

/* One value. The number of a word is its position in the enum. */
struct value {
    double number;             /* all keys but KEY_BATCH and KEY_LENGTH */
    struct length_spec length; /* KEY_LENGTH */
    char text[WORD_MAX];       /* canonical, for the names of an axis, and the value of KEY_BATCH */
};

/* The values of one key; none if the block does not have the key. */
struct values {
    int count;
    struct value *v; /* owned */
    struct where at;
};

const char *key_name(enum key key);
struct value key_preset(enum key key);

/* Sets the member of a spec that stands for the key, if there is one. */
void key_set(enum key key, double number, struct spec *s);

/* The word that stands for a value of an enum, or for a kind of length. */
const char *key_word(enum key key, int number);

/* The key of that name, or KEY_COUNT; then err lists the known ones. */
enum key key_find(const char *name, struct where at, struct error *err);

/* Reads a number: decimal, from least to most, and whole if it must be. */
int number_read(const char *name, bool whole, double least, double most, const char *word,
                struct where at, double *out, struct error *err);

/* Reads one value of any key but KEY_LENGTH from a word. */
int value_read(enum key key, const char *word, struct where at, struct value *out,
               struct error *err);

/* Reads the numbers of a length of this kind, and leaves the rest of the line. */
int length_read(const char *kind, struct words *line, struct where at, struct value *out,
                struct error *err);

/* Appends; the values of a key must differ. */
int values_add(enum key key, struct values *list, const struct value *v, struct error *err);

/* Reads the rest of the line: at least one value. */
int values_read(enum key key, struct words *line, struct where at, struct values *out,
                struct error *err);
void values_free(struct values *list);

/* Sets a hyper-parameter that the rule has, from text. */
int hyper_set(struct rule *rule, const char *name, const char *text, struct where at,
              struct error *err);
