/* SPDX-License-Identifier: MIT */
#include "extras/library/frozen/frozen.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include "harness/workload/npy.h"
#include "harness/workload/regular_file.h"
#include "extras/library/frozen/frozen_text.h"

static const char *const names[FROZEN_TYPES] = {
    [FP32] = "fp32", [BF16] = "bf16", [FP16] = "fp16", [FP8] = "fp8", [FROZEN_INT8] = "int8"};

const char *frozen_type_name(int type) {
    return names[type];
}

int frozen_type_find(const char *name, struct error *err) {
    for (int type = 0; type < FROZEN_TYPES; type++)
        if (strcmp(names[type], name) == 0) return type;
    return fail(err, "unknown type '%.40s'; known: fp32, bf16, fp16, fp8, int8", name);
}

int64_t frozen_row_bytes(int type, int32_t dim) {
    return type == FROZEN_INT8 ? dim + (int64_t)(2 * sizeof(float))
                               : dim * dtype_bytes((enum dtype)type);
}

/* --- the text */

void frozen_text_print(const struct frozen_text *t, char text[FROZEN_TEXT_MAX]) {
    const int size =
        snprintf(text, FROZEN_TEXT_MAX,
                 "embfuse frozen table %d\nrows %" PRId64 "\ndim %" PRId32 "\ntype %s\n"
                 "row_bytes %" PRId64 "\nbytes %" PRId64 "\nxxh3 %016" PRIx64 "\n",
                 FROZEN_VERSION, t->rows, t->dim, names[t->type], frozen_row_bytes(t->type, t->dim),
                 t->rows * frozen_row_bytes(t->type, t->dim), t->xxh3);
    snprintf(text + size, FROZEN_TEXT_MAX - (size_t)size, "end %016" PRIx64 "\n",
             (uint64_t)XXH3_64bits(text, (size_t)size));
}

int frozen_text_parse(const char *path, const char *text, struct frozen_text *out,
                      struct error *err) {
    char type[8] = "", again[FROZEN_TEXT_MAX];
    int version = 0;
    int64_t most;
    if (sscanf(text, "embfuse frozen table %d\n", &version) != 1)
        return fail(err, "%s: not the text of a frozen table; name one that embfuse export wrote",
                    path);
    if (version != FROZEN_VERSION)
        return fail(err, "%s: format version %d; this program reads %d: export the table again",
                    path, version, FROZEN_VERSION);
    const bool read = sscanf(text,
                             "%*[^\n]\nrows %" SCNd64 "\ndim %" SCNd32
                             "\ntype %7s\n%*[^\n]\n%*[^\n]\nxxh3 %" SCNx64,
                             &out->rows, &out->dim, type, &out->xxh3) == 4;
    struct error unknown;
    out->type = read ? frozen_type_find(type, &unknown) : -1;
    if (out->type >= 0 && out->rows > 0 && out->dim > 0 && out->dim <= FROZEN_DIM_MAX &&
        !__builtin_mul_overflow(out->rows, frozen_row_bytes(out->type, out->dim), &most)) {
        frozen_text_print(out, again);
        if (strcmp(again, text) == 0) return 0;
    }
    return fail(err, "%s: damaged: its lines do not agree; export the table again", path);
}

/* --- mapping */

/* Maps a whole file; NULL: err. */
static void *map_file(const char *path, int64_t *size, struct error *err) {
    const int fd = regular_file_open(path, size, err);
    if (fd < 0) return NULL;
    void *bytes = MAP_FAILED;
    if (*size == 0)
        fail(err, "%s: empty; export the table again", path);
    else if ((bytes = mmap(NULL, (size_t)*size, PROT_READ, MAP_SHARED, fd, 0)) == MAP_FAILED)
        fail(err, "%s: cannot map: %s", path, strerror(errno));
    close(fd);
    return bytes == MAP_FAILED ? NULL : bytes;
}

