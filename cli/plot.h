/* SPDX-License-Identifier: MIT
 *
 * Pictures of commands: gnuplot gets a script of variables and data blocks, and the frame that draws them.
 */
#pragma once

#include <stdio.h>

#include "harness/error.h"

struct plot {
    const char
        *frame; /* the content of cli/NAME.gp; the build makes cli/NAME.gp.h, a string, of it */
    const char *heading, *machine;               /* the two lines of the title */
    void (*fill)(FILE *script, const void *ctx); /* writes the data of the picture, and variables */
    const void *ctx;
};

/* Draws PREFIX.svg and PREFIX.png, both or none. In the environment, TITLE=0 leaves the title out and writes it into
 * PREFIX.txt, and FONT is the font. */
int plot_draw(const char *prefix, const struct plot *p, struct error *err);
