/* SPDX-License-Identifier: MIT
 *
 * Reads PREFIX.batch and PREFIX.tables. A user may have written them by hand.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/description.h"
#include "harness/workload/regular_file.h"

/* gen can make as many features from a spec. */
enum { FEATURES_MAX = SPEC_TABLES_MAX * 1024, FILE_MAX = 1 << 27 };

/* The current line, and the lines of the statements that may occur once. */
struct reading {
    struct description *d;
    bool record; /* PREFIX.tables, not PREFIX.batch */
    struct where at;
    int bags_line, weighted_line, steps_line;
};

/* A line of KEY VALUE pairs: only known keys, each at most once. */
struct pairs {
    const char *form; /* the right form, for messages */
    const char *const *keys;
    uint64_t seen; /* bits 1 << index in keys */
};

/* Reads the next pair and returns the key's index in keys. -1: end of the line; -2: err. */
static int next_pair(struct pairs *p, struct words *line, struct where at, char value[WORD_MAX],
                     struct error *err) {
    char key[WORD_MAX];
    int k = 0;
    if (!next_word(line, key)) return -1;
    while (p->keys[k] && strcmp(p->keys[k], key) != 0) k++;
    if (!p->keys[k])
        fail_at(err, at, "'%s' in this line; write: %s", key, p->form);
    else if (p->seen >> k & 1)
        fail_at(err, at, "%s twice; write: %s", key, p->form);
    else if (!next_word(line, value))
        fail_at(err, at, "%s has no value; write: %s", key, p->form);
    else
        return p->seen |= UINT64_C(1) << k, k;
    return -2;
}

static int add_table(struct reading *r, struct table_shape shape, char hyper[HYPERS_MAX][WORD_MAX],
                     struct error *err) {
    struct rule full = rule_default(shape.rule);
    if (r->d->num_tables == SPEC_TABLES_MAX)
        return fail_at(err, r->at, "more than %d tables; make several batches", SPEC_TABLES_MAX);
    for (int h = 0; hyper_name(h); h++) {
        if (!hyper[h][0]) continue;
        if (hyper_of(shape.rule, hyper_name(h)) < 0)
            return fail_at(err, r->at, "the rule %s has no %s; leave it out",
                           rule_info(shape.rule).name, hyper_name(h));
        if (hyper_set(&full, hyper_name(h), hyper[h], r->at, err)) return -1;
    }
    return description_add_table(r->d, shape, full, err);
}

static int read_table(struct words line, struct reading *r, struct error *err) {
    enum {
        ROWS,
        DIM,
        RULE,
        WEIGHT_TYPE,
        ROW_STATE,
        HYPER,
        WANTED = (1 << ROWS | 1 << DIM | 1 << RULE)
    };
    static const enum key meant[] = {KEY_ROWS, KEY_DIM, KEY_RULE, KEY_WEIGHT_TYPE, KEY_ROW_STATE};
    const char *keys[HYPER + HYPERS_MAX + 1] = {"rows", "dim", "rule", "weight_type", "row_state"};
    for (int h = 0; h < HYPERS_MAX; h++) keys[HYPER + h] = hyper_name(h);
    struct pairs p = {"table rows R dim D rule NAME [weight_type TYPE] [row_state apart|beside] "
                      "[lr X] [eps X] ...",
                      keys, 0};
    char text[WORD_MAX], hyper[HYPERS_MAX][WORD_MAX] = {{0}};
    struct value value[HYPER] = {{0}};
    int k, status = 0;
    while (status == 0 && (k = next_pair(&p, &line, r->at, text, err)) >= 0) {
        if (k < HYPER) status = value_read(meant[k], text, r->at, &value[k], err);
        if (k >= HYPER) strcpy(hyper[k - HYPER], text);
    }
    if (status || k == -2) return -1;
    if ((p.seen & WANTED) != WANTED)
        return fail_at(err, r->at, "a table line lacks something; write: %s", p.form);
    return add_table(r,
                     (struct table_shape){.rows = (int64_t)value[ROWS].number,
                                          .dim = (int32_t)value[DIM].number,
                                          .rule = (enum rule_kind)value[RULE].number,
                                          .weight_type = (enum dtype)value[WEIGHT_TYPE].number,
                                          .row_state = (enum row_state)value[ROW_STATE].number},
                     hyper, err);
}

