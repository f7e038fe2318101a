/* SPDX-License-Identifier: MIT */
#include <stdlib.h>

#include "extras/library/model.h"
#include "extras/library/frozen/frozen.h"

struct embfuse_frozen {
    struct frozen table;
};

int embfuse_frozen_open(struct embfuse_frozen **out, const char *name, int32_t verify,
                        struct embfuse_error *why) {
    struct error err;
    if (out) *out = NULL;
    if (!out || !name) return said(why, EMBFUSE_INVALID, "out or name is NULL");
    struct embfuse_frozen *made = malloc(sizeof *made);
    if (!made) return said(why, EMBFUSE_NO_MEMORY, "out of memory");
    const int how = verify ? FROZEN_LOOKUP | FROZEN_VERIFY : FROZEN_LOOKUP;
    if (frozen_open(name, how, &made->table, &err)) {
        free(made);
        return said(why, EMBFUSE_FILE_ERROR, "%.500s", err.text);
    }
    *out = made;
    return EMBFUSE_OK;
}

void embfuse_frozen_close(struct embfuse_frozen *table) {
    if (table) frozen_close(&table->table);
    free(table);
}

int embfuse_frozen_describe(const struct embfuse_frozen *table, struct embfuse_frozen_info *out,
                            struct embfuse_error *why) {
    if (!table || !out) return said(why, EMBFUSE_INVALID, "table or out is NULL");
    if (out->size != sizeof *out)
        return said(why, EMBFUSE_INVALID,
                    "info.size is %zu, but sizeof(struct embfuse_frozen_info) is %zu", out->size,
                    sizeof *out);
    const struct frozen *t = &table->table;
    *out = (struct embfuse_frozen_info){.size = sizeof *out,
                                        .rows = t->rows,
                                        .row_bytes = t->row_bytes,
                                        .data = t->data,
                                        .type = frozen_type_name(t->type),
                                        .dim = t->dim};
    return EMBFUSE_OK;
}

/* A model of one table and one feature lives on the stack, so that many threads may look up. */
int embfuse_frozen_lookup(const struct embfuse_frozen *table, const struct embfuse_batch *batch,
                          int32_t pooling, int64_t padding_id, int32_t threads, float *output,
                          struct embfuse_error *why) {
    if (!table || !output) return said(why, EMBFUSE_INVALID, "table or output is NULL");
    if (pooling != EMBFUSE_SUM && pooling != EMBFUSE_MEAN && pooling != EMBFUSE_NONE)
        return said(why, EMBFUSE_INVALID, "pooling is EMBFUSE_SUM, EMBFUSE_MEAN or EMBFUSE_NONE");
    if (padding_id < -1 || padding_id >= table->table.rows)
        return said(why, EMBFUSE_INVALID, "padding_id is a row or -1, not %lld",
                    (long long)padding_id);
    if (threads < 1) return said(why, EMBFUSE_INVALID, "threads is at least 1, not %d", threads);
    struct batch in;
    struct table_shape shape = {.rows = table->table.rows, .dim = table->table.dim};
    int64_t no_offsets[2] = {0};
    struct feature feature = {.pooling = (enum pooling)pooling, .padding_id = padding_id};
    struct embfuse_model one = {.place = ON_HOST,
                                .threads = threads,
                                .grad_type = FP32,
                                .num_tables = 1,
                                .num_features = 1,
                                .shapes = &shape,
                                .features = &feature,
                                .no_offsets = no_offsets,
                                .default_layout = true};
    const int status = batch_of(&one, batch, &in, why);
    if (status == EMBFUSE_OK && batch_bags(&one, batch))
        frozen_lookup(&table->table, &in, output, threads);
    return status;
}
