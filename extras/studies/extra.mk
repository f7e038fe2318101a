# SPDX-License-Identifier: MIT
# Studies: many runs each, with one result per study.
#
#| make bench-against  this checkout and the revision REF=HEAD~1 in turns, sample by sample, then make compare of both:
#|                text for a pull request in OUT/against/compare.md, status in OUT/against/status; variables as for bench
#| make noise     the effect that identical code shows on this machine (OUT/noise/noise.json), which both comparisons
#|                then use; REPS=7 samples, COMPARISONS=2; NOISE=file: another one. PAIRS=20: instead, how often two
#|                runs agree on the rows that may be quoted (OUT/noise/pairs.md); variables as for bench
#| make history   speed over revisions with change points: of HISTORY=folder of results, or of REVS="v1 v2 ...", which it
#|                builds and measures in turns first; OUT/history/
#| make bench-compilers  build the CPU kernels with each of COMPILERS="gcc clang"; the builds take turns in
#|                one run. Prints ratios, and whether exact results are equal bit for bit; variables as for bench
#| make bench-isa  the same for LEVELS="avx512 avx2 plain" of one portable build, with plots
#| make sweep     is cpu_fused the fastest everywhere? About 110 points over row width, pooling factor, skew,
#|                rows, tables and THREADS="1 2", with the other CPU kernels; GIB=4: limit of the weights
#| make scaling   time against lookups and rows, both up to MOST=1e8, and against THREADS="1 2"; names and
#|                skips what does not fit in memory
#| make crossover when does a dense gradient beat a sparse one? Over the share of touched rows, three row widths
#|                and RULE="sgd rowwise_adagrad adagrad adam"; MIB=128: weights of the table
#| make ladder    what each technique of cpu_fused is worth: time without it / time with all techniques, on
#|                the standard workloads; REPS=7 SEED= THREADS=
#| make tune      the fastest prefetches of this machine beside the defaults, in under 10 s (OUT/tune/tune.json, and a
#|                setting of EMBFUSE_PREFETCH where it gains 2 % or more)
#| make memory    what memory costs a thread: latency over spans up to MIB=4096, and what prefetches of many rows are worth
#| make cores     how evenly cpu_fused shares its work on up to 64 cores, counted on the ids of SPEC; not timed
#| make drift     how far narrow types, steps per lookup and dense steps drift over 1000 steps (OUT/drift/drift.md)
#| make gpu-lease  pack what extras/studies/gpu/lease.py needs to measure a GPU that is there for minutes: build/lease.tar.xz
#| make record    measure this machine: NAME=zen4-2core, in reports/results/. 25 minutes on two cores; STEPS=all takes
#|                hours. Waits for a quiet machine, continues an interrupted record. STEPS="standard standard-1-thread
#|                forward small-batches": these; others are roof winners types traces peers iteration ladder tune
#|                memory sweep crossover noise compilers isa scaling;
#|                FORCE="roof": measure these again; TRACES=folder with *.txt.gz (../shared/traces);
#|                WAIT=600: seconds to wait before a step; MINUTES=120: start no second try of a disturbed step
#|                that would end later; REPS= THREADS= SEED= VISITS= SECONDS= for all steps. Status 1 usage, another
#|                machine's folder, interrupted; 2 a wrong result, which is kept; 3 a step is missing
#| make claims    what is often said about fused optimizers, with verdicts from the records: extras/studies/study/claims.md
#| make readme    write the pages of all recorded machines, the front page with the figure of FRONT= (of another record
#|                if only that has the kernels of today), extras/studies/study/results.md with tables of RECORDED=, what
#|                a GPU has run, the claims, the table of ARTIFACT.md and the sums of records and pictures
#| make reproduce every figure and table of the pages again from the records, in OUT/reproduce/pages, compared with them;
#|                prints each with the command, time, memory and disk of a new run. Status 3: a page is older than its
#|                record, or a page, a record or a picture was edited by hand (reports/results/SHA256SUMS has their sums)
#| make figures   draw figures for a paper (PDF, SVG, PNG; in the width of a page and of a column) from a saved
#|                result: RESULT=file.json; RECORD=zen4-2core: all of a recorded machine, into OUT/figures/, and the names
#|                of those that have no data; TITLE=0: titles as text files beside them, FONT="Liberation Sans"
#| make gallery   draw extras/studies/study/figures.md again: a small picture of every figure, from RECORDED=$(FRONT);
#|                what it lacks comes from other records
#| make report    write one page about results, OUT/report.html, which needs no network: tables that sort and save, an
#|                explorer of all points, every figure, machines. RESULT="a.json b.json", RECORD="NAME NAME"
#|                of reports/results

