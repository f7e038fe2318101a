/* SPDX-License-Identifier: MIT */
#include "cli/table_files.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/arrays.h"
#include "cli/description.h"

/* The arrays of a table, in this order. */
enum { WEIGHT, ELEM, ROW = ELEM + RULE_ELEM_STATES, ARRAYS };

/* data is NULL where the rule has no such array. */
struct array {
    float *data;
    int num_dims;
    int64_t shape[2], floats;
};

static struct array array_of(const struct table_set *s, int32_t t, int which) {
    const struct table *x = &s->tables[t];
    const struct table_shape *shape = &s->shapes[t];
    struct rule_info info = rule_info(shape->rule);
    int64_t width = which == ROW ? info.row_states : shape->dim;
    bool there =
        which == WEIGHT || (which == ROW ? info.row_states : which - ELEM < info.elem_states);
    float *data = which == WEIGHT ? x->weight : which == ROW ? x->row : x->elem[which - ELEM];
    return (struct array){there ? data : NULL,
                          which == ROW && width == 1 ? 1 : 2,
                          {shape->rows, width},
                          there ? shape->rows * width : 0};
}

static void name_of(const char *prefix, const struct table_set *s, int32_t t, int which,
                    char path[PATH_MAX]) {
    char table[16] = "", number[16] = "";
    if (s->count > 1) snprintf(table, sizeof table, ".%d", t);
    if (which >= ELEM && which < ROW) snprintf(number, sizeof number, ".%d", which - ELEM);
    snprintf(path, PATH_MAX, "%s.%s%s%s.npy", prefix,
             which == WEIGHT ? "weight"
             : which == ROW  ? "row_state"
                             : "state",
             table, number);
}

int table_files_shape(const char *weight, struct table_shape *shape, struct error *err) {
    struct npy a;
    if (array_read_floats(weight, false, &a, err)) return -1;
    int64_t rows = a.shape[0], dim = a.shape[1];
    bool good = a.num_dims == 2 && rows > 0 && dim > 0 && dim <= INT32_MAX;
    npy_free(&a);
    if (!good) return fail(err, "%s: weights are [rows][dim], neither of them 0", weight);
    shape->rows = rows;
    shape->dim = (int32_t)dim;
    return 0;
}

/* The states of a table that is new. */
static void fill_initial(enum rule_kind rule, int which, const struct array *to) {
    const struct rule_info info = rule_info(rule);
    for (int64_t i = 0; i < to->floats; i++)
        to->data[i] =
            which == ROW ? info.row[i % to->shape[1]].initial : info.elem[which - ELEM].initial;
}

static int read_array(const char *path, bool finite, const struct array *to, struct error *err) {
    struct npy a;
    if (array_read_floats(path, finite, &a, err)) return -1;
    int status = array_want_shape(path, &a, to->num_dims, to->shape,
                                  to->num_dims == 1 ? "[rows]" : "[rows][dim]", err);
    if (status == 0) memcpy(to->data, a.data, (size_t)to->floats * sizeof(float));
    npy_free(&a);
    return status;
}

int table_files_read(const struct table_paths *paths, bool finite, struct table_set *s, int32_t t,
                     struct error *err) {
    for (int which = 0; which < ARRAYS; which++) {
        const char *path = which == WEIGHT ? paths->weight
                           : which == ROW  ? paths->row
                                           : paths->elem[which - ELEM];
        struct array to = array_of(s, t, which);
        if (!to.data && path)
            return fail(err, "%s: the rule %s has no such state", path,
                        rule_info(s->shapes[t].rule).name);
        if (to.data && !path) fill_initial(s->shapes[t].rule, which, &to);
        if (to.data && path && read_array(path, finite, &to, err)) return -1;
    }
    return 0;
}

int table_files_read_all(const char *prefix, bool finite, bool zero_states, struct table_set *s,
                         struct error *err) {
    for (int32_t t = 0; t < s->count; t++)
        for (int which = 0; which < ARRAYS; which++) {
            char path[PATH_MAX];
            struct array to = array_of(s, t, which);
            name_of(prefix, s, t, which, path);
            bool fresh = which != WEIGHT && (zero_states || access(path, F_OK) != 0);
            if (to.data && fresh) fill_initial(s->shapes[t].rule, which, &to);
            if (to.data && !fresh && read_array(path, finite, &to, err)) return -1;
        }
    return 0;
}

