/* SPDX-License-Identifier: MIT
 *
 * How a function of the harness reports an error: one line says what is wrong, where, and what to
 * do. Functions return 0 or -1 and fill the caller's struct. Only the drivers print and exit.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* Exit statuses of every program of the suite. */
enum { EXIT_FINE = 0, EXIT_USAGE = 1, EXIT_WRONG_RESULT = 2, EXIT_UNDECIDED = 3 };

struct error {
    char text[1024];
    bool memory; /* the error is that there is too little memory */
};

/* Formats the message, escapes control characters (of a file's name) in it, and returns -1, so that
 * callers write: return fail(err, "...", ...). */
int fail(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Does the same for an error that there is too little memory. */
int fail_memory(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Appends to the string in text[size]; if not all of it fits, the text ends in "...". */
void text_add(char *text, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Bytes of the UTF-8 character at the begin of a text; 0: there is none (overlong forms and surrogates are none). */
int utf8_size(const char *text);

/* Copies a text and writes control characters, and bytes that are no UTF-8, as \xNN. If not all of it fits, the
 * copy ends in "...". */
void escape_controls(const char *from, char *to, size_t size);
