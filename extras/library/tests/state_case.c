/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "extras/library/tests/state_case.h"

#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/device/device.h"
#include "kernels/rules.h"
#include "extras/library/model.h"

static void must(int status, const char *why) {
    if (status == 0) return;
    fprintf(stderr, "state_case: %s\n", why);
    abort();
}

static void *must_get(size_t bytes) {
    void *p = calloc(bytes + 1, 1);
    must(p ? 0 : 1, "out of memory");
    return p;
}

static unsigned char pattern(int64_t at) {
    return (unsigned char)(0xa5 ^ (at * 7));
}

static size_t bytes_of(const struct state_array *a) {
    return (size_t)(a->rows * a->stride);
}

/* --- between host and device; on the host the arrays are one */

static void copy(struct state_case *c, bool to_device) {
    struct error err;
    for (int32_t t = 0; t < c->num_tables; t++)
        for (struct state_array *a = c->arrays[t]; a < c->arrays[t] + STATE_ARRAYS; a++) {
            if (!a->device) continue;
            must(to_device ? device_put(a->device, a->data, bytes_of(a), &err)
                           : device_get(a->data, a->device, bytes_of(a), &err),
                 err.text);
        }
}

static void *on_device(const void *data, size_t bytes) {
    struct device_buffer b;
    struct error err;
    must(device_alloc(&b, bytes, "a test", &err), err.text);
    if (data) must(device_put(b.data, data, bytes, &err), err.text);
    return b.data;
}

static void off_device(void *data, size_t bytes) {
    struct device_buffer b = {data, bytes};
    if (data) device_free(&b);
}

/* --- models */

static void open_array(struct state_case *c, int32_t t, int32_t i, int64_t gap) {
    struct state_array *a = &c->arrays[t][i];
    struct embfuse_array info;
    struct embfuse_error why;
    must(embfuse_array_info(c->model, t, i, &info, &why), why.text);
    *a = (struct state_array){info.row_bytes + gap, info.row_bytes, c->tables[t].rows, NULL, NULL};
    a->data = must_get(bytes_of(a));
    for (int64_t k = 0; k < a->rows * a->stride; k++) a->data[k] = pattern(k);
    if (c->options.place == EMBFUSE_DEVICE) a->device = on_device(NULL, bytes_of(a));
    must(embfuse_bind(c->model, t, i, a->device ? a->device : a->data, a->stride, &why), why.text);
}

void state_case_open(struct state_case *c, const struct embfuse_table *tables, int32_t num_tables,
                     const struct embfuse_options *options, int64_t gap, uint64_t seed) {
    const size_t count = (size_t)num_tables;
    struct embfuse_error why;
    *c = (struct state_case){
        .num_tables = num_tables, .options = {.size = sizeof c->options}, .bags = 12, .length = 6};
    if (options) c->options = *options;
    c->tables = must_get(count * sizeof *c->tables);
    c->arrays = must_get(count * sizeof *c->arrays);
    memcpy(c->tables, tables, count * sizeof *tables);
    struct embfuse_feature *features = must_get(count * sizeof *features);
    for (int32_t t = 0; t < num_tables; t++) features[t] = (struct embfuse_feature){.table = t};
    must(embfuse_model_create(&c->model, tables, num_tables, features, num_tables, &c->options,
                              &why),
         why.text);
    free(features);
    for (int32_t t = 0; t < num_tables; t++)
        for (int32_t i = 0; i < embfuse_array_count(c->model, t); i++) open_array(c, t, i, gap);
    state_case_scramble(c, seed);
}

void state_case_free(struct state_case *c) {
    embfuse_model_free(c->model);
    for (int32_t t = 0; t < c->num_tables; t++)
        for (struct state_array *a = c->arrays[t]; a < c->arrays[t] + STATE_ARRAYS; a++) {
            off_device(a->device, bytes_of(a));
            free(a->data);
        }
    free(c->ids);
    free(c->offsets);
    free(c->grad);
    free(c->arrays);
    free(c->tables);
}

void state_case_scramble(struct state_case *c, uint64_t seed) {
    uint64_t n = 0, word = 0;
    for (int32_t t = 0; t < c->num_tables; t++)
        for (struct state_array *a = c->arrays[t]; a < c->arrays[t] + STATE_ARRAYS; a++)
            for (int64_t row = 0; row < a->rows; row++)
                for (int64_t k = 0; k < a->row_bytes; k++, n++, word >>= 8) {
                    if (n % 8 == 0) word = rng_u64(seed, n);
                    a->data[row * a->stride + k] = (unsigned char)word;
                }
    copy(c, true);
}

void state_case_begin(struct state_case *c, uint64_t seed) {
    uint64_t n = 0;
    for (int32_t t = 0; t < c->num_tables; t++)
        for (int32_t i = 0; i < embfuse_array_count(c->model, t); i++) {
            const struct state_array *a = &c->arrays[t][i];
            struct embfuse_array info;
            must(embfuse_array_info(c->model, t, i, &info, NULL), "array");
            for (int64_t k = 0; k < a->rows * info.width; k++) {
                double value = 2 * rng_unit(seed, n++) - 1;
                const int32_t column = (int32_t)(k % info.width);
                if (i) must(embfuse_initial(c->model, t, i, column, &value, NULL), "initial");
                dtype_set((enum dtype)info.type, a->data + k / info.width * a->stride, column,
                          (float)value);
            }
        }
    copy(c, true);
}

