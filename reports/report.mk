# SPDX-License-Identifier: MIT
# Reports from a saved result: RESULT is the file, MODE is cold, warm or iteration. The figures for a
# paper need matplotlib, so Debian's own python3 comes first.

PYTHON  ?= $(firstword $(wildcard /usr/bin/python3) python3)
RESULT  ?= $(OUT)/bench.json
PLOTS   ?= $(OUT)/plots
MEDIANS ?= $(OUT)/medians.json
MODE    ?= cold

.PHONY: plots table figures medians compare

report_plots = $(PYTHON) reports/plots.py $(call quoted,$(RESULT)) $(call quoted,$(PLOTS)) --mode $(MODE)
report_table = $(PYTHON) reports/table.py $(call quoted,$(RESULT)) --mode $(MODE) $(if $(EACH),--each)

plots:
	@$(report_plots)

table:
	@$(report_table)

medians:
	@mkdir -p "$$(dirname $(call quoted,$(MEDIANS)))"
	@$(PYTHON) reports/medians.py $(call quoted,$(RESULT)) $(call quoted,$(MEDIANS))

figures:
	@$(PYTHON) reports/figures.py $(call quoted,$(RESULT)) $(call quoted,$(PLOTS)) --mode $(MODE)

# make compare A=old.json B=new.json COMPARE='--min-effect 5'. make turns every status but 0 into 2.
run_compare = $(PYTHON) reports/compare.py $(call quoted,$(A)) $(call quoted,$(new)) $(COMPARE)
compare:
	@$(if $(and $(A),$(new)),,echo "usage: make compare A=OLD.json B=NEW.json COMPARE='--min-effect 5'" >&2; exit 1)
	@to=$(call quoted,$(OUT)) && mkdir -p "$$to" && rm -f "$$to/compare.status" && \
	 $(run_compare) --status-file "$$to/compare.status" || { status=$$?; \
	     echo "compare: make exits with 2; $$to/compare.status has the status of this command:" >&2; \
	     printf '    %s\n' $(call quoted,$(run_compare)) >&2; exit $$status; }
