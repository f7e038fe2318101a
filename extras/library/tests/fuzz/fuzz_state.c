/* SPDX-License-Identifier: MIT
 *
 * Any bytes as a manifest, as they are and with a right checksum: the reader refuses them with a message, or what it
 * read is printed as a text that reads back the same.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "extras/library/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

const char *embfuse_version_text(void) {
    return "0.0.0";
}

static void try_text(const char *text, size_t size) {
    struct state first, second;
    struct error err = {""};
    size_t length;
    if (state_text_read("fuzz", text, size, &first, &err)) {
        if (!err.text[0] || first.tables) abort();
        return;
    }
    char *printed = state_text_print(&first, &length);
    if (!printed || state_text_read("fuzz", printed, length, &second, &err)) abort();
    char *again = state_text_print(&second, &length);
    if (!again || strcmp(again, printed) != 0) abort();
    free(again);
    free(printed);
    free(first.tables);
    free(second.tables);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char *exact = malloc(size ? size : 1), *text = malloc(size + 40);
    if (!exact || !text) abort();
    memcpy(exact, bytes, size);
    try_text(exact, size); /* of exactly its size, so that AddressSanitizer sees a read behind it */
    free(exact);
    memcpy(text, bytes, size);
    sprintf(text + size, "end %016" PRIx64 "\n", (uint64_t)XXH3_64bits(text, size));
    try_text(text, size + 21);
    free(text);
    return 0;
}
