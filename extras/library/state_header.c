/* SPDX-License-Identifier: MIT */
#include "extras/library/state.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness/workload/spec_keys.h"
#include "kernels/rules.h"

enum { NAME_SIZE = 32 };

static const char *tensor_name(char name[NAME_SIZE], int32_t table, int array) {
    snprintf(name, NAME_SIZE, "table.%d.%s", table, array_name(array));
    return name;
}

int state_tables(struct state *s, struct embfuse_error *why) {
    s->tables = calloc((size_t)s->num_tables, sizeof *s->tables);
    if (!s->tables) return said(why, EMBFUSE_NO_MEMORY, "out of memory");
    for (int32_t t = 0; t < s->num_tables; t++) {
        s->tables[t].rule = rule_default(s->shapes[t].rule);
        for (int a = 0; a < TABLE_ARRAYS; a++)
            s->tables[t].array[a].bytes = s->shapes[t].rows * state_row_bytes(&s->shapes[t], a);
    }
    return 0;
}

/* --- writing */

/* Adds a value to an object. lost: becomes true if there is no memory for it. */
static void put(json_t *object, const char *key, json_t *value, bool *lost) {
    *lost |= json_object_set_new(object, key, value) != 0;
}

static json_t *table_of(const struct state *s, int32_t t, bool *lost) {
    const struct table_shape *shape = &s->shapes[t];
    const struct rule_info *info = rule_info_of(shape->rule);
    struct state_table table = s->tables[t];
    json_t *hyper = json_object(), *sums = json_object();
    for (int k = 0; k < RULE_HYPERS; k++)
        if (rule_hyper(info, k).name)
            put(hyper, rule_hyper(info, k).name, json_real((double)*rule_value(&table.rule, k)),
                lost);
    for (int a = 0; a < TABLE_ARRAYS; a++)
        if (table.array[a].bytes) put(sums, array_name(a), json_string(table.array[a].xxh3), lost);
    return json_pack("{s:s, s:s, s:I, s:o, s:o}", "rule", info->name, "rounding",
                     key_word(KEY_ROUNDING, (int)shape->rounding), "steps", (json_int_t)table.steps,
                     "hyper", hyper, "xxh3", sums);
}

