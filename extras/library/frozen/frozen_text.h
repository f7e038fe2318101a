/* SPDX-License-Identifier: MIT
 *
 * The text that describes raw rows: see frozen.h.
 */
#pragma once

#include "extras/library/frozen/frozen.h"

enum { FROZEN_VERSION = 1, FROZEN_TEXT_MAX = 512 };

struct frozen_text {
    int64_t rows;
    int32_t dim;
    int type;
    uint64_t xxh3; /* of the rows */
};

void frozen_text_print(const struct frozen_text *t, char text[FROZEN_TEXT_MAX]);

/* Reads a text. One that is not what frozen_text_print() makes of its numbers is damaged. path is for
 * messages. */
int frozen_text_parse(const char *path, const char *text, struct frozen_text *out,
                      struct error *err);
