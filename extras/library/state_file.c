/* SPDX-License-Identifier: MIT
 *
 * A save writes NAME.part, syncs it, renames it to NAME, and syncs the folder. So a crash at any moment leaves the file
 * that was there or the new one, whole. A sync that failed is not tried again: after an error the system may drop what
 * it could not write, and report success the second time. The lock on NAME.part keeps a second save out.
 */
#include "extras/library/state.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "harness/workload/regular_file.h"

static const char part[] = ".part";
static const char old_state[] =
    "older versions of embfuse saved folders with a manifest, which this one does not read: load "
    "it "
    "with the version that the manifest names, or name a file and begin anew";

static int cannot(const struct state_file *f, const char *what) {
    const char *kept = "; nothing was saved, and what was there before is untouched";
    return said(f->why, EMBFUSE_FILE_ERROR, "%.250s: cannot %s: %s%s", f->path, what,
                strerror(errno), f->saves ? kept : "");
}

int state_bytes(const struct state_file *f, void *bytes, int64_t size, int64_t at) {
    for (char *next = bytes; size > 0;) {
        const ssize_t done = f->saves ? pwrite(f->fd, next, (size_t)size, (off_t)at)
                                      : pread(f->fd, next, (size_t)size, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done == 0) errno = f->saves ? EIO : ENODATA; /* the file became shorter */
        if (done <= 0) return cannot(f, f->saves ? "write" : "read");
        next += done;
        at += done;
        size -= done;
    }
    return 0;
}

int state_rows(const struct state_file *f, struct state *s, int32_t t, int a, int64_t first,
               int64_t count, void *rows) {
    const int64_t each = state_row_bytes(&s->shapes[t], a);
    struct array_in_file *array = &s->tables[t].array[a];
    state_sum is;
    const int status = state_bytes(f, rows, count * each, s->begin + array->at + first * each);
    if (status) return status;
    if (first == 0) XXH3_64bits_reset(f->sum[a]);
    XXH3_64bits_update(f->sum[a], rows, (size_t)(count * each));
    if (first + count < s->shapes[t].rows) return 0;
    state_sum_print(is, XXH3_64bits_digest(f->sum[a]));
    if (f->saves) strcpy(array->xxh3, is);
    return strcmp(array->xxh3, is) == 0
               ? 0
               : said(f->why, EMBFUSE_FILE_ERROR,
                      "%.250s: damaged: table.%d.%s has another checksum than the header says",
                      f->path, t, array_name(a));
}

/* --- a file that is there */

static int read_header(const struct state_file *f, struct state *s, int64_t size) {
    uint64_t length = 0;
    unsigned char head[8] = {0};
    int status = size < 8 ? 0 : state_bytes(f, head, 8, 0);
    if (status) return status;
    for (int i = 7; i >= 0; i--) length = length << 8 | head[i];
    if (memcmp(head, "embfuse ", 8) == 0)
        return said(f->why, EMBFUSE_REFUSED, "%.200s: %s", f->path, old_state);
    if (size < 8 || length > STATE_HEADER_MAX || (int64_t)length > size - 8)
        return said(f->why, EMBFUSE_FILE_ERROR,
                    "%.250s: damaged, or not a file of embfuse_save(): %lld bytes, and its header "
                    "has %llu",
                    f->path, (long long)size, (unsigned long long)length);
    char *text = malloc(length + 1);
    if (!text) return said(f->why, EMBFUSE_NO_MEMORY, "out of memory for a header");
    s->begin = 8 + (int64_t)length;
    status = state_bytes(f, text, (int64_t)length, 8);
    if (status == 0) status = state_header_read(f->path, text, length, size - s->begin, s, f->why);
    free(text);
    return status;
}

static int make_sums(struct state_file *f) {
    for (int a = 0; a < TABLE_ARRAYS; a++)
        if (!(f->sum[a] = XXH3_createState()))
            return said(f->why, EMBFUSE_NO_MEMORY, "out of memory for checksums");
    return 0;
}

int state_open(struct state_file *f, const char *path, struct state *s, struct embfuse_error *why) {
    struct error err;
    struct stat st;
    int64_t size;
    *f = (struct state_file){.path = path, .why = why, .folder = -1};
    s->tables = NULL;
    f->fd = regular_file_open(path, &size, &err);
    if (f->fd >= 0) {
        const int status = make_sums(f);
        return status ? status : read_header(f, s, size);
    }
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return said(why, EMBFUSE_REFUSED, "%.200s: a folder, not a file; %s", path, old_state);
    return said(why, EMBFUSE_FILE_ERROR, "%.500s", err.text);
}

/* --- a save */

