/* SPDX-License-Identifier: MIT */
#include "extras/library/state.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "harness/workload/npy.h"
#include "harness/workload/spec_keys.h"
#include "harness/workload/tables.h"
#include "kernels/rules.h"

static const char magic[] = "embfuse state ";
enum { END_BYTES = 21 }; /* "end ", 16 digits, newline */

static void print_end(char line[END_BYTES + 1], const char *text, size_t size) {
    snprintf(line, END_BYTES + 1, "end %016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, size));
}

/* --- writing */

/* The fewest digits that read back as the same float. */
static void print_float(FILE *f, const char *name, float value) {
    char digits[32];
    for (int n = 1; n <= 9; n++) {
        snprintf(digits, sizeof digits, "%.*g", n, (double)value);
        if (strtof(digits, NULL) == value) break;
    }
    fprintf(f, " %s %s", name, digits);
}

static void shape_text(char text[WORD_MAX], const struct table_shape *shape, int array) {
    int64_t dims[2];
    const int count = table_array_shape(shape, array, dims);
    snprintf(text, WORD_MAX, "%" PRId64, dims[0]);
    if (count > 1) text_add(text, WORD_MAX, ",%" PRId64, dims[1]);
}

static const char *type_name(const struct table_shape *shape, int array) {
    return npy_type_name(npy_type_of(table_array_type(shape, array)));
}

static void print_table(FILE *f, const struct state *s, int32_t t) {
    struct state_table table = s->tables[t];
    const struct rule_info *info = rule_info_of(table.shape.rule);
    fprintf(f,
            "table rows %" PRId64 " dim %" PRId32 " rule %s weight_type %s momentum_type %s "
            "rounding %s steps %" PRId64 "\nhyper",
            table.shape.rows, table.shape.dim, info->name,
            key_word(KEY_WEIGHT_TYPE, (int)table.shape.weight_type),
            key_word(KEY_MOMENTUM_TYPE, (int)table.shape.momentum_type),
            key_word(KEY_ROUNDING, (int)table.shape.rounding), table.steps);
    for (int k = 0; k < RULE_HYPERS; k++)
        if (rule_hyper(info, k).name)
            print_float(f, rule_hyper(info, k).name, *rule_value(&table.rule, k));
    fputs("\n", f);
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        char name[TABLE_FILE_NAME], shape[WORD_MAX];
        if (!table_array_width(&table.shape, a)) continue;
        table_array_file(name, t, s->num_tables, a);
        shape_text(shape, &table.shape, a);
        fprintf(f, "file %s bytes %" PRId64 " type %s shape %s xxh3 %016" PRIx64 "\n", name,
                table.file[a].bytes, type_name(&table.shape, a), shape, table.file[a].xxh3);
    }
}

char *state_text_print(const struct state *s, size_t *size) {
    char *text = NULL, end[END_BYTES + 1];
    FILE *f = open_memstream(&text, size);
    /* The program may have chosen a locale whose numbers have a comma. */
    const locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    const locale_t its = plain ? uselocale(plain) : (locale_t)0;
    if (f && plain) {
        fprintf(f, "%s%d\nlibrary %s\nrounding_seed %" PRIu64 "\n", magic, STATE_VERSION,
                embfuse_version_text(), s->seed);
        for (int32_t t = 0; t < s->num_tables; t++) print_table(f, s, t);
        if (fflush(f) == 0) {
            print_end(end, text, *size);
            fputs(end, f);
        }
    }
    const bool whole = f && plain && !ferror(f);
    if (plain) uselocale(its), freelocale(plain);
    if (f && fclose(f) == 0 && whole) return text;
    free(text);
    return NULL;
}

/* --- reading */

struct reading {
    struct state *to;
    struct where at;
    struct state_table *table; /* that the next lines are of */
    int array;                 /* whose file comes next; TABLE_ARRAYS: none */
    bool seed;
    struct error *err;
};

static int whole_read(const struct reading *r, const char *name, const char *word, int base,
                      uint64_t most, uint64_t *out) {
    bool digits = *word;
    for (const char *c = word; *c; c++) digits &= base == 16 ? isxdigit(*c) != 0 : isdigit(*c) != 0;
    errno = 0;
    *out = digits ? strtoull(word, NULL, base) : 0;
    if (digits && !errno && *out <= most) return 0;
    return fail_at(r->err, r->at, "%s is a whole number%s, not '%s'", name,
                   base == 16 ? " of hexadecimal digits" : "", word);
}

static int word_read(const struct reading *r, enum key key, const char *word, int *out) {
    struct value v;
    const int status = value_read(key, word, r->at, &v, r->err);
    *out = (int)v.number;
    return status;
}

