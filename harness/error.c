/* SPDX-License-Identifier: MIT */
#include "harness/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int utf8_size(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    int size = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (s[0] > 0xf4) return 0;
    for (int i = 1; i < size; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0;
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0;
    return size;
}

void escape_controls(const char *from, char *to, size_t size) {
    size_t used = 0;
    while (*from && used + 5 <= size) {
        const unsigned char c = (unsigned char)*from;
        const int bytes = c < ' ' || c == 127 ? 0 : utf8_size(from);
        if (bytes == 0)
            used += (size_t)sprintf(to + used, "\\x%02x", c);
        else
            memcpy(to + used, from, (size_t)bytes), used += (size_t)bytes;
        from += bytes ? bytes : 1;
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
