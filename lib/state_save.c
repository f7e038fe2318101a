/* SPDX-License-Identifier: MIT
 *
 * Everything is written to a folder of a temporary name, and every file and the folder are synced. Then one
 * rename gives the folder its name, and the directory is synced. So a crash at any moment leaves either no
 * folder of that name or a whole one. A sync that failed is not tried again: after an error the system may drop
 * what it could not write, and report success the second time.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "harness/workload/npy.h"
#include "harness/workload/tables.h"
#include "lib/state.h"

struct saving {
    const struct embfuse_model *m;
    const char *path;    /* of the directory */
    int directory, part; /* open, or -1 */
    char name[STATE_NAME], part_name[STATE_NAME];
    int64_t number;
    struct state state;
    XXH3_state_t *sum;
    struct embfuse_error *why;
};

static int cannot(const struct saving *s, const char *what, const char *folder, const char *file) {
    const char *reason = strerror(errno);
    return said(
        s->why, EMBFUSE_FILE_ERROR,
        "%.250s%s%s%s%s: cannot %s: %s; nothing was saved, and what was there before is untouched",
        s->path, *folder ? "/" : "", folder, *file ? "/" : "", file, what, reason);
}

/* --- folders */

/* Some file systems have no sync of folders, and say so. */
static int sync_folder(int folder) {
    return fsync(folder) && errno != EINVAL ? -1 : 0;
}

/* The entry of the directory itself may be new: made by this call, or by one that was interrupted. Who may not
 * read the folder above has not made it. */
static int sync_parent(const struct saving *s) {
    const int parent = openat(s->directory, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) return errno == EACCES ? 0 : cannot(s, "open the folder above", "", "");
    const int status = sync_folder(parent) ? cannot(s, "sync the folder above", "", "") : 0;
    close(parent);
    return status;
}

