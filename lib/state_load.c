/* SPDX-License-Identifier: MIT
 *
 * Every file is read twice: once to verify it, before any array changes, and once into the arrays. A file that
 * changes in between is noticed by the sum of the second time.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "harness/workload/npy.h"
#include "harness/workload/regular_file.h"
#include "harness/workload/spec_keys.h"
#include "harness/workload/tables.h"
#include "kernels/rules.h"
#include "lib/state.h"

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

static int path_of(char path[PATH_MAX], const char *directory, int64_t number, const char *file,
                   struct embfuse_error *why) {
    char name[STATE_NAME];
    state_name(name, number, "");
    if (snprintf(path, PATH_MAX, "%s/%s/%s", directory, name, file) < PATH_MAX) return 0;
    return said(why, EMBFUSE_FILE_ERROR, "%.60s...: too long", directory);
}

int state_manifest(const char *directory, int64_t number, struct state *out,
                   struct embfuse_error *why) {
    char path[PATH_MAX];
    struct error err;
    size_t size;
    int status = path_of(path, directory, number, STATE_MANIFEST, why);
    if (status) return status;
    char *text = regular_file_text(path, STATE_TEXT_MAX, "manifest of a saved state", &size, &err);
    status = text ? state_text_read(path, text, size, out, &err) : EMBFUSE_FILE_ERROR;
    free(text);
    return status ? said(why, status, "%.500s", err.text) : 0;
}

/* --- does it fit? */

struct loading {
    struct embfuse_model *m;
    const char *path;
    int64_t number;
    struct state state;
    struct embfuse_error *why;
};

static int misfit(const struct loading *l, int32_t t, const char *what, const char *saved,
                  const char *wanted) {
    return said(l->why, EMBFUSE_REFUSED,
                "%.200s/state-%08" PRId64 ": table %d has %s %s, but the model's has %s", l->path,
                l->number, t, what, saved, wanted);
}

static int misfit_number(const struct loading *l, int32_t t, const char *what, int64_t saved,
                         int64_t wanted) {
    char a[24], b[24];
    snprintf(a, sizeof a, "%" PRId64, saved);
    snprintf(b, sizeof b, "%" PRId64, wanted);
    return misfit(l, t, what, a, b);
}

static int misfit_word(const struct loading *l, int32_t t, enum key key, int saved, int wanted) {
    return misfit(l, t, key_name(key), key_word(key, saved), key_word(key, wanted));
}

static int check_table(const struct loading *l, int32_t t) {
    const struct table_shape *x = &l->state.tables[t].shape, *want = &l->m->shapes[t];
    if (x->rows != want->rows) return misfit_number(l, t, "rows", x->rows, want->rows);
    if (x->dim != want->dim) return misfit_number(l, t, "dim", x->dim, want->dim);
    if (x->rule != want->rule) return misfit_word(l, t, KEY_RULE, (int)x->rule, (int)want->rule);
    if (x->weight_type != want->weight_type)
        return misfit_word(l, t, KEY_WEIGHT_TYPE, (int)x->weight_type, (int)want->weight_type);
    if (x->momentum_type != want->momentum_type)
        return misfit_word(l, t, KEY_MOMENTUM_TYPE, (int)x->momentum_type,
                           (int)want->momentum_type);
    if (x->rounding != want->rounding)
        return misfit_word(l, t, KEY_ROUNDING, (int)x->rounding, (int)want->rounding);
    return 0;
}

static int check_fit(const struct loading *l) {
    if (l->state.num_tables != l->m->num_tables)
        return said(l->why, EMBFUSE_REFUSED,
                    "%.200s/state-%08" PRId64 ": %d tables, but the model has %d", l->path,
                    l->number, l->state.num_tables, l->m->num_tables);
    int status = 0;
    for (int32_t t = 0; status == 0 && t < l->m->num_tables; t++) status = check_table(l, t);
    return status;
}

/* --- files */