static int64_t columns(const struct state_case *c) {
    int64_t sum = 0;
    for (int32_t t = 0; t < c->num_tables; t++) sum += c->tables[t].dim;
    return sum;
}

void state_case_draw(struct state_case *c, uint64_t n) {
    int64_t count = 0, bag = 0;
    uint64_t key = 0;
    if (!c->ids) {
        const size_t bags = (size_t)(c->num_tables * c->bags);
        c->ids = must_get(bags * (size_t)c->length * sizeof *c->ids);
        c->offsets = must_get((bags + 1) * sizeof *c->offsets);
        c->grad = must_get((size_t)(columns(c) * c->bags) * sizeof *c->grad);
    }
    for (int32_t t = 0; t < c->num_tables; t++)
        for (int b = 0; b < c->bags; b++) {
            const int64_t length = (int64_t)(rng_u64(n, key++) % (uint64_t)(c->length + 1));
            for (int64_t k = 0; k < length; k++) {
                const int64_t rows = c->tables[t].rows - c->tables[t].rows / 8;
                c->ids[count++] = (int64_t)(pow(rng_unit(n, key++), 4) * (double)rows);
            }
            c->offsets[++bag] = count;
        }
    for (int64_t k = 0; k < columns(c) * c->bags; k++)
        c->grad[k] = (float)(rng_unit(n + 1000, (uint64_t)k) - 0.5);
    c->batch = (struct embfuse_batch){.size = sizeof c->batch,
                                      .bags = c->bags,
                                      .lookups = count,
                                      .ids = c->ids,
                                      .offsets = c->offsets,
                                      .id_type = EMBFUSE_INT64};
}

void state_case_take(struct state_case *c) {
    const bool device = c->options.place == EMBFUSE_DEVICE;
    const size_t bags = (size_t)(c->num_tables * c->bags);
    const size_t bytes[] = {(size_t)c->batch.lookups * sizeof *c->ids,
                            (bags + 1) * sizeof *c->offsets,
                            (size_t)(columns(c) * c->bags) * sizeof *c->grad};
    void *at[] = {c->ids, c->offsets, c->grad};
    for (int i = 0; device && i < 3; i++) at[i] = on_device(at[i], bytes[i]);
    struct embfuse_batch batch = c->batch;
    struct embfuse_error why;
    struct error err;
    batch.ids = at[0];
    batch.offsets = at[1];
    batch.stream = device ? device_stream() : NULL;
    must(embfuse_step(c->model, &batch, at[2], &why), why.text);
    if (!device) return;
    must(device_wait(device_stream(), &err), err.text);
    for (int i = 0; i < 3; i++) off_device(at[i], bytes[i]);
}

/* --- comparison */

static const char *array_differs(const struct state_array *a, const struct state_array *b) {
    for (int64_t row = 0; row < a->rows; row++)
        if (memcmp(a->data + row * a->stride, b->data + row * b->stride, (size_t)a->row_bytes) != 0)
            return "bits of a row";
    for (const struct state_array *x = a; x; x = x == a ? b : NULL)
        for (int64_t k = 0; k < x->rows * x->stride; k++)
            if (k % x->stride >= x->row_bytes && x->data[k] != pattern(k))
                return "bytes between rows were written";
    return NULL;
}

static const char *settings_differ(const struct embfuse_model *a, const struct embfuse_model *b) {
    if (a->rounding_seed != b->rounding_seed) return "rounding seed";
    for (int32_t t = 0; t < a->num_tables; t++) {
        if (a->shapes[t].rounding_key != b->shapes[t].rounding_key) return "key";
        if (a->shapes[t].adjusts != b->shapes[t].adjusts) return "adjusts";
        if (memcmp(&a->rules[t], &b->rules[t], sizeof(struct rule)) != 0) return "hyper-parameters";
        if (a->steps[t].number != b->steps[t].number) return "steps";
    }
    return NULL;
}

const char *state_case_differs(struct state_case *a, struct state_case *b) {
    const char *what = NULL;
    copy(a, false);
    copy(b, false);
    for (int32_t t = 0; !what && t < a->num_tables; t++)
        for (int i = 0; !what && i < STATE_ARRAYS; i++)
            what = array_differs(&a->arrays[t][i], &b->arrays[t][i]);
    return what ? what : settings_differ(a->model, b->model);
}

/* --- files */

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

struct work_path state_file(const char *name) {
    const struct work_path folder = work_path("state", name);
    char below[80];
    nftw(folder.text, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    snprintf(below, sizeof below, "state/%s", name);
    return work_path(below, "model.safetensors");
}

unsigned char *state_contents(const char *path, size_t *size) {
    FILE *f = fopen(path, "rb");
    struct stat st;
    must(!f || fstat(fileno(f), &st), path);
    unsigned char *bytes = must_get((size_t)st.st_size);
    *size = fread(bytes, 1, (size_t)st.st_size, f);
    fclose(f);
    return bytes;
}