/* Fails where the table was left by another rule, and the new one reads its states. */
static int check_rule(const char *path, const struct table_shape *was, int32_t t,
                      const struct table_shape *now, struct error *err) {
    struct rule_info info = rule_info(now->rule);
    if (was->rule == now->rule || info.elem_states + info.row_states == 0) return 0;
    return fail(err,
                "%s: the states of table %d are those of %s, not of %s; with --zero-states they "
                "start anew",
                path, t, rule_info(was->rule).name, info.name);
}

/* first: the table of the record that is shapes[0]; -1: the record has as many. */
static int read_record(const char *prefix, int32_t first, const struct table_shape *shapes,
                       int32_t count, int64_t *steps, struct error *err) {
    char path[PATH_MAX];
    struct description d;
    *steps = 0;
    snprintf(path, sizeof path, "%s.tables", prefix);
    if (access(path, F_OK) != 0) return 0;
    if (description_read_tables(path, &d, err)) return -1;
    *steps = d.steps;
    int status = 0;
    if (first < 0 ? d.num_tables != count : d.num_tables <= first)
        status = fail(err, "%s: %d tables; %d are wanted", path, d.num_tables,
                      first < 0 ? count : first + 1);
    for (int32_t t = 0; status == 0 && t < count; t++) {
        int32_t was = first < 0 ? t : first;
        status = check_rule(path, &d.tables[was], was, &shapes[t], err);
    }
    description_free(&d);
    return status;
}

int table_files_steps(const char *prefix, const struct table_shape *shapes, int32_t count,
                      int64_t *steps, struct error *err) {
    return read_record(prefix, -1, shapes, count, steps, err);
}

/* PREFIX.state.K.npy, PREFIX.state.T.K.npy, PREFIX.row_state.npy, PREFIX.row_state.T.npy */
int table_files_state_steps(const char *state, const struct table_shape *shape, int64_t *steps,
                            struct error *err) {
    static const char *const ends[] = {".state.", ".row_state."};
    *steps = 0;
    for (int row = 0; row < 2; row++) {
        const char *last = NULL;
        for (const char *at = state; (at = strstr(at, ends[row])); at++) last = at;
        if (!last) continue;
        char prefix[PATH_MAX];
        int table = 0, number = 0, used = 0;
        const char *form = row ? "%d.npy%n" : "%d.%d.npy%n";
        snprintf(prefix, sizeof prefix, "%.*s", (int)(last - state), state);
        last += strlen(ends[row]);
        if (row)
            sscanf(last, form, &table, &used);
        else
            sscanf(last, form, &table, &number, &used);
        bool several = used > 0 && !last[used] && table >= 0;
        return read_record(prefix, several ? table : 0, shape, 1, steps, err);
    }
    return 0;
}

static int write_record(struct outputs *o, const char *prefix, const struct table_set *s,
                        int64_t steps, struct error *err) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s.tables", prefix);
    FILE *file = outputs_text(o, path, err);
    if (!file) return -1;
    description_write_tables(file, s->shapes, s->count, steps);
    return outputs_text_end(file, path, err);
}

int table_files_write(struct outputs *o, const char *prefix, const struct table_set *s,
                      int64_t steps, struct error *err) {
    for (int32_t t = 0; t < s->count; t++)
        for (int which = 0; which < ARRAYS; which++) {
            char path[PATH_MAX];
            struct array a = array_of(s, t, which);
            name_of(prefix, s, t, which, path);
            if (a.data && outputs_npy(o, path, NPY_FLOAT32, a.num_dims, a.shape, a.data, err))
                return -1;
        }
    return write_record(o, prefix, s, steps, err);
}

void table_set_copy(const struct table_set *from, struct table_set *to) {
    for (int32_t t = 0; t < from->count; t++)
        for (int which = 0; which < ARRAYS; which++) {
            struct array a = array_of(from, t, which), b = array_of(to, t, which);
            if (a.data) memcpy(b.data, a.data, (size_t)a.floats * sizeof(float));
        }
}
