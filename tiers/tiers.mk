# SPDX-License-Identifier: MIT
# Tables that are larger than the fast memory.

tiers_objects := $(patsubst %.c,$(B)/%.o,$(sort $(wildcard tiers/*.c)))