static int read_feature(struct words line, struct reading *r, struct error *err) {
    static const char *const keys[] = {"table", "pooling", "padding", NULL};
    enum { TABLE, POOLING, PADDING };
    struct pairs p = {"feature table T [pooling sum|mean|none] [padding ID]", keys, 0};
    char text[WORD_MAX], *end;
    struct feature f = {.table = -1, .pooling = POOL_SUM, .padding_id = -1};
    struct value v;
    int k;
    while ((k = next_pair(&p, &line, r->at, text, err)) >= 0) {
        enum key key = k == POOLING ? KEY_POOLING : KEY_PADDING;
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
        return fail_at(err, r->at, "a feature line lacks its table; write: %s", p.form);
    if (r->d->num_features == FEATURES_MAX)
        return fail_at(err, r->at, "more than %d features; make several batches", FEATURES_MAX);
    return description_add_feature(r->d, f, err);
}

/* Reads KEY N, which may occur once; *first keeps its line. */
static int read_number(struct words line, struct reading *r, const char *key, int *first,
                       double least, double most, double *out, struct error *err) {
    char word[WORD_MAX], more[WORD_MAX];
    if (*first)
        return fail_at(err, r->at, "%s was given in line %d already; delete one", key, *first);
    *first = r->at.line;
    if (!next_word(&line, word) || next_word(&line, more))
        return fail_at(err, r->at, "write: %s N", key);
    char *end;
    *out = strtod(word, &end);
    if (strspn(word, "0123456789.eE+") != strlen(word) || *end ||
        !(*out >= least && *out <= most) || *out != floor(*out))
        return fail_at(err, r->at, "%s is a whole number from %g to %g, not '%s'", key, least, most,
                       word);
    return 0;
}

static int read_line(struct words line, struct reading *r, struct error *err) {
    char word[WORD_MAX];
    double number;
    const char *comment = memchr(line.at, '#', (size_t)(line.end - line.at));
    if (comment) line.end = comment;
    if (!next_word(&line, word)) return 0;
    if (strcmp(word, "table") == 0) return read_table(line, r, err);
    if (r->record && strcmp(word, "steps") == 0) {
        if (read_number(line, r, word, &r->steps_line, 0, STEPS_MAX, &number, err)) return -1;
        r->d->steps = (int64_t)number;
        return 0;
    }
    if (r->record) return fail_at(err, r->at, "'%s' begins no line; known: steps, table", word);
    if (strcmp(word, "feature") == 0) return read_feature(line, r, err);
    if (strcmp(word, "bags") == 0) {
        if (read_number(line, r, word, &r->bags_line, 1, 1e9, &number, err)) return -1;
        r->d->bags = (int64_t)number;
        return 0;
    }
    if (strcmp(word, "weighted") != 0)
        return fail_at(err, r->at, "'%s' begins no line; known: bags, weighted, table, feature",
                       word);
    if (read_number(line, r, word, &r->weighted_line, 0, 1, &number, err)) return -1;
    r->d->weighted = number != 0;
    return 0;
}

static int read_lines(const char *path, struct reading *r, struct error *err) {
    int64_t size;
    int fd = regular_file_open(path, &size, err);
    if (fd < 0) return -1;
    if (size > FILE_MAX) {
        close(fd);
        return fail(err, "%s: more than %d MiB; not a description", path, FILE_MAX >> 20);
    }
    FILE *file = fdopen(fd, "r");
    if (!file) {
        close(fd);
        return fail(err, "%s: out of memory", path);
    }
    char *text = NULL;
    size_t room = 0;
    int status = 0;
    r->at = (struct where){path, 0};
    for (ssize_t n; status == 0 && (n = getline(&text, &room, file)) >= 0;) {
        r->at.line++;
        status = read_line((struct words){text, text + n}, r, err);
    }
    if (status == 0 && ferror(file)) status = fail(err, "%s: %s", path, strerror(errno));
    free(text);
    fclose(file);
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
    if (status == 0 && (out->num_tables == 0 || !r.steps_line))
        status = fail(err, "%s: needs steps N and at least one table line", path);
    if (status) description_free(out);
    return status;
}
