/* SPDX-License-Identifier: MIT */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "harness/workload/npy.h"
#include "harness/workload/regular_file.h"
#include "harness/workload/spec_keys.h"
#include "extras/library/state.h"

/* --- the states of a directory */

static const char prefix[] = "state-";
enum { DIGITS_MAX = 18 };

void state_name(char name[STATE_NAME], int64_t number, const char *end) {
    snprintf(name, STATE_NAME, "%s%08" PRId64 "%s", prefix, number, end);
}

/* The number of a state of that name; -1: it is none. */
static int64_t number_of(const char *name, const char *end) {
    char again[STATE_NAME];
    if (strncmp(name, prefix, sizeof prefix - 1) != 0) return -1;
    const char *digits = name + sizeof prefix - 1;
    if (strspn(digits, "0123456789") > DIGITS_MAX) return -1;
    const int64_t number = strtoll(digits, NULL, 10);
    state_name(again, number, end);
    return strcmp(again, name) == 0 ? number : -1;
}

static int newest_first(const void *a, const void *b) {
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* Returns 0 or an errno. */
static int list(DIR *folder, const char *end, int64_t **numbers, int32_t *count) {
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(folder);
        if (!e) return errno;
        const int64_t number = number_of(e->d_name, end);
        if (number < 0) continue;
        int64_t *more = realloc(*numbers, (size_t)(*count + 1) * sizeof *more);
        if (!more) return ENOMEM;
        *numbers = more;
        more[(*count)++] = number;
    }
}

int state_list(int directory, const char *path, bool part, int64_t **numbers, int32_t *count,
               struct embfuse_error *why) {
    *numbers = NULL;
    *count = 0;
    const int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    const int failed = folder ? list(folder, part ? STATE_PART : "", numbers, count) : errno;
    if (folder)
        closedir(folder);
    else if (fd >= 0)
        close(fd);
    if (*count) qsort(*numbers, (size_t)*count, sizeof **numbers, newest_first);
    if (!failed) return 0;
    free(*numbers);
    *numbers = NULL;
    return said(why, failed == ENOMEM ? EMBFUSE_NO_MEMORY : EMBFUSE_FILE_ERROR,
                "%.250s: cannot list: %s", path, strerror(failed));
}

int state_list_path(const char *path, int64_t **numbers, int32_t *count,
                    struct embfuse_error *why) {
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return said(why, EMBFUSE_FILE_ERROR, "%.300s: cannot open: %s", path, strerror(errno));
    const int status = state_list(fd, path, false, numbers, count, why);
    close(fd);
    return status;
}

int state_path(char path[PATH_MAX], const char *directory, int64_t number, const char *end,
               struct embfuse_error *why) {
    char name[STATE_NAME];
    state_name(name, number, end);
    if (snprintf(path, PATH_MAX, "%s/%s", directory, name) < PATH_MAX) return 0;
    return said(why, EMBFUSE_FILE_ERROR, "%.60s...: too long", directory);
}

static int file_path(char path[PATH_MAX], const char *folder, const char *file,
                     struct embfuse_error *why) {
    if (snprintf(path, PATH_MAX, "%s/%s", folder, file) < PATH_MAX) return 0;
    return said(why, EMBFUSE_FILE_ERROR, "%.60s...: too long", folder);
}

int state_newest(const char *directory, const int64_t *numbers, int32_t count,
                 int (*verify)(void *ctx, int64_t number, struct embfuse_error *why), void *ctx,
                 struct embfuse_loaded *is, struct embfuse_error *why) {
    struct embfuse_error text;
    *is = (struct embfuse_loaded){.size = sizeof *is};
    for (int32_t i = 0; i < count; i++) {
        is->number = numbers[i];
        const int status = verify(ctx, numbers[i], &text);
        if (status == 0) return 0;
        if (status == STATE_UNREADABLE)
            return said(why, EMBFUSE_FILE_ERROR, "%.400s; no older state was loaded instead",
                        text.text);
        if (status != EMBFUSE_FILE_ERROR) return said(why, status, "%s", text.text);
        if (is->passed_over++ == 0) snprintf(is->damage, sizeof is->damage, "%s", text.text);
    }
    if (count == 0)
        return said(why, EMBFUSE_FILE_ERROR, "%.300s: no saved state; embfuse_save() writes one",
                    directory);
    return said(why, EMBFUSE_FILE_ERROR, "%.400s; no other state there is whole", is->damage);
}

