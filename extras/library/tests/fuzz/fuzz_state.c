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

static void check(const char *text, size_t size, int64_t data_bytes) {
    struct state first = {.shapes = shapes, .num_tables = 2}, second = first;
    struct embfuse_error why = {""};
    size_t length;
    if (state_header_read("fuzz", text, size, data_bytes, &first, &why)) {
        if (!why.text[0]) abort();
        free(first.tables);
        return;
    }
    char *printed = state_header_print(&first, &length);
    if (!printed || state_header_read("fuzz", printed, length, DATA, &second, &why)) abort();
    char *again = state_header_print(&second, &length);
    if (!again || strcmp(again, printed) != 0) abort();
    free(again);
    free(printed);
    free(first.tables);
    free(second.tables);
}

/* The bytes as a file. */
static void try_file(const uint8_t *bytes, size_t size) {
    static int fd = -1;
    char path[40];
    struct state s = {.shapes = shapes, .num_tables = 2};
    struct embfuse_error why = {""};
    struct state_file f;
    if (fd < 0) fd = memfd_create("state", 0);
    if (ftruncate(fd, 0) || pwrite(fd, bytes, size, 0) != (ssize_t)size) abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int status = state_open(&f, path, &s, &why);
    if (status && !why.text[0]) abort();
    state_close(&f, &s, status);
}

/* The bytes as a header whose checksum of the metadata fits. */
static void try_sealed(const char *text, size_t size) {
    json_t *header = json_loadb(text, size, 0, NULL),
           *metadata = json_object_get(header, "__metadata__");
    const char *state = json_string_value(json_object_get(metadata, "embfuse"));
    state_sum sum;
    if (state) {
        state_sum_print(sum, XXH3_64bits(state, strlen(state)));
        json_object_set_new(metadata, "xxh3", json_string(sum));
        char *sealed = json_dumps(header, JSON_COMPACT);
        if (sealed) check(sealed, strlen(sealed), DATA);
        free(sealed);
    }
    json_decref(header);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char *exact = malloc(size ? size : 1);
    if (!exact) abort();
    memcpy(exact, bytes, size);
    try_file(bytes, size);
    check(exact, size,
          DATA); /* of exactly its size, so that AddressSanitizer sees a read behind it */
    try_sealed(exact, size);
    free(exact);
    return 0;
}
