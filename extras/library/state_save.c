/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "extras/library/state.h"

static int describe(const struct embfuse_model *m, struct state *state, struct embfuse_error *why) {
    *state = (struct state){.seed = m->rounding_seed,
                            .num_tables = m->num_tables,
                            .tables = calloc((size_t)m->num_tables, sizeof *state->tables)};
    if (!state->tables) return said(why, EMBFUSE_NO_MEMORY, "out of memory");
    for (int32_t t = 0; t < m->num_tables; t++)
        state->tables[t] = (struct state_table){
            .shape = m->shapes[t], .rule = m->rules[t], .steps = m->steps[t].number};
    return 0;
}

static int write_array(const struct state_save *s, const struct embfuse_model *m,
                       const struct state *state, int32_t t, int a, XXH3_state_t *sum) {
    const struct table_shape *shape = &m->shapes[t];
    const struct state_part whole = state_whole(shape, a);
    struct state_rows rows;
    struct state_out out = {.fd = -1};
    int status =
        state_rows_open(&rows, m->place, &m->tables[t].array[a], &whole, shape->rows, s->why);
    if (status == 0) status = state_out_open(s, state, t, a, sum, &out);
    if (status == 0) status = state_out_rows(s, &out, &rows, sum);
    state->tables[t].file[a] =
        (struct state_file){state_file_bytes(shape, a), XXH3_64bits_digest(sum)};
    state_rows_close(&rows);
    return state_out_end(s, &out, status);
}

static int save(const struct embfuse_model *m, const char *directory, struct state *state,
                XXH3_state_t *sum, struct embfuse_error *why) {
    struct state_save s;
    int status = state_save_begin(&s, directory, m->shapes, m->num_tables, why);
    for (int32_t t = 0; status == 0 && t < m->num_tables; t++)
        for (int a = 0; status == 0 && a < TABLE_ARRAYS; a++)
            if (table_array_width(&m->shapes[t], a)) status = write_array(&s, m, state, t, a, sum);
    return state_save_end(&s, state, status);
}

int embfuse_save(const struct embfuse_model *m, const char *directory, struct embfuse_error *why) {
    IN_CALL(m, why);
    if (!directory) return said(why, EMBFUSE_INVALID, "directory is NULL");
    struct state state;
    int status = check_bound(m, true, why);
    if (status) return status;
    XXH3_state_t *sum = XXH3_createState();
    status = describe(m, &state, why);
    if (status == 0 && !sum) status = said(why, EMBFUSE_NO_MEMORY, "out of memory");
    if (status == 0) status = save(m, directory, &state, sum, why);
    free(state.tables);
    XXH3_freeState(sum);
    return status;
}
