# SPDX-License-Identifier: MIT
# Reports from a saved result: RESULT is the file, MODE is cold, warm or iteration. The figures for a
# paper need matplotlib, so Debian's own python3 comes first.
#
#| make plots     draw again from a saved result: RESULT=file.json; never measures
#| make table     print the table of a saved result; EACH=1: one for every rule, even of many
#| make figures   draw figures for a paper (PDF, SVG, PNG; in the width of a page and of a column) from a saved
#|                result: RESULT=file.json; RECORD=zen4-2core: all of a recorded machine, into OUT/figures/. An
#|                index.html shows them, and names what has no data
#| make gallery   draw docs/figures.md again: a small picture of every figure, from RECORDED=reports/results/zen5-2core;
#|                what it lacks comes from other records
#| make medians   the medians of a saved result as Google Benchmark's JSON, one row per workload, rule, kernel and mode, for
#|                github-action-benchmark, Bencher and compare.py: RESULT=file.json MEDIANS=OUT/medians.json
#| make compare   compare two saved results: A=old.json B=new.json; status 3 if something got slower, 4 if
#|                unsure. OUT/compare.status has this status, since make turns every failure into 2;
#|                COMPARE='--min-effect 5': further options, see reports/compare.py --help
#| make report    write one page about results, OUT/report.html, which needs no network: machines, a table that sorts,
#|                every figure, kernels, workloads, an explorer of all points. RESULT="a.json b.json", RECORD="NAME NAME"
#|                of reports/results, A=old.json B=new.json: also compare these

PYTHON  ?= $(firstword $(wildcard /usr/bin/python3) python3)
RESULT  ?= $(OUT)/bench.json
PLOTS   ?= $(OUT)/plots
MEDIANS ?= $(OUT)/medians.json
MODE    ?= cold

.PHONY: plots table figures gallery medians compare report

report_plots = $(PYTHON) reports/plots.py $(call quoted,$(RESULT)) $(call quoted,$(PLOTS)) --mode $(MODE)
report_table = $(PYTHON) reports/table.py $(call quoted,$(RESULT)) --mode $(MODE) $(if $(EACH),--each)

plots:
	@$(report_plots)

table:
	@$(report_table)

# RECORD: the name of a recorded machine.
draw_record   = $(PYTHON) studies/gallery.py $(call quoted,reports/results/$(RECORD)) $(call quoted,$(OUT)/figures)
write_gallery = $(PYTHON) studies/gallery.py $(call quoted,$(RECORDED)) $(recorded:%=--also=%) --page=docs/figures.md
figures:
	@$(if $(RECORD),$(draw_record),\
	   $(PYTHON) reports/figures.py $(call quoted,$(RESULT)) $(call quoted,$(PLOTS)) --mode $(MODE))

# The page of all figures, from the record that leads the front page; what it lacks comes from others.
gallery:
	@$(write_gallery)

# What identical code shows on this machine, if make noise has measured it.
NOISE     ?= $(wildcard $(OUT)/noise/noise.json)
noise_file = $(if $(NOISE),--noise=$(call quoted,$(NOISE)))

medians:
	@mkdir -p "$$(dirname $(call quoted,$(MEDIANS)))"
	@$(PYTHON) reports/medians.py $(call quoted,$(RESULT)) $(call quoted,$(MEDIANS))

# make compare A=old.json B=new.json COMPARE='--min-effect 5'. make turns every status but 0 into 2.
run_compare = $(PYTHON) reports/compare.py $(call quoted,$(A)) $(call quoted,$(new)) $(if $(NOISE),$(noise_file) )$(COMPARE)
compare:
	@$(if $(and $(A),$(new)),,echo "usage: make compare A=OLD.json B=NEW.json COMPARE='--min-effect 5'" >&2; exit 1)
	@to=$(call quoted,$(OUT)) && mkdir -p "$$to" && rm -f "$$to/compare.status" && \
	 $(run_compare) --status-file "$$to/compare.status" || { status=$$?; \
	     echo "compare: make exits with 2; $$to/compare.status has the status of this command:" >&2; \
	     printf '    %s\n' $(call quoted,$(run_compare)) >&2; exit $$status; }

# One page about results. Whoever cannot install packages needs Jinja2 alone; the page says what is left out.
packages_report := python3 python3-jinja2 $(if $(filter 0,$(shell id -u)),gnuplot-nox python3-matplotlib node-d3)
programs_report := python3
page_results     = $(if $(RECORD)$(A)$(new),$(if $(filter file,$(origin RESULT)),,$(RESULT)),$(RESULT))
page_sources     = $(foreach r,$(page_results),$(call quoted,$r)) \
                   $(foreach r,$(RECORD),--record=$(call quoted,$(if $(findstring /,$r),$r,reports/results/$r))) \
                   $(if $(A),--old=$(call quoted,$(A))) $(if $(new),--new=$(call quoted,$(new)))
report:
	$(call require,report)
	@$(PYTHON) reports/report.py $(page_sources) --mode $(MODE) $(looked_at) $(if $(D3),--d3=$(call quoted,$(D3))) \
	     $(if $(D3_LICENCE),--d3-licence=$(call quoted,$(D3_LICENCE))) --out=$(call quoted,$(OUT)/report.html)
