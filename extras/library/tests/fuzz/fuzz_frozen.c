/* SPDX-License-Identifier: MIT
 *
 * Any bytes as the text of a frozen table: the parser refuses them with a message, or returns numbers whose
 * text they are.
 */
#include <stdlib.h>
#include <string.h>

#include "extras/library/frozen/frozen_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
    char *text = malloc(size + 1), again[FROZEN_TEXT_MAX];
    struct frozen_text t;
    struct error err = {""};
    if (!text) abort();
    memcpy(text, bytes, size);
    text[size] = '\0';
    if (frozen_text_parse("fuzz", text, &t, &err)) {
        if (!err.text[0]) abort();
    } else {
        frozen_text_print(&t, again);
        if (strcmp(again, text) != 0 || t.rows < 1 || t.dim < 1 || t.type >= FROZEN_TYPES) abort();
    }
    free(text);
    return 0;
}