/* Of a file that could not be opened or read. */
static int status_of(int error) {
    return error == 0 || error == ENOENT || error == ENOTDIR ? EMBFUSE_FILE_ERROR
                                                             : STATE_UNREADABLE;
}

int state_manifest(const char *folder, struct state *out, struct embfuse_error *why) {
    char path[PATH_MAX];
    struct error err;
    size_t size;
    int status = file_path(path, folder, STATE_MANIFEST, why);
    if (status) return status;
    char *text = regular_file_text(path, STATE_TEXT_MAX, "manifest of a saved state", &size, &err);
    status = text ? state_text_read(path, text, size, out, &err) : status_of(errno);
    free(text);
    return status ? said(why, status, "%.500s", err.text) : 0;
}

/* --- does it fit? */

struct fitting {
    const char *folder;
    int32_t table;
    struct embfuse_error *why;
};

static int misfit(const struct fitting *f, const char *what, const char *saved,
                  const char *wanted) {
    return said(f->why, EMBFUSE_REFUSED, "%.210s: table %d has %s %s, but the model's has %s",
                f->folder, f->table, what, saved, wanted);
}

static int misfit_number(const struct fitting *f, const char *what, int64_t saved, int64_t wanted) {
    char a[24], b[24];
    snprintf(a, sizeof a, "%" PRId64, saved);
    snprintf(b, sizeof b, "%" PRId64, wanted);
    return misfit(f, what, a, b);
}

static int misfit_word(const struct fitting *f, enum key key, int saved, int wanted) {
    return misfit(f, key_name(key), key_word(key, saved), key_word(key, wanted));
}

static int table_fits(const struct fitting *f, const struct table_shape *x,
                      const struct table_shape *want) {
    if (x->rows != want->rows) return misfit_number(f, "rows", x->rows, want->rows);
    if (x->dim != want->dim) return misfit_number(f, "dim", x->dim, want->dim);
    if (x->rule != want->rule) return misfit_word(f, KEY_RULE, (int)x->rule, (int)want->rule);
    if (x->weight_type != want->weight_type)
        return misfit_word(f, KEY_WEIGHT_TYPE, (int)x->weight_type, (int)want->weight_type);
    if (x->momentum_type != want->momentum_type)
        return misfit_word(f, KEY_MOMENTUM_TYPE, (int)x->momentum_type, (int)want->momentum_type);
    if (x->rounding != want->rounding)
        return misfit_word(f, KEY_ROUNDING, (int)x->rounding, (int)want->rounding);
    return 0;
}

int state_fits(const char *folder, const struct state *s, const struct table_shape *shapes,
               int32_t num_tables, struct embfuse_error *why) {
    int status = 0;
    if (s->num_tables != num_tables)
        return said(why, EMBFUSE_REFUSED, "%.210s: %d tables, but the model has %d", folder,
                    s->num_tables, num_tables);
    for (int32_t t = 0; status == 0 && t < num_tables; t++)
        status = table_fits(&(struct fitting){folder, t, why}, &s->tables[t].shape, &shapes[t]);
    return status;
}

/* --- files */

/* A file that is read. */
struct input {
    char path[PATH_MAX];
    const struct table_shape *shape;
    const struct state_file *is; /* by the manifest */
    int array, fd;
    uint64_t begin; /* where its rows begin */
    struct embfuse_error *why;
};

static int unreadable(const struct input *in) {
    return said(in->why, status_of(errno), "%.300s: cannot read: %s", in->path,
                errno ? strerror(errno) : "it became shorter");
}

