/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a saved state: as a file, and as a header with right checksums before arrays of the right size. The reader
 * refuses them with a message, or what it read is printed as a header that reads back the same.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "extras/library/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

/* What the library has besides its state. */
const char *embfuse_version_text(void) {
    return "0.0.0";
}
int said(struct embfuse_error *why, int status, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why->text, sizeof why->text, format, args);
    va_end(args);
    return status;
}

static const struct table_shape shapes[] = {
    {.rows = 3, .dim = 2, .rule = RULE_adam_row_bias, .weight_type = BF16},
    {.rows = 2, .dim = 3, .rule = RULE_sgd, .weight_type = FP8, .rounding = ROUND_STOCHASTIC}};
enum { DATA = 78 }; /* bytes of their arrays */

static void try_file(const void *bytes, size_t size) {
    static int fd = -1;
    struct state first = {.shapes = shapes, .num_tables = 2}, second = first;
    struct embfuse_error why = {""};
    struct state_file f;
    char path[40];
    size_t length;
    if (fd < 0) fd = memfd_create("state", 0);
    if (ftruncate(fd, 0) || pwrite(fd, bytes, size, 0) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int status = state_open(&f, path, &first, &why);
    if (status && !why.text[0]) abort();
    if (status == 0) {
        char *printed = state_header_print(&first, &length);
        if (!printed || state_header_read("", printed, length, DATA, &second, &why)) abort();
        char *again = state_header_print(&second, &length);
        if (!again || strcmp(again, printed) != 0) abort();
        free(again);
        free(printed);
        free(second.tables);
    }
    state_close(&f, &first, status);
}

/* Gives the metadata of a header the right checksum, if it has any. */
static char *sealed(const char *text, size_t size) {
    json_t *header = json_loadb(text, size, 0, NULL),
           *metadata = json_object_get(header, "__metadata__");
    const char *state = json_string_value(json_object_get(metadata, "embfuse"));
    state_sum sum;
    if (state) {
        state_sum_print(sum, XXH3_64bits(state, strlen(state)));
        json_object_set_new(metadata, "xxh3", json_string(sum));
    }
    char *out = state ? json_dumps(header, JSON_COMPACT) : strndup(text, size);
    json_decref(header);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char *header = sealed((const char *)bytes, size);
    const uint64_t length = strlen(header);
    char *file = calloc(1, 8 + length + DATA);
    try_file(bytes, size);
    memcpy(file, &length, 8);
    memcpy(file + 8, header, length);
    try_file(file, 8 + length + DATA);
    free(file);
    free(header);
    return 0;
}
