/* SPDX-License-Identifier: MIT */
#include "cli/description.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness/id_stats.h"

/* clang-format off */
static const struct hyper {
    const char *name;
    size_t at;
    double least, below;
} hypers[HYPERS] = {
    {"lr",       offsetof(struct rule, lr),       -INFINITY, INFINITY},
    {"eps",      offsetof(struct rule, eps),      0,         INFINITY},
    {"momentum", offsetof(struct rule, momentum), 0,         INFINITY},
    {"beta1",    offsetof(struct rule, beta1),    0,         1},
    {"beta2",    offsetof(struct rule, beta2),    0,         1},
};
/* clang-format on */

const char *hyper_name(int i) {
    return hypers[i].name;
}

int hyper_set(struct rule *rule, int i, const char *text, struct where at, struct error *err) {
    const struct hyper *h = &hypers[i];
    char *end;
    float value = strtof(text, &end);
    if (!*text || *end || !isfinite(value) || value < h->least || value >= h->below)
        return fail_at(err, at, "%s is a number%s%s, not '%.40s'", h->name,
                       h->least == 0 ? " from 0" : "", h->below == 1 ? " to below 1" : "", text);
    *(float *)((char *)rule + h->at) = value;
    return 0;
}

static int append(void **list, int32_t count, const void *item, size_t size, struct error *err) {
    void *grown = realloc(*list, (size_t)(count + 1) * size);
    if (!grown) return fail(err, "out of memory");
    *list = grown;
    memcpy((char *)grown + (size_t)count * size, item, size);
    return 0;
}

int description_add_table(struct description *d, struct table_shape table, struct rule rule,
                          struct error *err) {
    void *tables = d->tables, *rules = d->rules;
    const struct table_shape *last = d->num_tables ? &d->tables[d->num_tables - 1] : NULL;
    table.first_row = last ? last->first_row + last->rows : 0;
    int status = append(&tables, d->num_tables, &table, sizeof table, err);
    if (status == 0) status = append(&rules, d->num_tables, &rule, sizeof rule, err);
    d->tables = tables;
    d->rules = rules;
    d->num_tables += status == 0;
    return status;
}

int description_add_feature(struct description *d, struct feature feature, struct error *err) {
    void *features = d->features;
    if (append(&features, d->num_features, &feature, sizeof feature, err)) return -1;
    d->features = features;
    d->num_features++;
    return 0;
}

void description_free(struct description *d) {
    free(d->tables);
    free(d->rules);
    free(d->features);
    *d = (struct description){0};
}

/* The words of a line, in pairs KEY VALUE. 1: there is one, 0: the end, -1: err. */
static int next_pair(struct words *line, struct where at, const char *form, char key[WORD_MAX],
                     char value[WORD_MAX], struct error *err) {
    if (!next_word(line, key)) return 0;
    if (next_word(line, value)) return 1;
    return fail_at(err, at, "%s has no value; write: %s", key, form);
}

static int find_hyper(const char *name) {
    for (int i = 0; i < HYPERS; i++)
        if (strcmp(name, hypers[i].name) == 0) return i;
    return -1;
}

static int read_table(struct words line, struct where at, struct description *d,
                      struct error *err) {
    static const char form[] = "table rows R dim D rule NAME [lr X] [eps X] [momentum X] ...";
    char key[WORD_MAX], text[WORD_MAX], hyper[HYPERS][WORD_MAX] = {{0}};
    struct value rows = {0}, dim = {0}, rule = {-1, {0}, ""};
    int more, status = 0;
    while (status == 0 && (more = next_pair(&line, at, form, key, text, err)) > 0) {
        int h = find_hyper(key);
        if (h >= 0)
            strcpy(hyper[h], text);
        else if (strcmp(key, "rows") == 0)
            status = value_read(KEY_ROWS, text, at, &rows, err);
        else if (strcmp(key, "dim") == 0)
            status = value_read(KEY_DIM, text, at, &dim, err);
        else if (strcmp(key, "rule") == 0)
            status = value_read(KEY_RULE, text, at, &rule, err);
        else
            status = fail_at(err, at, "'%s' in a table line; write: %s", key, form);
    }
    if (status || more < 0) return -1;
    if (rows.number < 1 || dim.number < 1 || rule.number < 0)
        return fail_at(err, at, "a table line lacks something; write: %s", form);
    struct table_shape shape = {.rows = (int64_t)rows.number,
                                .dim = (int32_t)dim.number,
                                .rule = (enum rule_kind)rule.number};
    struct rule r = rule_default(shape.rule);
    for (int h = 0; h < HYPERS; h++)
        if (hyper[h][0] && hyper_set(&r, h, hyper[h], at, err)) return -1;
    return description_add_table(d, shape, r, err);
}