/* Checks what is before the rows. */
static int read_head(struct input *in, XXH3_state_t *sum) {
    const int64_t size = in->is->bytes;
    char head[4096];
    const size_t have = size < (int64_t)sizeof head ? (size_t)size : sizeof head;
    struct error err;
    struct npy is;
    int64_t dims[2];
    const int num_dims = table_array_shape(in->shape, in->array, dims);
    if (state_bytes_read(in->fd, head, have, 0)) return unreadable(in);
    if (npy_head(in->path, head, have, (uint64_t)size, &is, &in->begin, &err))
        return said(in->why, EMBFUSE_FILE_ERROR, "%.500s", err.text);
    if (is.type != npy_type_of(table_array_type(in->shape, in->array)) || is.num_dims != num_dims ||
        memcmp(is.shape, dims, (size_t)num_dims * sizeof *dims) != 0)
        return said(in->why, EMBFUSE_FILE_ERROR,
                    "%.300s: damaged: type or shape are not those of the manifest", in->path);
    XXH3_64bits_update(sum, head, in->begin);
    return 0;
}

/* put: into the array. */
static int read_rows(const struct input *in, struct state_rows *rows, bool put, XXH3_state_t *sum) {
    int status = 0;
    for (int64_t row = 0; status == 0 && row < rows->rows; row += rows->at_once) {
        const int64_t left = rows->rows - row, count = left < rows->at_once ? left : rows->at_once;
        if (state_rows_read(rows, in->fd, (int64_t)in->begin, row, count)) status = unreadable(in);
        if (status == 0 && put) status = state_rows_put(rows, row, count, in->why);
        if (status == 0) XXH3_64bits_update(sum, rows->buffer, (size_t)(count * rows->part.bytes));
    }
    return status;
}

/* All rows, into no array. */
static int pass_rows(const struct input *in, XXH3_state_t *sum) {
    const struct state_part whole = state_whole(in->shape, in->array);
    struct state_rows rows;
    int status =
        state_rows_open(&rows, ON_HOST, &(struct array){0}, &whole, in->shape->rows, in->why);
    if (status == 0) status = read_rows(in, &rows, false, sum);
    state_rows_close(&rows);
    return status;
}

static int read_file(struct input *in, int64_t size, struct state_rows *rows, uint64_t *sum) {
    if (size != in->is->bytes)
        return said(in->why, EMBFUSE_FILE_ERROR,
                    "%.300s: damaged: %" PRId64 " bytes, but the manifest says %" PRId64, in->path,
                    size, in->is->bytes);
    XXH3_state_t *x = XXH3_createState();
    if (!x) return said(in->why, EMBFUSE_NO_MEMORY, "out of memory");
    XXH3_64bits_reset(x);
    int status = read_head(in, x);
    if (status == 0) status = rows ? read_rows(in, rows, true, x) : pass_rows(in, x);
    if (status == 0 && sum) *sum = XXH3_64bits_digest(x);
    XXH3_freeState(x);
    return status;
}

int state_read(const char *folder, const struct state *s, int32_t table, int array,
               struct state_rows *rows, uint64_t *sum, struct embfuse_error *why) {
    char name[TABLE_FILE_NAME];
    struct error err;
    int64_t size;
    struct input in = {.shape = &s->tables[table].shape,
                       .is = &s->tables[table].file[array],
                       .array = array,
                       .why = why};
    table_array_file(name, table, s->num_tables, array);
    int status = file_path(in.path, folder, name, why);
    if (status) return status;
    in.fd = regular_file_open(in.path, &size, &err);
    if (in.fd < 0) return said(why, status_of(errno), "%.500s", err.text);
    status = read_file(&in, size, rows, sum);
    close(in.fd);
    return status;
}

int state_verify(const char *folder, const struct state *s, int32_t table, int array,
                 struct state_rows *rows, struct embfuse_error *why) {
    char name[TABLE_FILE_NAME];
    uint64_t sum;
    const int status = state_read(folder, s, table, array, rows, &sum, why);
    if (status || sum == s->tables[table].file[array].xxh3) return status;
    table_array_file(name, table, s->num_tables, array);
    return said(why, EMBFUSE_FILE_ERROR,
                "%.260s/%s: damaged: its checksum is not the one in the manifest", folder, name);
}
