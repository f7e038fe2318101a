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

#include "harness/workload/npy.h"
#include "extras/library/state.h"

static int cannot(const struct state_save *s, const char *what, const char *folder,
                  const char *file) {
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
static int sync_parent(const struct state_save *s) {
    const int parent = openat(s->directory, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent < 0) return errno == EACCES ? 0 : cannot(s, "open the folder above", "", "");
    const int status = sync_folder(parent) ? cannot(s, "sync the folder above", "", "") : 0;
    close(parent);
    return status;
}

static int open_directory(struct state_save *s) {
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

static void name_folders(struct state_save *s) {
    state_name(s->name, s->number, "");
    state_name(s->part_name, s->number, STATE_PART);
}

static int open_part(struct state_save *s) {
    s->part = openat(s->directory, s->part_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return s->part < 0 ? cannot(s, "open", s->part_name, "") : 0;
}

/* Whether a state is of these tables, as far as its manifest is whole. Saves of two models into one directory would
 * remove each other's states. */
static int check_owner(const struct state_save *s, int64_t number, const struct table_shape *shapes,
                       int32_t num_tables) {
    char folder[PATH_MAX];
    struct embfuse_error text;
    struct state state = {0};
    int status = state_path(folder, s->path, number, "", &text);
    if (status == 0) status = state_manifest(folder, &state, &text);
    if (status == EMBFUSE_FILE_ERROR) return 0;
    if (status == 0) status = state_fits(folder, &state, shapes, num_tables, &text);
    free(state.tables);
    return status == 0
               ? 0
               : said(s->why, status == STATE_UNREADABLE ? EMBFUSE_FILE_ERROR : status,
                      "%.400s; a directory is for one model: save to another one", text.text);
}

/* Makes room: what crashed saves have left. Then the folder of this one. */
static int begin(struct state_save *s, const struct table_shape *shapes, int32_t num_tables) {
    int64_t *numbers;
    int32_t count;
    int status = state_list(s->directory, s->path, false, &numbers, &count, s->why);
    s->number = status == 0 && count ? numbers[0] + 1 : 1;
    for (int32_t i = 0; status == 0 && i < count; i++)
        status = check_owner(s, numbers[i], shapes, num_tables);
    free(numbers);
    if (status == 0) status = state_list(s->directory, s->path, true, &numbers, &count, s->why);
    if (status) return status;
    for (int32_t i = 0; i < count; i++) {
        char left[STATE_NAME];
        state_name(left, numbers[i], STATE_PART);
        remove_state(s->directory, left);
    }
    free(numbers);
    name_folders(s);
    if (mkdirat(s->directory, s->part_name, 0777)) return cannot(s, "create", s->part_name, "");
    status = open_part(s);
    if (status) unlinkat(s->directory, s->part_name, AT_REMOVEDIR);
    return status;
}

/* Of the older states the newest stays whose manifest is not damaged; one of another version stays, too. */
static void remove_older(const struct state_save *s) {
    int64_t *numbers;
    int32_t count;
    bool kept = false;
    if (state_list(s->directory, s->path, false, &numbers, &count, NULL)) return;
    for (int32_t i = 0; i < count; i++) {
        struct state state = {0};
        char name[STATE_NAME];
        char folder[PATH_MAX];
        state_name(name, numbers[i], "");
        if (numbers[i] >= s->number || state_path(folder, s->path, numbers[i], "", NULL)) continue;
        if (!kept && state_manifest(folder, &state, NULL) != EMBFUSE_FILE_ERROR)
            kept = true;
        else
            remove_state(s->directory, name);
        free(state.tables);
    }
    free(numbers);
}

/* --- files */

static int create_file(const struct state_save *s, const char *name, int *fd) {
    *fd = openat(s->part, name, O_WRONLY | O_CLOEXEC | O_CREAT | O_EXCL, 0666);
    return *fd < 0 ? cannot(s, "create", s->part_name, name) : 0;
}

static int write_bytes(const struct state_save *s, const char *name, int fd, const char *bytes,
                       size_t size) {
    return state_bytes_write(fd, bytes, size, 0) ? cannot(s, "write", s->part_name, name) : 0;
}

/* A file that was opened: syncs it if all went well so far, and closes it. */
static int end_file(const struct state_save *s, const char *name, int fd, int status) {
    if (fd < 0) return status;
    if (status == 0 && fsync(fd)) status = cannot(s, "sync", s->part_name, name);
    if (close(fd) && status == 0) status = cannot(s, "close", s->part_name, name);
    return status;
}

static size_t head_of(char header[NPY_HEADER_MAX], const struct table_shape *shape, int array) {
    int64_t dims[2];
    const int num_dims = table_array_shape(shape, array, dims);
    return npy_header(header, npy_type_of(table_array_type(shape, array)), num_dims, dims);
}

int64_t state_file_bytes(const struct table_shape *shape, int array) {
    char header[NPY_HEADER_MAX];
    return (int64_t)head_of(header, shape, array) + shape->rows * state_whole(shape, array).bytes;
}

int state_out_open(const struct state_save *s, const struct state *state, int32_t table, int array,
                   XXH3_state_t *sum, struct state_out *out) {
    char header[NPY_HEADER_MAX];
    const size_t size = head_of(header, &state->tables[table].shape, array);
    *out = (struct state_out){.begin = (int64_t)size};
    table_array_file(out->name, table, state->num_tables, array);
    XXH3_64bits_reset(sum);
    XXH3_64bits_update(sum, header, size);
    const int status = create_file(s, out->name, &out->fd);
    return status == 0 ? write_bytes(s, out->name, out->fd, header, size) : status;
}

int state_out_rows(const struct state_save *s, const struct state_out *out, struct state_rows *rows,
                   XXH3_state_t *sum) {
    int status = 0;
    for (int64_t row = 0; status == 0 && row < rows->rows; row += rows->at_once) {
        const int64_t left = rows->rows - row, count = left < rows->at_once ? left : rows->at_once;
        status = state_rows_get(rows, row, count, s->why);
        if (status == 0 && state_rows_write(rows, out->fd, out->begin, row, count))
            status = cannot(s, "write", s->part_name, out->name);
        XXH3_64bits_update(sum, rows->buffer, (size_t)(count * rows->part.bytes));
    }
    return status;
}

int state_out_end(const struct state_save *s, const struct state_out *out, int status) {
    return end_file(s, out->name, out->fd, status);
}

static int write_manifest(const struct state_save *s, const struct state *state) {
    size_t size;
    int fd = -1;
    char *text = state_text_print(state, &size);
    if (!text) return said(s->why, EMBFUSE_NO_MEMORY, "out of memory for a manifest");
    int status = size < STATE_TEXT_MAX
                     ? create_file(s, STATE_MANIFEST, &fd)
                     : said(s->why, EMBFUSE_REFUSED, "too many tables for a manifest");
    if (status == 0) status = write_bytes(s, STATE_MANIFEST, fd, text, size);
    free(text);
    return end_file(s, STATE_MANIFEST, fd, status);
}

/* --- the whole */

/* If the last sync fails, nobody knows whether the rename will last: it is taken back. */
static int commit(const struct state_save *s) {
    if (sync_folder(s->part)) return cannot(s, "sync", s->part_name, "");
    if (renameat(s->directory, s->part_name, s->directory, s->name))
        return cannot(s, "rename", s->part_name, "");
    if (sync_folder(s->directory) == 0) return 0;
    const int status = cannot(s, "sync", "", "");
    renameat(s->directory, s->name, s->directory, s->part_name);
    return status;
}

int state_save_begin(struct state_save *s, const char *path, const struct table_shape *shapes,
                     int32_t num_tables, struct embfuse_error *why) {
    *s = (struct state_save){.path = path, .directory = -1, .part = -1, .why = why};
    const int status = open_directory(s);
    return status ? status : begin(s, shapes, num_tables);
}

int state_save_end(struct state_save *s, const struct state *state, int status) {
    if (status == 0) status = write_manifest(s, state);
    if (status == 0) status = commit(s);
    if (status == 0)
        remove_older(s);
    else if (s->part >= 0)
        remove_state(s->directory, s->part_name);
    if (s->part >= 0) close(s->part);
    if (s->directory >= 0) close(s->directory);
    s->part = s->directory = -1;
    return status;
}