static int read_all(int fd, char *to, size_t size, int64_t at, const char *path,
                    struct embfuse_error *why) {
    while (size > 0) {
        const ssize_t done = pread(fd, to, size, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0)
            return said(why, EMBFUSE_FILE_ERROR, "%.300s: cannot read: %s", path,
                        done ? strerror(errno) : "it became shorter");
        to += done;
        at += done;
        size -= (size_t)done;
    }
    return 0;
}

/* Checks what is before the rows; *begin is where they begin. */
static int read_head(const struct loading *l, int32_t t, int a, const char *path, int fd,
                     int64_t size, XXH3_state_t *sum, uint64_t *begin) {
    const struct table_shape *shape = &l->m->shapes[t];
    char head[4096];
    const size_t have = size < (int64_t)sizeof head ? (size_t)size : sizeof head;
    struct error err;
    struct npy is;
    int64_t dims[2];
    const int num_dims = table_array_shape(shape, a, dims);
    const int status = read_all(fd, head, have, 0, path, l->why);
    if (status) return status;
    if (npy_head(path, head, have, (uint64_t)size, &is, begin, &err))
        return said(l->why, EMBFUSE_FILE_ERROR, "%.500s", err.text);
    if (is.type != npy_type_of(table_array_type(shape, a)) || is.num_dims != num_dims ||
        memcmp(is.shape, dims, (size_t)num_dims * sizeof *dims) != 0)
        return said(l->why, EMBFUSE_FILE_ERROR,
                    "%.300s: damaged: type or shape are not those of the manifest", path);
    XXH3_64bits_update(sum, head, *begin);
    return 0;
}

/* put: into the array. */
static int read_rows(const struct loading *l, const char *path, int fd, struct state_rows *rows,
                     int64_t at, bool put, XXH3_state_t *sum) {
    int status = 0;
    for (int64_t row = 0; status == 0 && row < rows->rows; row += rows->at_once) {
        const int64_t left = rows->rows - row, count = left < rows->at_once ? left : rows->at_once;
        const size_t bytes = (size_t)(count * rows->row_bytes);
        status = read_all(fd, rows->buffer, bytes, at, path, l->why);
        if (status == 0 && put) status = state_rows_put(rows, row, count, l->why);
        if (status == 0) XXH3_64bits_update(sum, rows->buffer, bytes);
        at += (int64_t)bytes;
    }
    return status;
}

static int read_file(const struct loading *l, int32_t t, int a, const char *path, int fd,
                     int64_t size, bool put, XXH3_state_t *sum) {
    const struct state_file *f = &l->state.tables[t].file[a];
    struct state_rows rows;
    uint64_t begin = 0;
    if (size != f->bytes)
        return said(l->why, EMBFUSE_FILE_ERROR,
                    "%.300s: damaged: %" PRId64 " bytes, but the manifest says %" PRId64, path,
                    size, f->bytes);
    XXH3_64bits_reset(sum);
    int status = read_head(l, t, a, path, fd, size, sum, &begin);
    if (status) return status;
    status = state_rows_open(&rows, l->m, t, a, l->why);
    if (status == 0) status = read_rows(l, path, fd, &rows, (int64_t)begin, put, sum);
    state_rows_close(&rows);
    if (status == 0 && XXH3_64bits_digest(sum) != f->xxh3)
        status = said(l->why, EMBFUSE_FILE_ERROR,
                      "%.300s: damaged: its checksum is not the one in the manifest", path);
    return status;
}

static int read_array(const struct loading *l, int32_t t, int a, bool put, XXH3_state_t *sum) {
    char name[TABLE_FILE_NAME], path[PATH_MAX];
    struct error err;
    int64_t size;
    table_array_file(name, t, l->m->num_tables, a);
    int status = path_of(path, l->path, l->number, name, l->why);
    if (status) return status;
    const int fd = regular_file_open(path, &size, &err);
    if (fd < 0) return said(l->why, EMBFUSE_FILE_ERROR, "%.500s", err.text);
    status = read_file(l, t, a, path, fd, size, put, sum);
    close(fd);
    return status;
}

