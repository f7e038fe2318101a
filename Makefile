# embfuse: build what this machine can.
#
#| make bench     measure all kernels on the standard workloads; print a table, draw plots (< 6 min)
#| make test      all tests; ends with "N passed, N failed, N skipped"
#| make smoke     every kernel, rule and workload kind once, tiny, checked
#| make plots     draw again from a saved result: RESULT=file.json; never measures
#| make table     print the table of a saved result
#| make figures   figures for a paper (PDF), from a saved result
#| make compare   two saved results: A=old.json B=new.json; exit status 3 if something got slower
#| make fuzz      fuzz the readers of untrusted files: FUZZ_SECONDS=60
#| make deps      install the Debian packages (as root), or name them: FOR=bench|test|ci
#| make           build build/bench and build/embfuse only
#| make clean
#|
#| What to measure (lists are separated by blanks):
#|   TRACE=file      a recorded id stream in its real order: .txt, .txt.gz, .ids.npy;
#|                   a,b,c are the features of one input
#|   SPEC=file       a workload file; datasets/standard.spec otherwise
#|   ALPHA= DIMS= ROWS= BATCH= POOLING=   axes of datasets/zipf.spec: exponents, floats per row, rows,
#|                   bags, and sum|mean|none or a pooling factor
#|   RULE=           update rules, or all      FILTER=regex   on WORKLOAD/RULE/KERNEL/MODE
#|   MODES=          cold warm                 SEED=          of all random numbers
#|   THREADS= REPS= RING=                      threads, samples, batches that samples go round
#|   OUT=build/results                         where the result goes
#| How to build:
#|   CC=clang        another compiler          NATIVE=0       portable code, not -march=native
#|   SANITIZE=address|undefined|thread         a build folder of its own for each
#
# The folder is the registry: every kernels/<family>/<name>.c (and .cu, where nvcc is) that ends in
# DEFINE_KERNEL(<name>) is in the table that the harness, the tests and the plots walk.

ifeq ($(origin CC),default)
CC       := gcc
endif
ifeq ($(origin CXX),default)
CXX      := $(if $(findstring clang,$(CC)),clang++,g++)
endif
NATIVE   ?= 1
SANITIZE ?=
OUT      ?= build/results

# Each (compiler, sanitizer, portable or not) builds in a folder of its own; the plain one in build/.
flavour  := $(if $(findstring gcc,$(notdir $(CC))),,$(notdir $(CC))-)$(if $(SANITIZE),$(SANITIZE)-)$(if $(filter 0,$(NATIVE)),portable-)
B        := build$(if $(flavour),/$(flavour:%-=%))

ifeq ($(SANITIZE)$(findstring clang,$(CC)),thread)
$(error SANITIZE=thread needs CC=clang: gcc's libgomp is not instrumented and gives false reports)
endif

WARN     := -Wall -Wextra -Wshadow -Wpointer-arith -Werror
ARCH     := $(if $(filter 0,$(NATIVE)),,-march=native -mprefer-vector-width=512)
# clang warns of loops marked simd that it does not vectorise at -O1.
SAN      := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer -Wno-pass-failed)
# No contraction and no reassociation: a rule gives the same bits in every kernel and compiler.
FP       := -ffp-contract=off -fno-math-errno -fno-trapping-math
COMMON   := $(if $(SANITIZE),-O1,-O3) -g -MMD -MP -fopenmp $(ARCH) $(FP) $(SAN) $(WARN) -I. -I$(B)
CFLAGS   += -std=gnu11 -Wstrict-prototypes -Wmissing-prototypes $(COMMON)
CXXFLAGS += -std=c++17 $(COMMON) -Wno-shadow # C lets a function be named as its struct
LDLIBS   += -lz -lxxhash -lm

