# SPDX-License-Identifier: MIT
# Reports from a saved result; none of these targets runs a benchmark. RESULT is the file, MODE
# cold or warm. The figures for a paper want a Python that has matplotlib: Debian's own.

PYTHON  ?= $(firstword $(wildcard /usr/bin/python3) python3)
RESULT  ?= $(OUT)/bench.json
PLOTS   ?= $(OUT)/plots
MODE    ?= cold
# B is the build folder everywhere else, so the new result must come from the command line.
new     := $(if $(filter command,$(origin B)),$(B))

.PHONY: plots table figures compare

report_plots = $(PYTHON) reports/plots.py $(RESULT) $(PLOTS) --mode $(MODE)
report_table = $(PYTHON) reports/table.py $(RESULT) --mode $(MODE)

plots:
	@$(report_plots)

table:
	@$(report_table)

figures:
	@$(PYTHON) reports/figures.py $(RESULT) $(PLOTS) --mode $(MODE)

# make compare A=old.json B=new.json COMPARE='--min-effect 5'; make shows the exit status.
compare:
	@$(if $(and $(A),$(new)),,echo 'usage: make compare A=OLD.json B=NEW.json' >&2; exit 1)
	@$(PYTHON) reports/compare.py $(A) $(new) $(COMPARE)