static int read_arrays(const struct loading *l, bool put) {
    XXH3_state_t *sum = XXH3_createState();
    int status = sum ? 0 : said(l->why, EMBFUSE_NO_MEMORY, "out of memory");
    for (int32_t t = 0; status == 0 && t < l->m->num_tables; t++)
        for (int a = 0; status == 0 && a < TABLE_ARRAYS; a++)
            if (table_array_width(&l->m->shapes[t], a)) status = read_array(l, t, a, put, sum);
    XXH3_freeState(sum);
    return status;
}

/* --- the whole */

/* Reads the manifest, and verifies all files. */
static int verify(struct loading *l) {
    int status = state_manifest(l->path, l->number, &l->state, l->why);
    if (status == 0) status = check_fit(l);
    if (status == 0) status = read_arrays(l, false);
    return status;
}

static int take(const struct loading *l, struct embfuse_error *why) {
    struct embfuse_model *m = l->m;
    const int status = read_arrays(l, true);
    if (status)
        return said(
            why, status,
            "%.350s; it failed after it had been verified: load again, the arrays are half read",
            l->why->text);
    set_rounding_seed(m, l->state.seed);
    for (int32_t t = 0; t < m->num_tables; t++) {
        m->rules[t] = l->state.tables[t].rule;
        m->shapes[t].adjusts = rule_adjusts(&m->rules[t]);
        m->steps[t].number = l->state.tables[t].steps;
    }
    return 0;
}

/* The newest state that is whole. Another version, or a model that does not fit, ends the search: what comes
 * after would be an old state that nobody asked for. */
static int load(struct loading *l, const int64_t *numbers, int32_t count,
                struct embfuse_loaded *loaded, struct embfuse_error *why) {
    struct embfuse_loaded is = {.size = sizeof is};
    int status = EMBFUSE_FILE_ERROR;
    for (int32_t i = 0; i < count && status == EMBFUSE_FILE_ERROR; i++) {
        l->number = is.number = numbers[i];
        status = verify(l);
        if (status == 0) {
            status = take(l, why);
            if (status) return status;
            if (loaded) *loaded = is;
            return 0;
        }
        free(l->state.tables);
        l->state.tables = NULL;
        if (status == EMBFUSE_FILE_ERROR && is.passed_over++ == 0)
            snprintf(is.damage, sizeof is.damage, "%s", l->why->text);
    }
    if (status != EMBFUSE_FILE_ERROR) return said(why, status, "%s", l->why->text);
    if (count == 0)
        return said(why, status, "%.300s: no saved state; embfuse_save() writes one", l->path);
    return said(why, status, "%.400s; no other state there is whole", is.damage);
}

int embfuse_load(struct embfuse_model *m, const char *directory, struct embfuse_loaded *loaded,
                 struct embfuse_error *why) {
    if (!m || !directory) return said(why, EMBFUSE_INVALID, "model or directory is NULL");
    if (loaded && loaded->size != sizeof *loaded)
        return said(why, EMBFUSE_INVALID,
                    "loaded.size is %zu, but sizeof(struct embfuse_loaded) is %zu", loaded->size,
                    sizeof *loaded);
    struct embfuse_error text;
    struct loading l = {.m = m, .path = directory, .why = &text};
    int64_t *numbers = NULL;
    int32_t count;
    int status = check_bound(m, true, why);
    if (status) return status;
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return said(why, EMBFUSE_FILE_ERROR, "%.300s: cannot open: %s", directory, strerror(errno));
    status = state_list(fd, directory, false, &numbers, &count, why);
    close(fd);
    if (status == 0) status = load(&l, numbers, count, loaded, why);
    free(l.state.tables);
    free(numbers);
    return status;
}
