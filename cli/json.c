/* SPDX-License-Identifier: MIT */
#include "cli/json.h"

#include <stdio.h>

/* Bytes of the UTF-8 character at s; 0 if it is invalid, as overlong forms and surrogates are. */
static int utf8_size(const unsigned char *s) {
    int size = s[0] < 0x80 ? 1 : s[0] < 0xc2 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    if (s[0] > 0xf4) return 0;
    for (int i = 1; i < size; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f)) return 0;
    if ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f)) return 0;
    return size;
}

static void print_string(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    putchar('"');
    while (*s) {
        int size = utf8_size(s);
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