static int read_feature(struct words line, struct where at, struct description *d,
                        struct error *err) {
    static const char form[] = "feature table T [pooling sum|mean|none] [padding ID]";
    char key[WORD_MAX], text[WORD_MAX];
    struct feature f = {.table = -1, .pooling = POOL_SUM, .padding_id = -1};
    struct value v;
    for (int more; (more = next_pair(&line, at, form, key, text, err)) != 0;) {
        if (more < 0) return -1;
        if (strcmp(key, "table") == 0) {
            char *end;
            long t = strtol(text, &end, 10);
            if (*end || t < 0 || t >= d->num_tables)
                return fail_at(err, at, "table '%s': there are %d above this line", text,
                               d->num_tables);
            f.table = (int32_t)t;
        } else if (strcmp(key, "pooling") == 0) {
            if (value_read(KEY_POOLING, text, at, &v, err)) return -1;
            f.pooling = (enum pooling)v.number;
        } else if (strcmp(key, "padding") == 0) {
            if (value_read(KEY_PADDING, text, at, &v, err)) return -1;
            f.padding_id = (int64_t)v.number;
        } else {
            return fail_at(err, at, "'%s' in a feature line; write: %s", key, form);
        }
    }
    if (f.table < 0) return fail_at(err, at, "a feature line lacks its table; write: %s", form);
    return description_add_feature(d, f, err);
}

static int read_line(struct words line, struct where at, struct description *d, struct error *err) {
    char word[WORD_MAX], more[WORD_MAX];
    struct value v;
    const char *comment = memchr(line.at, '#', (size_t)(line.end - line.at));
    if (comment) line.end = comment;
    if (!next_word(&line, word)) return 0;
    if (strcmp(word, "table") == 0) return read_table(line, at, d, err);
    if (strcmp(word, "feature") == 0) return read_feature(line, at, d, err);
    bool bags = strcmp(word, "bags") == 0;
    if (!bags && strcmp(word, "weighted") != 0)
        return fail_at(err, at, "'%s' begins no line; known: bags, weighted, table, feature", word);
    if (!next_word(&line, word) || next_word(&line, more))
        return fail_at(err, at, "write: %s", bags ? "bags B" : "weighted 0|1");
    if (value_read(bags ? KEY_BATCH : KEY_WEIGHTED, word, at, &v, err))
        return bags ? fail_at(err, at, "bags is a whole number from 1 to 1e9, not '%s'", word) : -1;
    if (bags)
        d->bags = (int64_t)v.number;
    else
        d->weighted = v.number != 0;
    return 0;
}

int description_check(const struct description *d, const char *path, struct error *err) {
    if (d->num_tables == 0 || d->num_features == 0)
        return fail(err, "%s: at least one table and one feature line are wanted", path);
    for (int32_t i = 0; i < d->num_features; i++) {
        const struct feature *f = &d->features[i];
        int64_t rows = d->tables[f->table].rows;
        if ((f->pooling == POOL_NONE) != (d->features[0].pooling == POOL_NONE))
            return fail(err, "%s: pooling none beside another; make two batches of them", path);
        if (f->padding_id >= rows)
            return fail(err, "%s: feature %d: padding %lld is no row of a table of %lld rows", path,
                        i, (long long)f->padding_id, (long long)rows);
    }
    return 0;
}

int description_read(const char *path, struct description *out, struct error *err) {
    *out = (struct description){0};
    FILE *file = fopen(path, "r");
    if (!file) return fail(err, "%s: cannot open: %s", path, strerror(errno));
    char *text = NULL;
    size_t room = 0;
    int status = 0, line = 0;
    for (ssize_t n; status == 0 && (n = getline(&text, &room, file)) >= 0;)
        status = read_line((struct words){text, text + n}, (struct where){path, ++line}, out, err);
    if (status == 0 && ferror(file)) status = fail(err, "%s: %s", path, strerror(errno));
    free(text);
    fclose(file);
    if (status == 0) status = description_check(out, path, err);
    if (status) description_free(out);
    return status;
}

void description_write(FILE *file, const struct workload *w, int batch) {
    const struct batch *in = &w->batches[batch];
    fprintf(file,
            "# %s: %s\n# batch number %d\n# fingerprint %016" PRIx64 "\nbags %lld\nweighted %d\n",
            w->name, w->text, batch, batch_fingerprint(&w->batches[batch]), (long long)in->bags,
            in->lookup_weights != NULL);
    for (int32_t t = 0; t < in->num_tables; t++)
        fprintf(file, "table rows %lld dim %d rule %s\n", (long long)in->tables[t].rows,
                in->tables[t].dim, rule_info(in->tables[t].rule).name);
    for (int32_t f = 0; f < in->num_features; f++)
        fprintf(file, "feature table %d pooling %s padding %lld\n", in->features[f].table,
                key_word(KEY_POOLING, (int)in->features[f].pooling),
                (long long)in->features[f].padding_id);
}
