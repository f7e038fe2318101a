/* SPDX-License-Identifier: MIT */
#include "harness/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void escape_controls(const char *from, char *to, size_t size) {
    size_t used = 0;
    for (; *from && used + 5 <= size; from++) {
        unsigned char c = (unsigned char)*from;
        if (c < ' ' || c == 127)
            used += (size_t)sprintf(to + used, "\\x%02x", c);
        else
            to[used++] = *from;
    }
    strcpy(to + used, *from ? "..." : "");
}

void text_add(char *text, size_t size, const char *format, ...) {
    const size_t used = strlen(text);
    va_list args;
    va_start(args, format);
    const int more = vsnprintf(text + used, size - used, format, args);
    va_end(args);
    if ((size_t)more >= size - used) strcpy(text + size - 4, "...");
}

static int vfail(struct error *err, bool memory, const char *format, va_list args) {
    char text[sizeof err->text];
    vsnprintf(text, sizeof text, format, args);
    escape_controls(text, err->text, sizeof err->text);
    err->memory = memory;
    return -1;
}

int fail(struct error *err, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfail(err, false, format, args);
    va_end(args);
    return -1;
}

int fail_memory(struct error *err, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vfail(err, true, format, args);
    va_end(args);
    return -1;
}
