/* SPDX-License-Identifier: MIT */
#include "cli/table_files.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/arrays.h"
#include "cli/description.h"
#include "harness/workload/regular_file.h"

/* One array of a table, shaped as in its file; data is NULL if the rule has no such array. */
struct file_array {
    struct array rows;
    enum dtype type;
    int num_dims;
    int64_t shape[2];
};

static struct file_array array_of(const struct table_set *s, int32_t t, int a) {
    const struct table_shape *shape = &s->shapes[t];
    struct file_array f = {.rows = s->tables[t].array[a], .type = table_array_type(shape, a)};
    f.num_dims = table_array_shape(shape, a, f.shape);
    return f;
}

static struct path name_of(const char *prefix, const struct table_set *s, int32_t t, int a) {
    char name[TABLE_FILE_NAME];
    table_array_file(name, t, s->count, a);
    return path_of(prefix, name);
}

int table_files_shape(const char *weight, struct table_shape *shape, struct error *err) {
    struct npy a;
    if (array_read(weight, FP16, false, &a, err)) return -1;
    int64_t rows = a.shape[0], dim = a.shape[1];
    bool good = a.num_dims == 2 && rows > 0 && dim > 0 && dim <= INT32_MAX;
    npy_free(&a);
    if (!good) return fail(err, "%s: weights are [rows][dim], neither of them 0", weight);
    shape->weight_type = array_type(&a);
    shape->rows = rows;
    shape->dim = (int32_t)dim;
    return 0;
}

/* Sets the states of a new table. */
static void fill_initial(const struct rule *rule, int a, const struct file_array *to) {
    const struct rule_info info = rule_info(rule->kind);
    const bool of_row = a == TABLE_ROW_STATE;
    for (int64_t k = 0; k < to->shape[1]; k++) {
        const struct rule_state s = of_row ? info.row[k] : info.elem[a - TABLE_ELEM];
        const float initial = rule_initial(rule, &s);
        for (int64_t row = 0; row < to->shape[0]; row++)
            dtype_set(to->type, array_row(&to->rows, row), k, initial);
    }
}

/* A file holds the type of the array, or float32, which is rounded. path NULL: as in a new table. */
static int read_array(const char *path, bool finite, const struct rule *rule, int a,
                      const struct file_array *to, struct error *err) {
    struct npy file;
    if (!path) return fill_initial(rule, a, to), 0;
    if (array_read(path, to->type, finite, &file, err)) return -1;
    int status = array_want_shape(path, &file, to->num_dims, to->shape,
                                  to->num_dims == 1 ? "[rows]" : "[rows][dim]", err);
    int64_t i = 0;
    for (int64_t row = 0; status == 0 && row < to->shape[0]; row++)
        for (int64_t k = 0; k < to->shape[1]; k++)
            dtype_set(to->type, array_row(&to->rows, row), k,
                      dtype_get(array_type(&file), file.data, i++));
    npy_free(&file);
    return status;
}

static int write_array(struct outputs *o, const char *path, const struct file_array *from,
                       struct error *err) {
    const int64_t rows = from->shape[0], bytes = from->shape[1] * dtype_bytes(from->type);
    const enum npy_type type = npy_type_of(from->type);
    if (from->rows.stride == bytes)
        return outputs_npy(o, path, type, from->num_dims, from->shape, from->rows.data, err);
    char *all = malloc((size_t)(rows * bytes));
    if (!all) return fail(err, "%s: out of memory", path);
    for (int64_t row = 0; row < rows; row++)
        memcpy(all + row * bytes, array_row(&from->rows, row), (size_t)bytes);
    int status = outputs_npy(o, path, type, from->num_dims, from->shape, all, err);
    free(all);
    return status;
}

int table_files_read(const char *const paths[TABLE_ARRAYS], bool finite, const struct rule *rules,
                     struct table_set *s, int32_t t, struct error *err) {
    for (int a = 0; a < TABLE_ARRAYS; a++) {
        struct file_array to = array_of(s, t, a);
        if (!to.rows.data && paths[a])
            return fail(err, "%s: the rule %s has no such state", paths[a],
                        rule_info(s->shapes[t].rule).name);
        if (to.rows.data && read_array(paths[a], finite, &rules[t], a, &to, err)) return -1;
    }
    return 0;
}

