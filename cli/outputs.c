/* SPDX-License-Identifier: MIT */
#include "cli/outputs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char suffix[] = ".part";

int outputs_check(const char *prefix, struct error *err) {
    char folder[PATH_MAX];
    const char *slash = strrchr(prefix, '/');
    int size = slash ? (int)(slash - prefix) + 1 : 0;
    if (strlen(prefix) > PATH_MAX / 2) return fail(err, "--out %.60s...: too long", prefix);
    snprintf(folder, sizeof folder, "%.*s.", size, prefix);
    if (access(folder, W_OK | X_OK) == 0) return 0;
    return fail(err, "--out %.200s: cannot write there: %s", prefix, strerror(errno));
}

const char *outputs_add(struct outputs *o, const char *path, struct error *err) {
    char **grown = realloc(o->part, (size_t)(o->count + 1) * sizeof *grown);
    if (grown) o->part = grown;
    char *part = malloc(strlen(path) + sizeof suffix);
    if (!grown || !part) {
        free(part);
        fail(err, "%s: out of memory", path);
        return NULL;
    }
    o->part[o->count++] = strcat(strcpy(part, path), suffix);
    return part;
}

int outputs_npy(struct outputs *o, const char *path, enum npy_type type, int num_dims,
                const int64_t *shape, const void *data, struct error *err) {
    const char *part = outputs_add(o, path, err);
    return part ? npy_write(part, type, num_dims, shape, data, err) : -1;
}

static void final_name(const char *part, char path[PATH_MAX]) {
    snprintf(path, PATH_MAX, "%.*s", (int)(strlen(part) - strlen(suffix)), part);
}

int outputs_commit(struct outputs *o, struct error *err) {
    char path[PATH_MAX];
    for (int i = 0; i < o->count; i++) {
        final_name(o->part[i], path);
        if (rename(o->part[i], path) == 0) continue;
        fail(err, "%.300s: cannot write: %s", path, strerror(errno));
        while (i-- > 0) {
            final_name(o->part[i], path);
            unlink(path);
        }
        return -1;
    }
    return 0;
}

void outputs_free(struct outputs *o) {
    for (int i = 0; i < o->count; i++) {
        unlink(o->part[i]); /* there is none after a commit */
        free(o->part[i]);
    }
    free(o->part);
    *o = (struct outputs){0};
}
