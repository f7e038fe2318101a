/* SPDX-License-Identifier: MIT
 *
 * Calls of libembfuse that work, or that say what is wrong. Include it last, as cmocka_cases.h.
 */
#pragma once

#include <string.h>

#include "extras/library/embfuse.h"

#include "tests/support/cmocka_cases.h"

/* `why` of a call in FINE() and SAYS() is theirs. */
#define FINE(call)                                                                                 \
    do {                                                                                           \
        struct embfuse_error why;                                                                  \
        if (call) fail_msg("%s", why.text);                                                        \
    } while (0)

/* The call returns that status, and a message with these words. */
#define SAYS(status, words, call)                                                                  \
    do {                                                                                           \
        struct embfuse_error why;                                                                  \
        assert_int_equal(call, status);                                                            \
        if (!strstr(why.text, words)) fail_msg("'%s' lacks '%s'", why.text, words);                \
    } while (0)
