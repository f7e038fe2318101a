# SPDX-License-Identifier: MIT
# An iteration on ranks: as stages.gp, in ms.
axis_text = "ms (median repetition)"
load "stages.gp"