static int open_directory(struct saving *s) {
    const int how = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    s->directory = open(s->path, how);
    if (s->directory < 0 && errno == ENOENT) {
        if (mkdir(s->path, 0777)) return cannot(s, "create", "", "");
        s->directory = open(s->path, how);
    }
    if (s->directory < 0) return cannot(s, "open", "", "");
    /* The lock ends with the descriptor. On file systems without locks the caller must see to it. */
    if (flock(s->directory, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)
        return said(s->why, EMBFUSE_FILE_ERROR,
                    "%.250s: another save to this directory is under way; wait for its end",
                    s->path);
    return sync_parent(s);
}

static bool is_ours(const char *name) {
    const size_t length = strlen(name);
    return strcmp(name, STATE_MANIFEST) == 0 ||
           (length > 4 && strcmp(name + length - 4, ".npy") == 0);
}

/* Removes a state's folder, unless someone else's files are in it. What cannot be removed stays: the next save
 * tries again. */
static void remove_state(int directory, const char *name) {
    const int fd = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (!folder) {
        if (fd >= 0) close(fd);
        return;
    }
    for (const struct dirent *e; (e = readdir(folder));)
        if (is_ours(e->d_name)) unlinkat(fd, e->d_name, 0);
    closedir(folder);
    unlinkat(directory, name, AT_REMOVEDIR);
}

/* Makes room: what crashed saves have left. Then the folder of this one. */
static int begin(struct saving *s) {
    int64_t *numbers;
    int32_t count;
    int status = state_list(s->directory, s->path, true, &numbers, &count, s->why);
    if (status) return status;
    for (int32_t i = 0; i < count; i++) {
        char left[STATE_NAME];
        state_name(left, numbers[i], STATE_PART);
        remove_state(s->directory, left);
    }
    free(numbers);
    status = state_list(s->directory, s->path, false, &numbers, &count, s->why);
    if (status) return status;
    s->number = count ? numbers[0] + 1 : 1;
    free(numbers);
    state_name(s->name, s->number, "");
    state_name(s->part_name, s->number, STATE_PART);
    if (mkdirat(s->directory, s->part_name, 0777)) return cannot(s, "create", s->part_name, "");
    s->part = openat(s->directory, s->part_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (s->part >= 0) return 0;
    status = cannot(s, "open", s->part_name, "");
    unlinkat(s->directory, s->part_name, AT_REMOVEDIR);
    return status;
}

/* Of the older states the newest stays whose manifest is not damaged; one of another version stays, too. */
static void remove_older(const struct saving *s) {
    int64_t *numbers;
    int32_t count;
    bool kept = false;
    if (state_list(s->directory, s->path, false, &numbers, &count, NULL)) return;
    for (int32_t i = 0; i < count; i++) {
        struct state state = {0};
        char name[STATE_NAME];
        state_name(name, numbers[i], "");
        if (numbers[i] >= s->number) continue;
        if (!kept && state_manifest(s->path, numbers[i], &state, NULL) != EMBFUSE_FILE_ERROR)
            kept = true;
        else
            remove_state(s->directory, name);
        free(state.tables);
    }
    free(numbers);
}

/* --- files */

static int write_bytes(const struct saving *s, const char *name, int fd, const char *bytes,
                       size_t size) {
    while (size > 0) {
        const ssize_t done = write(fd, bytes, size);
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = EIO;
        if (done <= 0) return cannot(s, "write", s->part_name, name);
        bytes += done;
        size -= (size_t)done;
    }
    return 0;
}

static int create_file(const struct saving *s, const char *name, int *fd) {
    *fd = openat(s->part, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    return *fd < 0 ? cannot(s, "create", s->part_name, name) : 0;
}

/* A file that was opened: syncs it if all went well so far, and closes it. */
static int end_file(const struct saving *s, const char *name, int fd, int status) {
    if (fd < 0) return status;
    if (status == 0 && fsync(fd)) status = cannot(s, "sync", s->part_name, name);
    if (close(fd) && status == 0) status = cannot(s, "close", s->part_name, name);
    return status;
}

static int write_rows(const struct saving *s, const char *name, int fd, struct state_rows *rows,
                      struct state_file *f) {
    int status = 0;
    for (int64_t row = 0; status == 0 && row < rows->rows; row += rows->at_once) {
        const int64_t left = rows->rows - row, count = left < rows->at_once ? left : rows->at_once;
        const size_t bytes = (size_t)(count * rows->row_bytes);
        status = state_rows_get(rows, row, count, s->why);
        if (status == 0) status = write_bytes(s, name, fd, rows->buffer, bytes);
        XXH3_64bits_update(s->sum, rows->buffer, bytes);
        f->bytes += (int64_t)bytes;
    }
    return status;
}

static int write_array(const struct saving *s, int32_t t, int a) {
    const struct table_shape *shape = &s->m->shapes[t];
    struct state_file *f = &s->state.tables[t].file[a];
    struct state_rows rows;
    char name[TABLE_FILE_NAME], header[NPY_HEADER_MAX];
    int64_t dims[2];
    int fd = -1;
    const int num_dims = table_array_shape(shape, a, dims);
    const size_t size = npy_header(header, npy_type_of(table_array_type(shape, a)), num_dims, dims);
    table_array_file(name, t, s->m->num_tables, a);
    int status = state_rows_open(&rows, s->m, t, a, s->why);
    if (status == 0) status = create_file(s, name, &fd);
    if (status == 0) status = write_bytes(s, name, fd, header, size);
    XXH3_64bits_reset(s->sum);
    XXH3_64bits_update(s->sum, header, size);
    f->bytes = (int64_t)size;
    if (status == 0) status = write_rows(s, name, fd, &rows, f);
    f->xxh3 = XXH3_64bits_digest(s->sum);
    state_rows_close(&rows);
    return end_file(s, name, fd, status);
}

static int write_manifest(const struct saving *s) {
    size_t size;
    int fd = -1;
    char *text = state_text_print(&s->state, &size);
    if (!text) return said(s->why, EMBFUSE_NO_MEMORY, "out of memory for a manifest");
    int status = size < STATE_TEXT_MAX
                     ? create_file(s, STATE_MANIFEST, &fd)
                     : said(s->why, EMBFUSE_REFUSED, "too many tables for a manifest");
    if (status == 0) status = write_bytes(s, STATE_MANIFEST, fd, text, size);
    free(text);
    return end_file(s, STATE_MANIFEST, fd, status);
}

/* --- the whole */

static int describe(struct saving *s) {
    const struct embfuse_model *m = s->m;
    s->state.seed = m->rounding_seed;
    s->state.num_tables = m->num_tables;
    s->state.tables = calloc((size_t)m->num_tables, sizeof *s->state.tables);
    s->sum = XXH3_createState();
    if (!s->state.tables || !s->sum) return said(s->why, EMBFUSE_NO_MEMORY, "out of memory");
    for (int32_t t = 0; t < m->num_tables; t++)
        s->state.tables[t] = (struct state_table){
            .shape = m->shapes[t], .rule = m->rules[t], .steps = m->steps[t].number};
    return 0;
}

/* If the last sync fails, nobody knows whether the rename will last: it is taken back. */
static int commit(const struct saving *s) {
    if (sync_folder(s->part)) return cannot(s, "sync", s->part_name, "");
    if (renameat(s->directory, s->part_name, s->directory, s->name))
        return cannot(s, "rename", s->part_name, "");
    if (sync_folder(s->directory) == 0) return 0;
    const int status = cannot(s, "sync", "", "");
    renameat(s->directory, s->name, s->directory, s->part_name);
    return status;
}

static int save(struct saving *s) {
    int status = describe(s);
    if (status == 0) status = open_directory(s);
    if (status == 0) status = begin(s);
    if (status) return status;
    for (int32_t t = 0; status == 0 && t < s->m->num_tables; t++)
        for (int a = 0; status == 0 && a < TABLE_ARRAYS; a++)
            if (table_array_width(&s->m->shapes[t], a)) status = write_array(s, t, a);
    if (status == 0) status = write_manifest(s);
    if (status == 0) status = commit(s);
    if (status == 0)
        remove_older(s);
    else
        remove_state(s->directory, s->part_name);
    return status;
}

int embfuse_save(const struct embfuse_model *m, const char *directory, struct embfuse_error *why) {
    if (!m || !directory) return said(why, EMBFUSE_INVALID, "model or directory is NULL");
    struct saving s = {.m = m, .path = directory, .directory = -1, .part = -1, .why = why};
    int status = check_bound(m, true, why);
    if (status == 0) status = save(&s);
    if (s.part >= 0) close(s.part);
    if (s.directory >= 0) close(s.directory);
    free(s.state.tables);
    XXH3_freeState(s.sum);
    return status;
}