.PHONY: bench-compilers bench-isa bench-against noise history sweep scaling crossover ladder drift cores \
        tune memory record readme claims reproduce figures gallery report

# Each compiler builds in its own folder and brings its own OpenMP runtime.
COMPILERS ?= gcc clang
packages_compilers := $(packages_bench) $(if $(findstring clang,$(COMPILERS)),clang libomp-dev)
bench-compilers:
	$(call require,compilers)
	@$(PYTHON) extras/studies/compilers.py $(COMPILERS) --make '$(MAKE)' --builds '$(B)/compilers' \
	     $(selection) --out=$(call quoted,$(OUT)/compilers)

# One portable build at each level of instructions.
LEVELS ?= avx512 avx2 plain
bench-isa:
	$(call require,bench)
	@$(PYTHON) extras/studies/compilers.py $(LEVELS) --levels --make '$(MAKE)' --builds '$(B)/isa' \
	     $(selection) --out=$(call quoted,$(OUT)/isa)
	@$(PYTHON) reports/plots.py $(call quoted,$(OUT)/isa/bench.json) $(call quoted,$(OUT)/isa)

# Another revision beside this checkout, this program beside itself, and many revisions: in turns, sample by sample.
packages_against := $(packages_bench) python3-matplotlib git
beside_itself     = --bench=$(B)/bench --embfuse=$(B)/embfuse
against           = $(call quoted,$(OUT)/against)
bench-against:
	$(call require,against)
	@$(if $(REF),,echo 'usage: make bench-against REF=HEAD~1 [FILTER=... REPS=9]' >&2; exit 1)
	@rm -f $(against)/status
	@$(MAKE) --no-print-directory $(B)/bench $(B)/embfuse
	@$(PYTHON) extras/studies/turns.py $(call quoted,$(REF)) --make '$(MAKE)' --builds '$(B)/against' $(beside_itself) \
	     $(selection) --out=$(against) || { status=$$?; [ $$status -eq 2 ] || exit $$status; }; \
	 $(PYTHON) reports/compare.py $(against)/bench-old.json $(against)/bench-new.json $(noise_file) $(COMPARE) \
	     --markdown=$(against)/compare.md --json=$(against)/compare.json --status-file=$(against)/status

noise:
	$(call require,against)
	@$(MAKE) --no-print-directory $(B)/bench $(B)/embfuse
	@$(PYTHON) extras/studies/noise.py $(beside_itself) $(selection) $(call given,COMPARISONS PAIRS VISITS SECONDS PRECISION) \
	     --out=$(call quoted,$(OUT)/noise)

# Without REVS the folder is only read.
HISTORY ?= $(OUT)/history
history:
	$(call require,against)
	@$(if $(REVS),$(MAKE) --no-print-directory $(B)/bench $(B)/embfuse)
	@$(PYTHON) extras/studies/history.py $(if $(REVS),--revisions=$(call quoted,$(REVS))) --make '$(MAKE)' --builds '$(B)/against' \
	     $(beside_itself) $(selection) $(noise_file) --out=$(call quoted,$(HISTORY))

# One kernel beside others: everywhere, with growing batches, tables and threads, and over the share of rows that a batch
# touches. A run that was cut short keeps its finished parts.
watched          := --kernel=cpu_fused
beside_sweep     := $(watched) --others='cpu_hash cpu_owner cpu_sort' $(if $(GIB),--gib='$(GIB)')
beside_scaling   := $(watched) --others='cpu_hash cpu_sort' $(if $(MOST),--most='$(MOST)')
beside_crossover  = --kernel=cpu_sort --others=cpu_fused $(MIB:%=--mib=%) $(if $(RULE),--rules=$(call quoted,$(RULE)))
packages_points  := $(packages_bench) python3-matplotlib
sweep scaling crossover:
	$(call require,points)
	@$(MAKE) --no-print-directory $(B)/bench
	@$(PYTHON) extras/studies/points.py $@ $(call quoted,$(OUT)/$@/$@.json) $(call quoted,$(OUT)/$@) --bench=$(B)/bench \
	     $(beside_$@) --dense=cpu_dense $(call given,THREADS REPS SEED)

