/* SPDX-License-Identifier: MIT */
#include "harness/error.h"

#include <stdarg.h>
#include <stdio.h>

void escape_controls(const char *from, char *to, size_t size) {
    size_t used = 0;
    for (; *from && used + 5 <= size; from++) {
        unsigned char c = (unsigned char)*from;
        if (c < ' ' || c == 127)
            used += (size_t)sprintf(to + used, "\\x%02x", c);
        else
            to[used++] = *from;
    }
    to[used] = '\0';
}

int fail(struct error *err, const char *format, ...) {
    char text[sizeof err->text];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    escape_controls(text, err->text, sizeof err->text);
    return -1;
}