/* The number of the next array that the table has, from `array` on. */
static int next_array(const struct state_table *t, int array) {
    while (array < TABLE_ARRAYS && !table_array_width(&t->shape, array)) array++;
    return array;
}

static int no_files_missing(const struct reading *r) {
    char name[TABLE_FILE_NAME];
    if (!r->table || r->array == TABLE_ARRAYS) return 0;
    table_array_file(name, (int32_t)(r->table - r->to->tables), r->to->num_tables, r->array);
    return fail_at(r->err, r->at, "the line of %s is missing", name);
}

static int read_table(struct words line, struct reading *r) {
    enum { ROWS, DIM, STEPS, RULE, WEIGHT_TYPE, MOMENTUM_TYPE, ROUNDING, KEYS };
    static const char *const keys[] = {"rows",        "dim",           "steps",    "rule",
                                       "weight_type", "momentum_type", "rounding", NULL};
    static const enum key words[] = {KEY_RULE, KEY_WEIGHT_TYPE, KEY_MOMENTUM_TYPE, KEY_ROUNDING};
    static const uint64_t most[] = {INT64_MAX / 2, INT32_MAX, MODEL_STEPS_MAX};
    uint64_t number[RULE] = {0};
    int kind[KEYS] = {0}, k;
    bool seen[KEYS] = {false};
    char value[WORD_MAX];
    struct pairs p = {
        "table rows R dim D rule NAME steps N [weight_type TYPE] [momentum_type TYPE] "
        "[rounding nearest|stochastic]",
        keys, seen};
    if (no_files_missing(r)) return -1;
    while ((k = next_pair(&p, &line, r->at, value, r->err)) >= 0)
        if (k < RULE ? whole_read(r, keys[k], value, 10, most[k], &number[k])
                     : word_read(r, words[k - RULE], value, &kind[k]))
            return -1;
    if (k == -2) return -1;
    if (!number[ROWS] || !number[DIM] || !seen[RULE] || !seen[STEPS])
        return fail_at(r->err, r->at, "a table line lacks something; write: %s", p.form);
    r->table = r->table ? r->table + 1 : r->to->tables;
    *r->table = (struct state_table){.shape = {.rows = (int64_t)number[ROWS],
                                               .dim = (int32_t)number[DIM],
                                               .rule = (enum rule_kind)kind[RULE],
                                               .weight_type = (enum dtype)kind[WEIGHT_TYPE],
                                               .momentum_type = (enum dtype)kind[MOMENTUM_TYPE],
                                               .rounding = (enum rounding)kind[ROUNDING]},
                                     .rule = rule_default((enum rule_kind)kind[RULE]),
                                     .steps = (int64_t)number[STEPS]};
    r->array = next_array(r->table, 0);
    return 0;
}

static int read_hyper(struct words line, struct reading *r) {
    const struct rule_info *info = rule_info_of(r->table->shape.rule);
    const char *keys[RULE_HYPERS + 1] = {NULL};
    bool seen[RULE_HYPERS] = {false};
    char value[WORD_MAX];
    int count = 0, k;
    for (int h = 0; h < RULE_HYPERS; h++)
        if (rule_hyper(info, h).name) keys[count++] = rule_hyper(info, h).name;
    struct pairs p = {"hyper NAME VALUE ..., as the rule has them", keys, seen};
    while ((k = next_pair(&p, &line, r->at, value, r->err)) >= 0)
        if (hyper_set(&r->table->rule, keys[k], value, r->at, r->err)) return -1;
    return k == -1 ? 0 : -1;
}

static int read_file(struct words line, struct reading *r) {
    enum { NAME, BYTES, TYPE, SHAPE, XXH3, KEYS };
    static const char *const keys[] = {"file", "bytes", "type", "shape", "xxh3", NULL};
    bool seen[KEYS] = {false};
    char value[KEYS][WORD_MAX] = {{0}}, word[WORD_MAX], name[TABLE_FILE_NAME], shape[WORD_MAX];
    uint64_t bytes;
    int k;
    struct pairs p = {"file NAME bytes N type TYPE shape ROWS[,WIDTH] xxh3 SUM", keys, seen};
    while ((k = next_pair(&p, &line, r->at, word, r->err)) >= 0) strcpy(value[k], word);
    if (k == -2) return -1;
    if (r->array == TABLE_ARRAYS) return fail_at(r->err, r->at, "a file more than the table has");
    table_array_file(name, (int32_t)(r->table - r->to->tables), r->to->num_tables, r->array);
    shape_text(shape, &r->table->shape, r->array);
    const char *type = type_name(&r->table->shape, r->array);
    if (strcmp(value[NAME], name) != 0 || strcmp(value[TYPE], type) != 0 ||
        strcmp(value[SHAPE], shape) != 0)
        return fail_at(r->err, r->at, "here the table has file %s, type %s, shape %s", name, type,
                       shape);
    struct state_file *f = &r->table->file[r->array];
    if (whole_read(r, "bytes", value[BYTES], 10, INT64_MAX, &bytes) ||
        whole_read(r, "xxh3", value[XXH3], 16, UINT64_MAX, &f->xxh3))
        return -1;
    f->bytes = (int64_t)bytes;
    r->array = next_array(r->table, r->array + 1);
    return 0;
}