# The worth of each technique of a kernel: a separate folder has a build with the kernels that lack one
# technique. The exit status is the status of the measurement, as for bench.
rungs         := $(wildcard extras/studies/ladder/*.c)
ladder_cases  := ^(zipf/.*|wide|cached|single-hot|dlrm-2022)/rowwise_adagrad/(cpu_fused|cpu_sort|without_.*)/cold$$
report_ladder  = $(PYTHON) extras/studies/points.py ladder $1/$2.json $1 $(watched) --below=cpu_sort
ladder:
	$(call require,points)
	@$(MAKE) --no-print-directory B=$(B)/ladder NVCC= EXTRA_KERNELS='$(rungs)' $(B)/ladder/bench
	@$(B)/ladder/bench --spec=datasets/standard.spec --rule=rowwise_adagrad --modes=cold --place=host \
	     --filter='$(ladder_cases)' --reps='$(or $(REPS),7)' $(call given,THREADS SEED) $(queue) \
	     --out=$(call quoted,$(OUT)/ladder); status=$$?; case $$status in 0 | 2) ;; *) exit $$status ;; esac; \
	 $(call report_ladder,$(call quoted,$(OUT)/ladder),bench) && exit $$status

# The pages of all recorded machines, the front page with the figure of FRONT, and study/results.md with tables of RECORDED.
FRONT    ?= reports/results/zen2-2core
RECORDED ?= $(FRONT)
looked_at = $(watched) --below=cpu_sort
recorded  = $(patsubst %/standard.json.gz,%,$(sort $(wildcard reports/results/*/standard.json.gz)))
write_pages    = $(PYTHON) extras/studies/pages.py $(recorded) --front=README.md --leading=$(call quoted,$(FRONT)) \
                 --front=extras/studies/study/results.md --leading=$(call quoted,$(RECORDED)) $(looked_at)
write_claims   = $(PYTHON) extras/studies/claims/page.py extras/studies/study/claims.md $(recorded)
write_history  = $(PYTHON) extras/studies/history.py --out=reports/results/history
write_artifact = $(PYTHON) extras/studies/reproduce.py --update=ARTIFACT.md
readme:
	@$(if $(wildcard $(C)/embfuse),$(C)/embfuse list --markdown | $(PYTHON) reports/section.py docs/kernels.md kernels,\
	   echo 'without $(C)/embfuse (make cuda) the list of kernels is not renewed: it would lack the device kernels')
	@$(write_pages)
	@$(write_claims)
	@$(write_history)
	@$(write_gallery)
	@$(write_artifact)

# What is often said about fused sparse optimizers, and what the records say.
claims:
	@$(write_claims)

# Every figure and table again, from the records.
reproduce:
	$(call require,test)
	@$(PYTHON) extras/studies/reproduce.py $(call quoted,$(OUT)/reproduce) \
	     $(foreach w,pages claims history gallery artifact,--again=$(call quoted,$(write_$w)))

# The whole folder of a machine: make record NAME=zen4-2core. Existing results are not measured again;
# extras/studies/record.py documents the exit status.
chosen   := $(strip $(foreach v,FILTER SPEC TRACE ALPHA DIMS ROWS BATCH POOLING RULE RING MODES PLACE,$(if $($v),$v=)))
folder    = reports/results/$(NAME)
record:
	$(call require,bench)
	@$(if $(NAME),,echo 'usage: make record NAME=zen4-2core [STEPS=... FORCE=... WAIT=600]' >&2; exit 1)
	@$(if $(chosen),echo 'record: $(chosen): a record has the same workloads on every machine' >&2; exit 1)
	@$(PYTHON) extras/studies/record.py '$(folder)' --work='$(B)/record/$(NAME)' --make='$(MAKE)' --compiler='$(CC)' \
	     $(looked_at) --steps='$(or $(STEPS),usual)' --force='$(FORCE)' --traces='$(TRACES)' \
	     $(if $(WAIT),--wait='$(WAIT)') $(if $(MINUTES),--minutes='$(MINUTES)') \
	     $(foreach v,REPS THREADS SEED VISITS SECONDS PRECISION,$(if $($v),--set='$v=$($v)')); status=$$?; \
	 [ $$status -ne 1 ] || exit 1; \
	 echo 'make readme writes the page of this machine'; exit $$status

