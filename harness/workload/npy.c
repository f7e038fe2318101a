/* SPDX-License-Identifier: MIT
 *
 * A .npy file is a magic string, a version, the length of a header, the header (a Python dict
 * literal with the keys descr, fortran_order and shape, padded so that the data starts at a
 * multiple of 64) and the elements. The grammar read here is the subset of Python that NumPy
 * writes: see "NPY format" in numpy.lib.format. The reader compares the shape with the size of the
 * file before it allocates, so a hostile header cannot ask for memory.
 */
#include "harness/workload/npy.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "harness/memory.h"
#include "harness/workload/regular_file.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "elements are copied as they are");

static const struct {
    const char *descr;
    size_t size;
} types[] = {
    [NPY_FLOAT32] = {"<f4", 4}, [NPY_FLOAT16] = {"<f2", 2}, [NPY_INT32] = {"<i4", 4},
    [NPY_INT64] = {"<i8", 8},   [NPY_UINT16] = {"<u2", 2},  [NPY_UINT8] = {"|u1", 1},
};
enum { NUM_TYPES = sizeof types / sizeof types[0] };

size_t npy_element_bytes(enum npy_type type) {
    return types[type].size;
}

static const char magic[] = "\x93NUMPY";
enum {
    MAGIC_BYTES = sizeof magic - 1,
    LENGTH_AT = MAGIC_BYTES + 2,
    DATA_ALIGN = 64,
    GROWTH_DIGITS = 21, /* NumPy leaves room for the first dimension to grow in place */
    HEADER_MAX = 1024,  /* a longer header describes no array that is read */
    WORD_MAX = 48,      /* a message keeps so much of a string of the header */
    SHAPE_TEXT_MAX = NPY_MAX_DIMS * 22 + 3,
};

/* The rest of the header, which a NUL ends; name and err are for messages. */
struct reader {
    const char *name;
    struct error *err;
    const char *at;
};

/* shape as Python prints a tuple: (), (5,), (2, 3). */
static void shape_text(char text[SHAPE_TEXT_MAX], int num_dims, const int64_t *shape) {
    int n = sprintf(text, "(");
    for (int d = 0; d < num_dims; d++)
        n += sprintf(text + n, d ? ", %lld" : "%lld", (long long)shape[d]);
    sprintf(text + n, num_dims == 1 ? ",)" : ")");
}

/* Elements of the shape, or -1 where a dimension is negative or the bytes overflow, even if another
 * dimension is zero. */
static int64_t shape_count(enum npy_type type, int num_dims, const int64_t *shape) {
    int64_t bytes = (int64_t)types[type].size;
    bool none = false;
    for (int d = 0; d < num_dims; d++) {
        if (shape[d] == 0)
            none = true;
        else if (shape[d] < 0 || __builtin_mul_overflow(bytes, shape[d], &bytes))
            return -1;
    }
    return none ? 0 : bytes / (int64_t)types[type].size;
}

/* --- the header, token by token ------------------------------------------------------------ */

/* Passes over blanks and the token if it comes next. */
static bool take(struct reader *r, const char *token) {
    const size_t size = strlen(token);
    r->at += strspn(r->at, " \t\r\n");
    if (strncmp(r->at, token, size) != 0) return false;
    r->at += size;
    return true;
}

/* A message holds one line of plain text, whatever the file holds. */
static void copy_printable(char out[WORD_MAX], const char *from, const char *end) {
    int n = 0;
    for (; from < end && n < WORD_MAX - 1; from++)
        out[n++] = isprint((unsigned char)*from) ? *from : '?';
    out[n] = 0;
}

/* A quoted string; escapes do not occur in what NumPy writes. */
static bool take_string(struct reader *r, char out[WORD_MAX]) {
    const char quote = take(r, "'") ? '\'' : take(r, "\"") ? '"' : 0;
    const char *close = quote ? strchr(r->at, quote) : NULL;
    if (!close) return false;
    copy_printable(out, r->at, close);
    r->at = close + 1;
    return true;
}