int table_files_read_all(const char *prefix, bool finite, bool fresh_states,
                         const struct rule *rules, struct table_set *s, struct error *err) {
    for (int32_t t = 0; t < s->count; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            struct path path = name_of(prefix, s, t, a);
            struct file_array to = array_of(s, t, a);
            bool fresh = a != TABLE_WEIGHT && (fresh_states || access(path.text, F_OK) != 0);
            if (to.rows.data &&
                read_array(fresh ? NULL : path.text, finite, &rules[t], a, &to, err))
                return -1;
        }
    return 0;
}

/* Fails if the rule has states and another rule wrote them. */
static int go_on(const char *path, struct rule *was, int32_t t, struct rule *now,
                 struct error *err) {
    struct rule_info info = rule_info(now->kind);
    if (was->kind != now->kind && info.elem_states + info.row_states > 0)
        return fail(
            err, "%s: the states of table %d are those of %s, not of %s; --zero-states resets them",
            path, t, rule_info(was->kind).name, info.name);
    for (int k = 0; was->kind == now->kind && k < RULE_HYPERS; k++)
        if (!isnan(*rule_value(was, k))) *rule_value(now, k) = *rule_value(was, k);
    return 0;
}

int table_files_past(const char *prefix, int32_t first, struct rule *rules, int32_t count,
                     int64_t *steps, struct error *err) {
    const struct path path = path_of(prefix, "tables");
    struct description d;
    *steps = 0;
    if (access(path.text, F_OK) != 0) return 0;
    if (description_read_tables(path.text, &d, err)) return -1;
    *steps = d.steps;
    int status = 0;
    if (first < 0 ? d.num_tables != count : d.num_tables <= first)
        status = fail(err, "%s: %d tables; %d are wanted", path.text, d.num_tables,
                      first < 0 ? count : first + 1);
    for (int32_t t = 0; status == 0 && t < count; t++) {
        int32_t was = first < 0 ? t : first;
        status = go_on(path.text, &d.rules[was], was, &rules[t], err);
    }
    description_free(&d);
    return status;
}

/* PREFIX.state.K.npy, PREFIX.state.T.K.npy, PREFIX.row_state.npy, PREFIX.row_state.T.npy */
int table_files_state_past(const char *state, struct rule *rule, int64_t *steps,
                           struct error *err) {
    static const char *const ends[] = {".state.", ".row_state."}, *const forms[] = {"%d.%*d.npy%n",
                                                                                    "%d.npy%n"};
    *steps = 0;
    for (int row = 0; row < 2; row++) {
        const char *last = NULL;
        for (const char *at = state; (at = strstr(at, ends[row])); at++) last = at;
        if (!last) continue;
        char prefix[PATH_MAX];
        int table = 0, used = 0;
        snprintf(prefix, sizeof prefix, "%.*s", (int)(last - state), state);
        last += strlen(ends[row]);
        sscanf(last, forms[row], &table, &used);
        bool several = used > 0 && !last[used] && table >= 0;
        return table_files_past(prefix, several ? table : 0, rule, 1, steps, err);
    }
    return 0;
}

static int write_record(struct outputs *o, const char *prefix, const struct table_set *s,
                        struct rule *rules, int64_t steps, struct error *err) {
    const struct path path = path_of(prefix, "tables");
    FILE *file = outputs_text(o, path.text, err);
    if (!file) return -1;
    description_write_tables(file, s->shapes, rules, s->count, steps);
    return file_end(file, path.text, err);
}

int table_files_write(struct outputs *o, const char *prefix, const struct table_set *s,
                      struct rule *rules, int64_t steps, struct error *err) {
    for (int32_t t = 0; t < s->count; t++)
        for (int a = 0; a < TABLE_ARRAYS; a++) {
            struct file_array from = array_of(s, t, a);
            if (from.rows.data && write_array(o, name_of(prefix, s, t, a).text, &from, err))
                return -1;
        }
    return write_record(o, prefix, s, rules, steps, err);
}