static int read_seed(struct words line, struct reading *r) {
    char value[WORD_MAX], more[WORD_MAX];
    if (r->seed || !next_word(&line, value) || next_word(&line, more))
        return fail_at(r->err, r->at, "write once: rounding_seed N");
    r->seed = true;
    return whole_read(r, "rounding_seed", value, 10, UINT64_MAX, &r->to->seed);
}

static int read_line(struct words line, struct reading *r) {
    const struct words all = line;
    char word[WORD_MAX];
    if (!next_word(&line, word) || strcmp(word, "library") == 0) return 0;
    if (strcmp(word, "rounding_seed") == 0) return read_seed(line, r);
    if (strcmp(word, "table") == 0) return read_table(line, r);
    if (strcmp(word, "hyper") == 0 && r->table) return read_hyper(line, r);
    if (strcmp(word, "file") == 0 && r->table) return read_file(all, r);
    return fail_at(r->err, r->at, "'%s' begins no line here", word);
}

static int read_lines(struct words rest, struct reading *r) {
    struct words line;
    int status = 0;
    while (status == 0 && next_line(&rest, &line, &r->at)) status = read_line(line, r);
    if (status == 0) status = no_files_missing(r);
    if (status == 0 && (!r->seed || !r->table))
        status = fail_at(r->err, r->at, "rounding_seed or a table is missing");
    return status;
}

/* Table lines, of a text without what is before the second line. */
static int32_t count_tables(struct words text) {
    struct words line;
    char word[WORD_MAX];
    int32_t count = 0;
    while (next_line(&text, &line, &(struct where){0}))
        count += next_word(&line, word) && strcmp(word, "table") == 0;
    return count;
}

static int read_body(const char *path, struct words text, struct state *out, struct error *err) {
    struct reading r = {
        .to = out, .at = {path, 1}, .table = NULL, .array = TABLE_ARRAYS, .err = err};
    out->num_tables = count_tables(text);
    out->tables = calloc((size_t)out->num_tables + 1, sizeof *out->tables);
    const locale_t plain = newlocale(LC_NUMERIC_MASK, "C", (locale_t)0);
    if (!out->tables || !plain) {
        if (plain) freelocale(plain);
        return fail(err, "%s: out of memory", path), EMBFUSE_NO_MEMORY;
    }
    const locale_t its = uselocale(plain);
    const int status = read_lines(text, &r);
    uselocale(its);
    freelocale(plain);
    return status ? EMBFUSE_FILE_ERROR : 0;
}

int state_text_read(const char *path, const char *text, size_t size, struct state *out,
                    struct error *err) {
    char end[END_BYTES + 1], word[WORD_MAX];
    const size_t body = size < END_BYTES ? 0 : size - END_BYTES;
    struct words rest = {text, text + body}, line;
    *out = (struct state){0};
    if (size < sizeof magic - 1 || memcmp(text, magic, sizeof magic - 1) != 0)
        return fail(err, "%s: not the manifest of a saved state", path), EMBFUSE_FILE_ERROR;
    print_end(end, text, body);
    if (size < END_BYTES || memcmp(text + body, end, END_BYTES) != 0)
        return fail(err, "%s: damaged: its last line is not the checksum of the others", path),
               EMBFUSE_FILE_ERROR;
    next_line(&rest, &line, &(struct where){0});
    line.at += sizeof magic - 1;
    if (!next_word(&line, word)) word[0] = '\0';
    if (atoi(word) != STATE_VERSION)
        return fail(err, "%s: format version %s; this library reads %d: load it with a newer one",
                    path, word, STATE_VERSION),
               EMBFUSE_REFUSED;
    const int status = read_body(path, rest, out, err);
    if (status == 0) return 0;
    free(out->tables);
    *out = (struct state){0};
    return status;
}
