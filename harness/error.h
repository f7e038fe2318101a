/* SPDX-License-Identifier: MIT
 *
 * How a function of the harness says what went wrong: one line with what, where and what to do.
 * Functions return 0 or -1 and fill the caller's struct; only the drivers print and exit.
 */
#ifndef EMBFUSE_ERROR_H
#define EMBFUSE_ERROR_H

/* Exit statuses of every program of the suite. */
enum { EXIT_FINE = 0, EXIT_USAGE = 1, EXIT_WRONG_RESULT = 2 };

struct error {
    char text[512];
};

/* Formats the message and returns -1, so that callers write: return fail(err, "...", ...). */
int fail(struct error *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