static int malformed(struct reader *r, const char *what) {
    char found[WORD_MAX];
    copy_printable(found, r->at, r->at + strlen(r->at));
    return fail(r->err, "%s: the header is malformed: %s, found \"%.20s\"; save it with numpy.save",
                r->name, what, found);
}

static int take_descr(struct reader *r, struct npy *out) {
    char descr[WORD_MAX];
    if (take(r, "[") || take(r, "("))
        return fail(r->err, "%s: structured arrays are not read; save each field as its own array",
                    r->name);
    if (!take_string(r, descr)) return malformed(r, "descr is not a string");
    for (int t = 0; t < NUM_TYPES; t++)
        if (strcmp(descr, types[t].descr) == 0) return out->type = (enum npy_type)t, 0;
    return fail(
        r->err,
        "%s: unsupported dtype %s; convert it with astype: ids, offsets and winners to int32 "
        "or int64, other arrays to float32",
        r->name, descr);
}

static int take_order(struct reader *r) {
    if (take(r, "False")) return 0;
    if (!take(r, "True")) return malformed(r, "fortran_order is neither True nor False");
    return fail(r->err, "%s: Fortran (column-major) order; save numpy.ascontiguousarray(array)",
                r->name);
}

/* A tuple: () or (5,) or (2, 3) or (2, 3,). */
static int take_shape(struct reader *r, struct npy *out) {
    bool comma = true;
    if (!take(r, "(")) return malformed(r, "shape is not a tuple");
    for (out->num_dims = 0; !take(r, ")"); comma = take(r, ",")) {
        if (!comma) return malformed(r, "shape is not a tuple");
        if (out->num_dims == NPY_MAX_DIMS)
            return fail(r->err, "%s: more than %d dimensions; reshape the array", r->name,
                        NPY_MAX_DIMS);
        char *end;
        errno = 0;
        const long long dim = strtoll(r->at, &end, 10);
        if (end == r->at) return malformed(r, "a dimension is not a whole number");
        if (errno == ERANGE)
            return fail(r->err, "%s: a dimension of the shape exceeds 63 bits; save it again",
                        r->name);
        if (dim < 0)
            return fail(r->err, "%s: negative dimension %lld in the shape; save it again", r->name,
                        dim);
        out->shape[out->num_dims++] = dim;
        r->at = end;
    }
    return out->num_dims == 1 && !comma ? malformed(r, "shape is a number, not a tuple") : 0;
}

static int take_header(struct reader *r, struct npy *out) {
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    enum { DESCR, ORDER, SHAPE, KEYS };
    bool seen[KEYS] = {false};
    if (!take(r, "{")) return malformed(r, "not a dict");
    for (bool comma = true; !take(r, "}"); comma = take(r, ",")) {
        char key[WORD_MAX];
        int k = 0;
        if (!comma) return malformed(r, "expected a comma or the end of the dict");
        if (!take_string(r, key)) return malformed(r, "expected a quoted key");
        if (!take(r, ":")) return malformed(r, "expected a colon after a key");
        while (k < KEYS && strcmp(key, keys[k]) != 0) k++;
        if (k == KEYS || seen[k])
            return fail(r->err, "%s: the header has %s key '%s'; save it with numpy.save", r->name,
                        k < KEYS ? "twice the" : "an unknown", key);
        seen[k] = true;
        if (k == DESCR ? take_descr(r, out) : k == ORDER ? take_order(r) : take_shape(r, out))
            return -1;
    }
    for (int k = 0; k < KEYS; k++)
        if (!seen[k])
            return fail(r->err, "%s: the header has no key '%s'; save it with numpy.save", r->name,
                        keys[k]);
    take(r, ""); /* passes over blanks */
    return *r->at ? malformed(r, "text after the dict") : 0;
}

/* --- the file around it -------------------------------------------------------------------- */