static json_t *tensor_of(const struct state *s, int32_t t, int a) {
    static const char *const types[] = {
        [FP32] = "F32", [BF16] = "BF16", [FP16] = "F16", [FP8] = "F8_E4M3"};
    const json_int_t begin = s->tables[t].array[a].at, end = begin + s->tables[t].array[a].bytes;
    int64_t dims[2];
    json_t *shape = json_array();
    for (int i = 0; i < table_array_shape(&s->shapes[t], a, dims); i++)
        json_array_append_new(shape, json_integer(dims[i]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", types[table_array_type(&s->shapes[t], a)],
                     "shape", shape, "data_offsets", begin, end);
}

/* The metadata is a map of strings: the state is the text of an object. */
static json_t *metadata_of(const struct state *s, bool *lost) {
    state_sum sum = "";
    json_t *tables = json_array();
    for (int32_t t = 0; t < s->num_tables; t++)
        *lost |= json_array_append_new(tables, table_of(s, t, lost)) != 0;
    json_t *all = json_pack("{s:i, s:s, s:o, s:o}", "version", STATE_VERSION, "library",
                            embfuse_version_text(), "rounding_seed",
                            json_sprintf("%" PRIu64, s->seed), "tables", tables);
    char *text = all ? json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    if (text) state_sum_print(sum, XXH3_64bits(text, strlen(text)));
    json_t *metadata = text ? json_pack("{s:s, s:s}", "embfuse", text, "xxh3", sum) : NULL;
    free(text);
    json_decref(all);
    return metadata;
}

char *state_header_print(const struct state *s, size_t *size) {
    bool lost = false;
    json_t *header = json_object();
    char name[NAME_SIZE];
    put(header, "__metadata__", metadata_of(s, &lost), &lost);
    for (int32_t t = 0; t < s->num_tables; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++)
            if (s->tables[t].array[a].bytes)
                put(header, tensor_name(name, t, a), tensor_of(s, t, a), &lost);
    char *text = lost ? NULL : json_dumps(header, JSON_COMPACT);
    json_decref(header);
    *size = text ? (strlen(text) + 7) / 8 * 8 : 0; /* so arrays are aligned */
    char *padded = text ? malloc(*size + 1) : NULL;
    if (padded) snprintf(padded, *size + 1, "%-*s", (int)*size, text);
    free(text);
    return padded;
}

/* --- reading */

struct reading {
    const char *path;
    struct state *s;
    struct embfuse_error *why;
};

static int damaged(const struct reading *r, const char *where, const char *what) {
    return said(r->why, EMBFUSE_FILE_ERROR,
                "%.200s: damaged, or not a file of embfuse_save(): %.60s: %.150s", r->path, where,
                what);
}

/* Takes both values, which must be the same. */
static int same(const struct reading *r, const char *what, json_t *is, json_t *own) {
    int status = 0;
    if (!json_equal(is, own)) {
        char *a = json_dumps(is, JSON_COMPACT | JSON_ENCODE_ANY);
        char *b = json_dumps(own, JSON_COMPACT | JSON_ENCODE_ANY);
        status = said(r->why, EMBFUSE_REFUSED, "%.200s: %s is %.90s, but the model's is %.90s",
                      r->path, what, a ? a : "missing", b ? b : "another one");
        free(a);
        free(b);
    }
    json_decref(is);
    json_decref(own);
    return status;
}

static int read_table(const struct reading *r, int32_t t, json_t *is) {
    struct state_table *to = &r->s->tables[t];
    const struct rule_info *info = rule_info_of(to->rule.kind);
    const char *name, *word = key_word(KEY_ROUNDING, (int)r->s->shapes[t].rounding);
    char what[NAME_SIZE];
    json_error_t at;
    json_t *rule, *rounding, *hyper, *sums, *value;
    json_int_t steps;
    if (json_unpack_ex(is, &at, JSON_STRICT, "{s:o, s:o, s:I, s:o, s:o}", "rule", &rule, "rounding",
                       &rounding, "steps", &steps, "hyper", &hyper, "xxh3", &sums))
        return damaged(r, "tables", at.text);
    snprintf(what, sizeof what, "rule of table %d", t);
    if (same(r, what, json_incref(rule), json_string(info->name))) return EMBFUSE_REFUSED;
    snprintf(what, sizeof what, "rounding of table %d", t);
    if (same(r, what, json_incref(rounding), json_string(word))) return EMBFUSE_REFUSED;
    if (steps < 0 || steps > MODEL_STEPS_MAX) return damaged(r, "tables", "steps");
    to->steps = steps;
    json_object_foreach(hyper, name, value) {
        const int k = rule_hyper_of(to->rule.kind, name);
        const struct rule_param p = rule_hyper(info, k < 0 ? 0 : k);
        const float number = (float)json_number_value(value);
        if (k < 0 || !json_is_number(value) || !rule_hyper_takes(&p, number))
            return damaged(r, name, k < 0 ? "no hyper-parameter of the rule" : p.range);
        *rule_value(&to->rule, k) = number;
    }
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        const char *sum = json_string_value(json_object_get(sums, array_name(a)));
        if (!to->array[a].bytes) continue;
        if (!sum || strlen(sum) >= sizeof(state_sum)) return damaged(r, "xxh3", array_name(a));
        strcpy(to->array[a].xxh3, sum);
    }
    return 0;
}

