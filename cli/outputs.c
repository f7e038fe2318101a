/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "cli/outputs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char suffix[] = ".part";

enum { NAME_ROOM = 40 }; /* room for the longest ending: .row_state.1023.npy.part.old */

int outputs_check(const char *flag, const char *prefix, struct error *err) {
    char folder[PATH_MAX];
    const char *slash = strrchr(prefix, '/'), *name = slash ? slash + 1 : prefix;
    if (strlen(prefix) > PATH_MAX / 2 || strlen(name) + NAME_ROOM > NAME_MAX)
        return fail(err, "%s %.60s...: too long; a name has up to %d characters", flag, prefix,
                    NAME_MAX - NAME_ROOM);
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return fail(err, "%s %.200s: names a folder; add the start of the file names: %.200s%sNAME",
                    flag, prefix, prefix, *name ? "/" : "");
    snprintf(folder, sizeof folder, "%.*s.", (int)(name - prefix), prefix);
    if (access(folder, W_OK | X_OK) == 0) return 0;
    return fail(err, "%s %.200s: cannot write there: %s", flag, prefix, strerror(errno));
}

/* --- an interrupted program leaves nothing half-written */

static const int stops[] = {SIGINT, SIGTERM, SIGHUP};
enum { STOPS = sizeof stops / sizeof *stops };
static struct outputs *unfinished;
static pthread_t owner; /* the thread that changes the list */

/* Another thread passes the signal on to the owner, which blocks it while it changes the list. */
static void clean_up(int signal_number) {
    if (!pthread_equal(owner, pthread_self())) {
        pthread_kill(owner, signal_number);
        return;
    }
    for (int i = 0; i < unfinished->count; i++) unlink(unfinished->part[i]);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

/* A signal that was ignored from the start, as in a background job, stays ignored. */
static void when_stopped(void (*how)(int)) {
    static bool ours[STOPS], known;
    struct sigaction before;
    for (int i = 0; i < STOPS; i++) {
        if (!known) ours[i] = !sigaction(stops[i], NULL, &before) && before.sa_handler != SIG_IGN;
        if (ours[i]) signal(stops[i], how);
    }
    known = true;
}

const char *outputs_add(struct outputs *o, const char *path, struct error *err) {
    char *part = malloc(strlen(path) + sizeof suffix);
    sigset_t blocked, before;
    sigemptyset(&blocked);
    for (int i = 0; i < STOPS; i++) sigaddset(&blocked, stops[i]);
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    char **grown = part ? realloc(o->part, (size_t)(o->count + 1) * sizeof *grown) : NULL;
    if (grown) {
        o->part = grown;
        o->part[o->count++] = strcat(strcpy(part, path), suffix);
        unfinished = o;
        owner = pthread_self();
        when_stopped(clean_up);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (grown) return part;
    free(part);
    fail(err, "%s: out of memory", path);
    return NULL;
}

int outputs_npy(struct outputs *o, const char *path, enum npy_type type, int num_dims,
                const int64_t *shape, const void *data, struct error *err) {
    const char *part = outputs_add(o, path, err);
    return part ? npy_write(part, type, num_dims, shape, data, err) : -1;
}

FILE *outputs_text(struct outputs *o, const char *path, struct error *err) {
    const char *part = outputs_add(o, path, err);
    FILE *file = part ? fopen(part, "w") : NULL;
    if (part && !file) fail(err, "%s: cannot create: %s", part, strerror(errno));
    return file;
}

static void final_name(const char *part, char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%.*s", (int)(strlen(part) - strlen(suffix)), part);
}

/* Gives the part its final name, and the old file the name of the part: a second call undoes the
 * first. Where the file system cannot exchange two files, there is no file of that name meanwhile. */
static int swap(const char *part, const char *path) {
    char aside[PATH_MAX];
    struct stat st;
    if (lstat(path, &st)) return rename(part, path);
    if (S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        return -1;
    }
    int status = renameat2(AT_FDCWD, part, AT_FDCWD, path, RENAME_EXCHANGE);
    if (status == 0 || (errno != EINVAL && errno != ENOSYS)) return status;
    snprintf(aside, sizeof aside, "%s.old", part);
    if (rename(path, aside)) return -1;
    if (rename(part, path) == 0) return rename(aside, part);
    int why = errno;
    rename(aside, path);
    errno = why;
    return -1;
}

/* Undoes the swap of the first `count` files. */
static void undo(const struct outputs *o, int count) {
    char path[PATH_MAX];
    while (count-- > 0) {
        final_name(o->part[count], path);
        if (access(o->part[count], F_OK) == 0)
            swap(o->part[count], path);
        else
            rename(path, o->part[count]);
    }
}

static int commit(const struct outputs *o, struct error *err) {
    char path[PATH_MAX];
    int status = 0;
    when_stopped(SIG_IGN); /* a signal must not stop it half-way */
    for (int i = 0; status == 0 && i < o->count; i++) {
        final_name(o->part[i], path);
        if (swap(o->part[i], path) == 0) continue;
        status = fail(err, "%.300s: cannot write: %s", path, strerror(errno));
        undo(o, i);
    }
    return status;
}

int outputs_end(struct outputs *o, int status, struct error *err) {
    if (status == 0) status = commit(o, err);
    when_stopped(SIG_IGN);
    for (int i = 0; i < o->count; i++) {
        unlink(o->part[i]); /* after a commit: the old file, if any */
        free(o->part[i]);
    }
    free(o->part);
    *o = (struct outputs){0};
    when_stopped(SIG_DFL);
    return status;
}
