/* SPDX-License-Identifier: MIT
 *
 * Pictures of commands: gnuplot gets a script of variables and data blocks, and the frame that draws them.
 */
#pragma once

#include <stdio.h>

#include "harness/error.h"

/* Writes NAME = 'text', with quotes doubled and nothing expanded. */
void plot_assign(FILE *script, const char *name, const char *text);

/* Draws PREFIX.svg and PREFIX.png, both or none. frame: the content of cli/NAME.gp; the build makes cli/NAME.gp.h, a
 * string, of it. fill writes the variables and data of the picture; `kind` and `out` are set already. */
int plot_draw(const char *prefix, const char *frame, void (*fill)(FILE *script, const void *ctx),
              const void *ctx, struct error *err);