static int begin(struct frozen *t, int type, int64_t rows, int64_t dim, const char *data) {
    t->type = type;
    t->rows = rows;
    t->dim = (int32_t)dim;
    t->row_bytes = frozen_row_bytes(type, t->dim);
    t->data = data;
    return 0;
}

/* Advice only: a system that does not take it works as well. */
static int advise(struct frozen *t, int how) {
    madvise(t->mapping, t->mapped, how & FROZEN_SCAN ? MADV_SEQUENTIAL : MADV_RANDOM);
    return 0;
}

int frozen_open_raw(const char *rows, const char *text, int how, struct frozen *out,
                    struct error *err) {
    size_t length;
    int64_t size;
    struct frozen_text is;
    *out = (struct frozen){0};
    char *said = regular_file_text(text, 1 << 20, "text of a frozen table", &length, err);
    if (!said) return -1;
    said[length] = '\0'; /* there is room: it is shorter than what was allowed */
    const bool whole = strlen(said) == length;
    int status = whole ? frozen_text_parse(text, said, &is, err)
                       : fail(err, "%s: damaged: it has a 0 byte; export the table again", text);
    free(said);
    if (status) return -1;
    const int64_t want = is.rows * frozen_row_bytes(is.type, is.dim);
    if (!(out->mapping = map_file(rows, &size, err))) return -1;
    out->mapped = (size_t)size;
    status = begin(out, is.type, is.rows, is.dim, out->mapping);
    if (size != want)
        status = fail(err, "%s: %lld bytes, but %s says %lld; copy both files again", rows,
                      (long long)size, text, (long long)want);
    else if (how & FROZEN_VERIFY && XXH3_64bits(out->data, (size_t)size) != is.xxh3)
        status = fail(err, "%s: damaged: its checksum is not the one in %s; copy both files again",
                      rows, text);
    if (status == 0) return advise(out, how);
    frozen_close(out);
    return -1;
}

int frozen_open_npy(const char *path, int how, struct frozen *out, struct error *err) {
    int64_t size;
    struct npy a;
    *out = (struct frozen){0};
    if (how & FROZEN_VERIFY)
        return fail(err, "%s: a .npy has no checksum; export the table as raw rows", path);
    if (!(out->mapping = map_file(path, &size, err))) return -1;
    out->mapped = (size_t)size;
    int status = npy_view(path, out->mapping, (uint64_t)size, &a, err);
    if (status == 0 && (a.type == NPY_INT32 || a.type == NPY_INT64))
        status = fail(
            err, "%s: integers; a table is float32, float16, bf16 as uint16 or fp8 as uint8", path);
    else if (status == 0 && (a.num_dims != 2 || a.count == 0 || a.shape[1] > FROZEN_DIM_MAX))
        status = fail(
            err, "%s: not a table: the shape is [rows][dim], with a row and %d elements at most",
            path, FROZEN_DIM_MAX);
    else if (status == 0)
        begin(out, npy_dtype(a.type), a.shape[0], a.shape[1], a.data);
    if (status == 0) return advise(out, how);
    frozen_close(out);
    return -1;
}

int frozen_open(const char *name, int how, struct frozen *out, struct error *err) {
    const size_t length = strlen(name);
    char rows[PATH_MAX], text[PATH_MAX];
    *out = (struct frozen){0};
    if (length > 4 && strcmp(name + length - 4, ".npy") == 0)
        return frozen_open_npy(name, how, out, err);
    if (length > PATH_MAX - sizeof ".table") return fail(err, "%.60s...: too long", name);
    snprintf(rows, sizeof rows, "%s.rows", name);
    snprintf(text, sizeof text, "%s.table", name);
    return frozen_open_raw(rows, text, how, out, err);
}

void frozen_close(struct frozen *t) {
    if (t->mapping) munmap(t->mapping, t->mapped);
    *t = (struct frozen){0};
}