/* Copies the header, which lies inside the file, and sets *begin to its end. */
static int copy_header(const struct reader *r, const unsigned char *bytes, uint64_t size,
                       char header[HEADER_MAX], uint64_t *begin) {
    if (size < MAGIC_BYTES || memcmp(bytes, magic, MAGIC_BYTES) != 0)
        return fail(r->err, "%s: not a .npy file, \\x93NUMPY is missing; save it with numpy.save",
                    r->name);
    bool complete = size >= LENGTH_AT;
    if (complete && (bytes[6] < 1 || bytes[6] > 3 || bytes[7] != 0))
        return fail(r->err, "%s: unknown .npy format version %d.%d; save it as 1.0, 2.0 or 3.0",
                    r->name, bytes[6], bytes[7]);
    unsigned width = complete && bytes[6] > 1 ? 4 : 2;
    uint64_t start = LENGTH_AT + width, length = 0;
    for (unsigned b = 0; start <= size && b < width; b++)
        length |= (uint64_t)bytes[LENGTH_AT + b] << 8 * b;
    if (start > size || length > size - start)
        return fail(r->err, "%s: the header ends at byte %llu, the file at %llu; copy it again",
                    r->name, (unsigned long long)(start + length), (unsigned long long)size);
    if (length >= HEADER_MAX)
        return fail(r->err, "%s: a header of %llu bytes, at most %d are read; save one plain array",
                    r->name, (unsigned long long)length, HEADER_MAX - 1);
    for (uint64_t i = 0; i < length; i++) /* a NUL is malformed, and ends no text */
        header[i] = bytes[start + i] ? (char)bytes[start + i] : '?';
    header[length] = 0;
    *begin = start + length;
    return 0;
}

/* The elements must fill the rest of the file exactly. */
static int check_extent(const struct reader *r, struct npy *out, uint64_t have) {
    char shape[SHAPE_TEXT_MAX];
    shape_text(shape, out->num_dims, out->shape);
    out->count = shape_count(out->type, out->num_dims, out->shape);
    if (out->count < 0)
        return fail(r->err, "%s: shape %s overflows; save it again", r->name, shape);
    uint64_t want = (uint64_t)out->count * types[out->type].size;
    if (have < want)
        return fail(r->err,
                    "%s: shape %s of %s needs %llu bytes of data, got %llu; copy or save it again",
                    r->name, shape, types[out->type].descr, (unsigned long long)want,
                    (unsigned long long)have);
    if (have > want)
        return fail(r->err,
                    "%s: %llu trailing bytes after the %llu of shape %s; keep one array in a file",
                    r->name, (unsigned long long)(have - want), (unsigned long long)want, shape);
    return 0;
}

int npy_head(const char *name, const void *bytes, uint64_t have, uint64_t size, struct npy *out,
             uint64_t *begin, struct error *err) {
    char header[HEADER_MAX];
    struct reader r = {name, err, header};
    *out = (struct npy){0};
    if (copy_header(&r, bytes, have, header, begin) == 0 && take_header(&r, out) == 0 &&
        check_extent(&r, out, size - *begin) == 0)
        return 0;
    *out = (struct npy){0};
    return -1;
}

int npy_view(const char *name, const void *bytes, uint64_t size, struct npy *out,
             struct error *err) {
    uint64_t begin;
    if (npy_head(name, bytes, size, size, out, &begin, err)) return -1;
    out->data = (void *)((uintptr_t)bytes + begin);
    return 0;
}

int npy_parse(const char *name, const void *bytes, uint64_t size, struct npy *out,
              struct error *err) {
    if (npy_view(name, bytes, size, out, err)) return -1;
    const size_t element = types[out->type].size;
    void *data = array_require(out->count, element, name, err);
    if (data) memcpy(data, out->data, (size_t)out->count * element);
    if (!data) *out = (struct npy){0};
    out->data = data;
    return data ? 0 : -1;
}

static int cannot(const char *path, const char *what, struct error *err) {
    return fail(err, "%s: cannot %s: %s", path, what, strerror(errno));
}