static int read_state(const struct reading *r, json_t *state) {
    json_error_t at;
    json_t *tables;
    const char *library, *seed;
    char *end;
    int version;
    if (json_unpack_ex(state, &at, 0, "{s:i, s:s}", "version", &version, "library", &library))
        return damaged(r, "embfuse", at.text);
    if (version != STATE_VERSION)
        return said(r->why, EMBFUSE_REFUSED,
                    "%.200s: format version %d; this library reads %d: load it with embfuse %.20s",
                    r->path, version, STATE_VERSION, library);
    if (json_unpack_ex(state, &at, 0, "{s:s, s:o}", "rounding_seed", &seed, "tables", &tables))
        return damaged(r, "embfuse", at.text);
    r->s->seed = strtoull(seed, &end, 10);
    if (!*seed || *end) return damaged(r, "rounding_seed", seed);
    int status = same(r, "number of tables", json_integer((json_int_t)json_array_size(tables)),
                      json_integer(r->s->num_tables));
    for (int32_t t = 0; status == 0 && t < r->s->num_tables; t++)
        status = read_table(r, t, json_array_get(tables, (size_t)t));
    return status;
}

static int by_begin(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* All arrays of the model and nothing else, in any order, but one after another. */
static int read_tensors(const struct reading *r, json_t *header, int64_t data_bytes) {
    const size_t arrays = (size_t)r->s->num_tables * TABLE_ARRAYS;
    char name[NAME_SIZE];
    int status = 0;
    size_t count = 0;
    json_int_t at;
    int64_t(*ranges)[2] = calloc(arrays, sizeof *ranges), end = 0;
    if (!ranges) return said(r->why, EMBFUSE_NO_MEMORY, "out of memory");
    for (int32_t t = 0; status == 0 && t < r->s->num_tables; t++)
        for (int a = 0; status == 0 && a < TABLE_ARRAYS; a++) {
            struct array_in_file *to = &r->s->tables[t].array[a];
            if (!to->bytes) continue;
            json_t *is = json_object_get(header, tensor_name(name, t, a));
            if (json_unpack(is, "{s:[I]}", "data_offsets", &at) || at < 0 || at > data_bytes)
                at = 0;
            to->at = at;
            status = same(r, name, json_incref(is), tensor_of(r->s, t, a));
            ranges[count][0] = to->at;
            ranges[count++][1] = to->at + to->bytes;
        }
    qsort(ranges, count, sizeof *ranges, by_begin);
    for (size_t i = 0; status == 0 && i < count; end = ranges[i++][1])
        if (ranges[i][0] != end)
            status = damaged(r, "data_offsets", "arrays overlap, or there is a hole between them");
    if (status == 0 && end != data_bytes)
        status = damaged(r, "data_offsets", "the file is longer or shorter than its arrays");
    if (status == 0 && json_object_size(header) != count + 1)
        status = damaged(r, "header", "more arrays than the model has");
    free(ranges);
    return status;
}

static int read_header(const struct reading *r, json_t *header, int64_t data_bytes) {
    json_error_t at;
    const char *text, *sum;
    state_sum is;
    if (json_unpack_ex(header, &at, 0, "{s:{s:s, s:s}}", "__metadata__", "embfuse", &text, "xxh3",
                       &sum))
        return damaged(r, "header", at.text);
    state_sum_print(is, XXH3_64bits(text, strlen(text)));
    if (strcmp(sum, is) != 0) return damaged(r, "__metadata__", "it has another checksum");
    json_t *state = json_loads(text, JSON_REJECT_DUPLICATES, &at);
    int status = state ? read_state(r, state) : damaged(r, "embfuse", at.text);
    json_decref(state);
    return status ? status : read_tensors(r, header, data_bytes);
}

int state_header_read(const char *path, const char *text, size_t size, int64_t data_bytes,
                      struct state *s, struct embfuse_error *why) {
    const struct reading r = {path, s, why};
    json_error_t at;
    json_t *header = json_loadb(text, size, JSON_REJECT_DUPLICATES, &at);
    int status = state_tables(s, why);
    if (status == 0)
        status = header ? read_header(&r, header, data_bytes) : damaged(&r, "header", at.text);
    json_decref(header);
    return status;
}
