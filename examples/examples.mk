# SPDX-License-Identifier: MIT
# Programs that use libembfuse as its users do: see examples/README.md.

.PHONY: example

$(B)/examples/dlrm: examples/dlrm.c include/embfuse.h $(shared)
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) -std=gnu11 -O2 -g $(SAN) $(WARN) -Iinclude $< $(shared) -Wl,-rpath,'$$ORIGIN/..' -lm $(whole)

example: $(B)/examples/dlrm
	@$(B)/examples/dlrm