# EXTRA_KERNELS: files from outside of the folder, .../<family>/<name>.c; build them with B=other/folder
kernels  := $(sort $(wildcard kernels/*/*.c)) $(EXTRA_KERNELS)
harness  := $(sort $(wildcard harness/*.c datasets/*.c))
objects  := $(kernels:%.c=$(B)/%.o) $(harness:%.c=$(B)/%.o)
cli      := $(sort $(wildcard cli/*.c))

# What a run measures; each becomes an option of build/bench and is in the record. See make help.
variables := FILTER SPEC TRACE ALPHA DIMS ROWS BATCH POOLING RULE SEED THREADS REPS RING MODES
$(foreach v,$(variables),$(eval $v ?=))
lower     = $(shell echo $1 | tr A-Z a-z)
options   = $(foreach v,$(variables),$(if $($v),--$(call lower,$v)='$($v)')) --out='$(OUT)'

.PHONY: all deps bench smoke clean help FORCE
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.PRECIOUS: $(B)/%.o

all: $(B)/bench $(B)/embfuse

# --- Debian packages: installed by root, otherwise named. Elsewhere the user sees to them.
packages_bench := gcc g++ libbenchmark-dev libxxhash-dev zlib1g-dev gnuplot-nox python3
packages_test  := $(packages_bench) libcmocka-dev python3-numpy python3-matplotlib
packages_ci    := $(packages_test) clang clang-format libomp-dev
missing         = $(shell command -v dpkg-query >/dev/null && for p in $(packages_$1); do \
                      dpkg-query -W -f '$${db:Status-Abbrev}' $$p 2>/dev/null | grep -q ^ii || echo $$p; done)
define require
@missing="$(call missing,$1)"; \
if [ -z "$$missing" ]; then :; \
elif [ "$$(id -u)" = 0 ]; then \
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; \
else \
    echo "missing packages; run this, then make again: sudo apt-get install $$missing" >&2; exit 1; \
fi
endef

deps:
	$(call require,$(or $(FOR),ci))

# --- the registry: one KERNEL(family, name) line per file, rewritten only when it changes
$(B)/kernel_list.inc: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' $(kernels) | sed -E 's|(.*/)?([^/]*)/([^/]*)\.c.?|KERNEL(\2, \3)|' > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@
FORCE:

$(B)/harness/registry.o: $(B)/kernel_list.inc

# --- where the binary comes from, rewritten only when it changes
$(B)/build_info.h: FORCE
	@mkdir -p $(@D)
	@{ echo '#define BUILD_COMMIT "$(shell git rev-parse HEAD 2>/dev/null)"'; \
	   echo '#define BUILD_DIRTY "$(if $(shell git status --porcelain 2>/dev/null | head -n 1),yes,no)"'; \
	   echo '#define BUILD_COMPILER "$(shell $(CC) --version | head -n 1)"'; \
	   echo '#define BUILD_FLAGS "$(subst ",,$(CFLAGS))"'; \
	   echo '#define BUILD_CC "$(CC)"'; \
	   echo '#define BUILD_NATIVE "$(NATIVE)"'; \
	   echo '#define BUILD_SANITIZE "$(SANITIZE)"'; \
	   echo '#define BUILD_LIBBENCHMARK "$(shell dpkg-query -W -f '$${Version}' libbenchmark-dev 2>/dev/null)"'; } > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(B)/harness/environment.o: $(B)/build_info.h

# V=1 shows the commands.
quiet     = $(if $(V),,@echo '  $1 $@';)

$(B)/%.o: %.c Makefile
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) $(CFLAGS) -c $< -o $@

$(B)/%.o: %.cpp Makefile
	@mkdir -p $(@D)
	$(call quiet,CXX)$(CXX) $(CXXFLAGS) -c $< -o $@

$(B)/bench: $(B)/harness/gbench.o $(objects)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ -lbenchmark -lpthread $(LDLIBS) -o $@

$(B)/embfuse: $(cli:%.c=$(B)/%.o) $(objects)
	$(call quiet,LD)$(CC) $(CFLAGS) $^ $(LDLIBS) -o $@

include tests/test.mk
include reports/report.mk

# --- measure, print the table, draw the plots. The status is that of the measurement: 2 if a kernel
# was wrong, which stands in the table too.
bench:
	$(call require,bench)
	@$(MAKE) --no-print-directory $(B)/bench
	@$(B)/bench $(options); status=$$?; [ $$status -ne 1 ] || exit 1; \
	 $(report_table) && $(report_plots) && exit $$status

smoke:
	$(call require,bench)
	@$(MAKE) --no-print-directory $(B)/bench
	@$(B)/bench --smoke $(options)

help:
	@sed -n 's/^#| \?//p' Makefile

clean:
	rm -rf build

-include $(shell find $(B) -name '*.d' 2>/dev/null)
