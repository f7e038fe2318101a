# SPDX-License-Identifier: MIT
# Reports from a saved result: RESULT is the file, MODE is cold, warm or iteration: the first that was asked for with
# MODES, or that there is. The figures for a
# paper need matplotlib, so Debian's own python3 comes first.
#
#| make plots     draw again from a saved result: RESULT=file.json; never measures
#| make table     print the table of a saved result; EACH=1: one for every rule, even of many. PRECISION=3: within
#|                how many % a row that may be quoted is known; also for plots and medians
#| make medians   the medians of a saved result as Google Benchmark's JSON, one row per workload, rule, kernel and mode, for
#|                github-action-benchmark and compare.py: RESULT=file.json MEDIANS=OUT/medians.json. For Bencher: *.bencher.json
#| make compare   compare two saved results: A=old.json B=new.json; status 3 if something got slower, 4 if
#|                unsure. OUT/compare.status has this status, since make turns every failure into 2;
#|                COMPARE='--min-effect 5': further options, see reports/compare.py --help

PYTHON  ?= $(firstword $(wildcard /usr/bin/python3) python3)
RESULT  ?= $(OUT)/bench.json
PLOTS   ?= $(OUT)/plots
MEDIANS ?= $(OUT)/medians.json
MODE    ?= $(firstword $(filter cold warm iteration,$(MODES)))
PRECISION ?=

.PHONY: plots table medians compare

report_plots = $(PYTHON) reports/plots.py $(call quoted,$(RESULT)) $(call quoted,$(PLOTS)) $(call given,MODE PRECISION)
report_table = $(PYTHON) reports/table.py $(call quoted,$(RESULT)) $(call given,MODE PRECISION) $(if $(EACH),--each)

plots:
	@$(report_plots)

table:
	@$(report_table)

# What identical code shows on this machine, if make noise has measured it.
NOISE     ?= $(wildcard $(OUT)/noise/noise.json)
noise_file = $(if $(NOISE),--noise=$(call quoted,$(NOISE)))

medians:
	@mkdir -p "$$(dirname $(call quoted,$(MEDIANS)))"
	@$(PYTHON) reports/medians.py $(call quoted,$(RESULT)) $(call quoted,$(MEDIANS)) $(call given,PRECISION)

# make compare A=old.json B=new.json COMPARE='--min-effect 5'. make turns every status but 0 into 2.
run_compare = $(PYTHON) reports/compare.py $(call quoted,$(A)) $(call quoted,$(new)) $(if $(NOISE),$(noise_file) )$(COMPARE)
compare:
	@$(if $(and $(A),$(new)),,echo "usage: make compare A=OLD.json B=NEW.json COMPARE='--min-effect 5'" >&2; exit 1)
	@to=$(call quoted,$(OUT)) && mkdir -p "$$to" && rm -f "$$to/compare.status" && \
	 $(run_compare) --status-file "$$to/compare.status" || { status=$$?; \
	     echo "compare: make exits with 2; $$to/compare.status has the status of this command:" >&2; \
	     printf '    %s\n' $(call quoted,$(run_compare)) >&2; exit $$status; }