/* Does the path name nothing, or a state of this model? A save replaces nothing else. */
static int check_there(const char *path, const struct state *s, struct embfuse_error *why) {
    struct state there = {.shapes = s->shapes, .num_tables = s->num_tables};
    struct embfuse_error text;
    struct state_file f;
    struct stat st;
    if (lstat(path, &st) && errno == ENOENT) return 0;
    const int status = state_close(&f, &there, state_open(&f, path, &there, &text));
    return status ? said(why, status, "%.400s; save to another file, or remove it", text.text) : 0;
}

/* Opens the folder of the path, and creates a file there or takes over what a crash has left. */
static int open_part(struct state_file *f) {
    const char *slash = strrchr(f->path, '/'), *name = slash ? slash + 1 : f->path;
    struct stat opened, named;
    char *folder = slash ? strndup(f->path, (size_t)(slash - f->path) + 1) : strdup(".");
    f->folder = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    if (f->folder < 0) return cannot(f, "open its folder");
    errno = ENAMETOOLONG;
    if (snprintf(f->name, sizeof f->name, "%s%s", name, part) > NAME_MAX)
        return cannot(f, "create a file beside it");
    const int fd = openat(f->folder, f->name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return cannot(f, "create a file beside it");
    /* The save that has the lock renames the file or removes it, perhaps before this one gets the lock. */
    if ((flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) || fstat(fd, &opened) ||
        fstatat(f->folder, f->name, &named, AT_SYMLINK_NOFOLLOW) || opened.st_ino != named.st_ino) {
        close(fd);
        return said(f->why, EMBFUSE_FILE_ERROR,
                    "%.250s: another save to this file is under way; wait for its end", f->path);
    }
    f->fd = fd;
    return ftruncate(fd, 0) ? cannot(f, "empty a file beside it") : 0;
}

/* Elements that are larger come first, so that all are aligned. Checksums take their room. */
static int lay_out(const struct state_file *f, struct state *s) {
    int64_t end = 0;
    size_t size;
    for (int64_t bytes = sizeof(float); bytes > 0; bytes /= 2)
        for (int32_t t = 0; t < s->num_tables; t++)
            for (int a = 0; a < TABLE_ARRAYS; a++) {
                struct array_in_file *array = &s->tables[t].array[a];
                if (dtype_bytes(table_array_type(&s->shapes[t], a)) != bytes) continue;
                state_sum_print(array->xxh3, 0);
                array->at = end;
                end += array->bytes;
            }
    free(state_header_print(s, &size));
    s->begin = 8 + (int64_t)size;
    if (size == 0) return said(f->why, EMBFUSE_NO_MEMORY, "out of memory for a header");
    return size > STATE_HEADER_MAX ? said(f->why, EMBFUSE_REFUSED, "too many tables for a header")
                                   : 0;
}

int state_create(struct state_file *f, const char *path, struct state *s,
                 struct embfuse_error *why) {
    *f = (struct state_file){.path = path, .why = why, .saves = true, .fd = -1, .folder = -1};
    int status = check_there(path, s, why);
    if (status == 0) status = lay_out(f, s);
    if (status == 0) status = make_sums(f);
    return status ? status : open_part(f);
}

static int put_in_place(const struct state_file *f, const struct state *s) {
    const int length = (int)(strlen(f->name) - strlen(part));
    char head[8], name[NAME_MAX + 1];
    size_t size;
    char *text = state_header_print(s, &size);
    if (!text) return said(f->why, EMBFUSE_NO_MEMORY, "out of memory for a header");
    for (int i = 0; i < 8; i++) head[i] = (char)(size >> 8 * i);
    int status = state_bytes(f, head, 8, 0);
    if (status == 0) status = state_bytes(f, text, (int64_t)size, 8);
    free(text);
    if (status == 0 && fsync(f->fd)) status = cannot(f, "sync");
    snprintf(name, sizeof name, "%.*s", length, f->name);
    if (status == 0 && renameat(f->folder, f->name, f->folder, name)) status = cannot(f, "rename");
    return status;
}

int state_close(struct state_file *f, struct state *s, int status) {
    if (f->saves && status == 0) status = put_in_place(f, s);
    if (f->saves && f->fd >= 0 && status)
        unlinkat(f->folder, f->name, 0);
    else if (f->saves && status == 0 && fsync(f->folder) && errno != EINVAL)
        status = said(f->why, EMBFUSE_FILE_ERROR,
                      "%.250s: saved, but its folder cannot be synced: %s; after a loss of power "
                      "the state before may be there",
                      f->path, strerror(errno));
    for (int a = 0; a < TABLE_ARRAYS; a++) XXH3_freeState(f->sum[a]);
    if (f->folder >= 0) close(f->folder);
    if (f->fd >= 0) close(f->fd);
    free(s->tables);
    s->tables = NULL;
    return status;
}
