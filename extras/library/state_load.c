/* SPDX-License-Identifier: MIT
 *
 * Every file is read twice: once to verify it, before any array changes, and once into the arrays. A file that
 * changes in between is noticed by the sum of the second time.
 */
#include <stdlib.h>

#include "kernels/rules.h"
#include "extras/library/state.h"

struct loading {
    struct embfuse_model *m;
    const char *directory;
    char folder[PATH_MAX];
    struct state state;
};

static int read_array(const struct loading *l, int32_t t, int a, struct embfuse_error *why) {
    const struct embfuse_model *m = l->m;
    const struct state_part whole = state_whole(&m->shapes[t], a);
    struct state_rows rows;
    int status =
        state_rows_open(&rows, m->place, &m->tables[t].array[a], &whole, m->shapes[t].rows, why);
    if (status == 0) status = state_verify(l->folder, &l->state, t, a, &rows, why);
    state_rows_close(&rows);
    return status;
}

/* put: into the arrays. */
static int read_arrays(const struct loading *l, bool put, struct embfuse_error *why) {
    int status = 0;
    for (int32_t t = 0; status == 0 && t < l->m->num_tables; t++)
        for (int a = 0; status == 0 && a < TABLE_ARRAYS; a++)
            if (table_array_width(&l->m->shapes[t], a))
                status = put ? read_array(l, t, a, why)
                             : state_verify(l->folder, &l->state, t, a, NULL, why);
    return status;
}

/* Reads the manifest, and verifies all files. */
static int verify(void *ctx, int64_t number, struct embfuse_error *why) {
    struct loading *l = ctx;
    int status = state_path(l->folder, l->directory, number, "", why);
    if (status == 0) status = state_manifest(l->folder, &l->state, why);
    if (status == 0) status = state_fits(l->folder, &l->state, l->m->shapes, l->m->num_tables, why);
    if (status == 0) status = read_arrays(l, false, why);
    if (status == 0) return 0;
    free(l->state.tables);
    l->state.tables = NULL;
    return status;
}

static int take(const struct loading *l, struct embfuse_error *why) {
    struct embfuse_model *m = l->m;
    struct embfuse_error text;
    const int status = read_arrays(l, true, &text);
    if (status)
        return said(
            why, status == STATE_UNREADABLE ? EMBFUSE_FILE_ERROR : status,
            "%.350s; it failed after it had been verified: load again, the arrays are half read",
            text.text);
    set_rounding_seed(m, l->state.seed);
    for (int32_t t = 0; t < m->num_tables; t++) {
        m->rules[t] = l->state.tables[t].rule;
        m->shapes[t].adjusts = rule_adjusts(&m->rules[t]);
        m->steps[t].number = l->state.tables[t].steps;
    }
    return 0;
}

int embfuse_load(struct embfuse_model *m, const char *directory, struct embfuse_loaded *loaded,
                 struct embfuse_error *why) {
    IN_CALL(m, why);
    if (!directory) return said(why, EMBFUSE_INVALID, "directory is NULL");
    if (loaded && loaded->size != sizeof *loaded)
        return said(why, EMBFUSE_INVALID,
                    "loaded.size is %zu, but sizeof(struct embfuse_loaded) is %zu", loaded->size,
                    sizeof *loaded);
    struct loading l = {.m = m, .directory = directory};
    struct embfuse_loaded is;
    int64_t *numbers = NULL;
    int32_t count;
    int status = check_bound(m, true, why);
    if (status == 0) status = state_list_path(directory, &numbers, &count, why);
    if (status == 0) status = state_newest(directory, numbers, count, verify, &l, &is, why);
    if (status == 0) status = take(&l, why);
    if (status == 0 && loaded) *loaded = is;
    free(l.state.tables);
    free(numbers);
    return status;
}