/* Mapped, so that only the elements are copied. */
int npy_read(const char *path, struct npy *out, struct error *err) {
    *out = (struct npy){0};
    int64_t size;
    int fd = regular_file_open(path, &size, err);
    if (fd < 0) return -1;
    void *bytes = size ? mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    int failed = bytes == MAP_FAILED ? cannot(path, "map", err)
                                     : npy_parse(path, size ? bytes : "", (uint64_t)size, out, err);
    if (size && bytes != MAP_FAILED) munmap(bytes, (size_t)size);
    close(fd);
    return failed;
}

size_t npy_header(char out[NPY_HEADER_MAX], enum npy_type type, int num_dims,
                  const int64_t *shape) {
    char text[SHAPE_TEXT_MAX];
    shape_text(text, num_dims, shape);
    size_t start = LENGTH_AT + 2;
    size_t end = start + (size_t)sprintf(out + start,
                                         "{'descr': '%s', 'fortran_order': False, 'shape': %s, }",
                                         types[type].descr, text);
    int growth = num_dims ? GROWTH_DIGITS - snprintf(NULL, 0, "%lld", (long long)shape[0]) : 0;
    /* At least one blank and the newline, then up to the next multiple of DATA_ALIGN. */
    size_t size = (end + (size_t)growth + 1) / DATA_ALIGN * DATA_ALIGN + DATA_ALIGN;
    memset(out + end, ' ', size - end - 1);
    out[size - 1] = '\n';
    size_t length = size - start;
    memcpy(out, magic, MAGIC_BYTES);
    memcpy(out + MAGIC_BYTES, (char[]){1, 0, (char)length, (char)(length >> 8)}, 4);
    return size;
}

int npy_read_ints(const char *path, struct npy *out, struct error *err) {
    if (npy_read(path, out, err)) return -1;
    const bool ids = out->type == NPY_INT32 || out->type == NPY_INT64;
    if (out->num_dims == 1 && ids) return 0;
    fail(err, "%s: has %d dimensions of %s; save one dimension of int32 or int64", path,
         out->num_dims, npy_type_name(out->type));
    npy_free(out);
    return -1;
}

int64_t *npy_read_int64s(const char *path, int64_t *count, struct error *err) {
    struct npy a;
    if (npy_read_ints(path, &a, err)) return NULL;
    *count = a.count;
    if (a.type == NPY_INT64) return a.data;
    int64_t *wide = array_require(a.count, sizeof *wide, path, err);
    for (int64_t i = 0; wide && i < a.count; i++) wide[i] = ((const int32_t *)a.data)[i];
    npy_free(&a);
    return wide;
}

FILE *npy_begin(const char *path, enum npy_type type, int num_dims, const int64_t *shape,
                int64_t *count, struct error *err) {
    *count = -1;
    if (num_dims < 0 || num_dims > NPY_MAX_DIMS)
        fail(err, "%s: cannot write %d dimensions; 0 to %d are possible", path, num_dims,
             NPY_MAX_DIMS);
    else if ((*count = shape_count(type, num_dims, shape)) < 0)
        fail(err, "%s: cannot write a shape that is negative or overflows; correct it", path);
    if (*count < 0) return NULL;
    char header[NPY_HEADER_MAX];
    size_t header_bytes = npy_header(header, type, num_dims, shape);
    FILE *f = fopen(path, "wb");
    if (f)
        fwrite(header, 1, header_bytes, f);
    else
        cannot(path, "create", err);
    return f;
}

int npy_write(const char *path, enum npy_type type, int num_dims, const int64_t *shape,
              const void *data, struct error *err) {
    int64_t count;
    FILE *f = npy_begin(path, type, num_dims, shape, &count, err);
    if (!f) return -1;
    if (count) fwrite(data, types[type].size, (size_t)count, f);
    if (file_end(f, path, err) == 0) return 0;
    unlink(path);
    return -1;
}

void npy_free(struct npy *a) {
    free(a->data);
    *a = (struct npy){0};
}