# Programs of studies.
studies := $(addprefix $(B)/extras/studies/,cores/cores tune/tune memory/memory drift/drift)
$(studies): %: %.o $(objects)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(LDLIBS) $(whole)

# How evenly cpu_fused shares its work on many cores: counted on the ids of a workload.
cores: $(B)/extras/studies/cores/cores
	@$< $(or $(SPEC),datasets/standard.spec)

# The fastest prefetches of this machine, beside the defaults.
tune: $(B)/extras/studies/tune/tune
	@$(PYTHON) extras/studies/tune.py $(call quoted,$(OUT)/tune) --tune=$< $(call given,THREADS)

# What memory costs one thread of this machine: latency over spans, and what prefetches are worth.
memory: $(B)/extras/studies/memory/memory
	@$(PYTHON) extras/studies/memory.py $(call quoted,$(OUT)/memory) --memory=$< $(MIB:%=--mib=%)

# How far narrow types, steps per lookup and dense steps drift from the step of the suite: numbers of no machine,
# on a page of its own.
drift:
	$(call require,test)
	@$(MAKE) --no-print-directory $(B)/extras/studies/drift/drift
	@mkdir -p $(call quoted,$(OUT)/drift)
	@$(B)/extras/studies/drift/drift $(STEPS) >$(call quoted,$(OUT)/drift/drift.jsonl)
	@$(PYTHON) extras/studies/drift.py $(call quoted,$(OUT)/drift/drift.jsonl) $(call quoted,$(OUT)/drift)

# All that extras/studies/gpu/lease.py needs on a machine without this checkout and its packages: an archive of at most 64 MiB.
.PHONY: gpu-lease
lease := build/lease
gpu-lease:
	@[ -n "$(NVCC)" ] || { echo 'gpu-lease: nvcc is missing, so there are no device kernels' >&2; exit 1; }
	$(call require,test)
	@$(MAKE) --no-print-directory $(C)/bench $(C)/embfuse $(G)/tests/kernels/tests
	@sh extras/studies/gpu/pack.sh $(lease) $(C)/bench $(C)/embfuse $(G)/tests/kernels/tests

# --- pages and figures of results
# RECORD: the name of a recorded machine.
draw_record   = $(PYTHON) extras/studies/gallery.py $(call quoted,reports/results/$(RECORD)) $(call quoted,$(OUT)/figures)
write_gallery = $(PYTHON) extras/studies/gallery.py $(call quoted,$(RECORDED)) $(recorded:%=--also=%) --page=extras/studies/study/figures.md
figures:
	@$(if $(RECORD),$(draw_record),\
	   $(PYTHON) extras/studies/figures.py $(call quoted,$(RESULT)) $(call quoted,$(PLOTS)) $(call given,MODE))

# The page of all figures, from the record that leads the front page; what it lacks comes from others.
gallery:
	@$(write_gallery)

# One page about results. It needs Jinja2 alone, and says what is left out for want of other packages.
packages_report := python3 python3-jinja2 $(if $(filter 0,$(shell id -u)),gnuplot-nox python3-matplotlib)
programs_report := python3
page_results     = $(if $(RECORD),$(if $(filter file,$(origin RESULT)),,$(RESULT)),$(RESULT))
page_sources     = $(foreach r,$(page_results),$(call quoted,$r)) \
                   $(foreach r,$(RECORD),--record=$(call quoted,$(if $(findstring /,$r),$r,reports/results/$r)))
report:
	$(call require,report)
	@$(PYTHON) extras/studies/report.py $(page_sources) $(call given,MODE) $(looked_at) \
	     --out=$(call quoted,$(OUT)/report.html)

# --- tests
packages_test-studies := $(packages_test)
packages_ci   += python3-matplotlib python3-jinja2 chromium chromium-driver python3-selenium
needs_studies := $(B)/bench $(B)/embfuse $(studies)
