/* SPDX-License-Identifier: MIT */
#include "cli/json.h"

#include <stdio.h>

#include "harness/error.h"

static void print_string(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    putchar('"');
    while (*s) {
        int size = utf8_size((const char *)s);
        if (size == 0)
            printf("\\ufffd");
        else if (*s < 0x20 || *s == '"' || *s == '\\' || *s == 0x7f)
            printf("\\u%04x", *s);
        else
            fwrite(s, 1, (size_t)size, stdout);
        s += size ? size : 1;
    }
    putchar('"');
}

void json_text(const char *key, const char *text, const char *then) {
    printf("\"%s\": ", key);
    print_string(text);
    printf("%s", then);
}
