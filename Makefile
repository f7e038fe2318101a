# SPDX-License-Identifier: MIT
# embfuse: build what this machine can.
#
#| make           build build/bench and build/embfuse, without nvcc
#| make bench     measure all kernels on the standard workloads, print a table, draw plots (5 min; 13 min where
#|                the last-level cache has 480 MiB, which every sample flushes). Device kernels, too, if there is a device
#| make check     unit tests, without kernels, in seconds
#| make test      these, kernels on drawn shapes, and the programs; ends with "N passed, N failed, N skipped"
#| make smoke     run and check every kernel, rule and workload kind once, tiny; result in OUT/smoke/
#| make table     the table of a saved result, RESULT=file.json; make plots: its plots; neither measures
#| make compare   two saved results: A=old.json B=new.json; status 3 if something got slower, 4 if unsure
#| make cuda      build/cuda/bench and embfuse with device kernels; the others have host kernels alone
#| make deps      install the Debian packages as root, or else print their names: FOR=bench|test|ci.
#|                With DEPS=dir: say what that prefix lacks; status 1 if it lacks anything
#| make clean     remove build/
#| More, by folder: make help-emulation (device kernels and GPUs), help-reports, help-tests; of a folder of extras/:
#|                help-library
#|
#| What to measure (lists are separated by blanks):
#|   TRACE=file      a recorded id stream: .txt, .txt.gz, .ids.npy; a,b,c: files that are the features of one input
#|   SPEC=file       a workload file; datasets/standard.spec otherwise
#|   ALPHA= DIMS= ROWS= BATCH= POOLING=   axes of datasets/zipf.spec; POOLING: sum|mean|none|max or a pooling factor
#|   RULE=           update rules, forward (the lookup), gradient (rows and values), weight_grad, or all
#|   FILTER=regex    on WORKLOAD/RULE/KERNEL/MODE
#|   MODES=          cold, warm, iteration (forward, plan and step as one); cold warm otherwise
#|   PLACE=          host, device, or all (without a device: host)
#|   SEED= THREADS= REPS= RING= OUT=build/results   RING: batches that the samples cycle through
#|   VISITS=5        the samples of a run are spread over so many visits to each workload
#|   SECONDS=600 PRECISION=3   more visits, until ratios are known within 3 %; none begins after 600 s of the run
#| How to build: CC=clang, NATIVE=0 (portable), SANITIZE=address,undefined or thread, DEBUG=-g, NVCC= (without CUDA),
#|   CUDA_ARCHS="80 90 100", DEPS=dir (libraries in dir/include and dir/lib: without apt, or without root)
#| Exit status: 0 fine, 1 usage or environment, 2 a wrong result or a crash; docs/usage.md has all of it
#
# The folder is the registry: the harness, the tests and the plots use every kernels/<family>/<name>.c (with nvcc
# also .cu) that ends in DEFINE_KERNEL(<name>).

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
comma    := ,
space    := $() $()
flavour  := $(if $(findstring gcc,$(notdir $(CC))),,$(notdir $(CC))-)$(if $(SANITIZE),$(subst $(comma),-,$(SANITIZE))-)$(if $(filter 0,$(NATIVE)),portable-)
B        := build$(if $(flavour),/$(flavour:%-=%))
# In make compare and make report, B is the new result.
ifneq ($(filter compare report,$(MAKECMDGOALS)),)
new      := $(if $(filter command,$(origin B)),$(B))
override B := build
endif
# Programs with what nvcc makes of device kernels; all others have host kernels alone.
C         = $(B)/cuda

ifeq ($(SANITIZE)$(findstring clang,$(CC)),thread)
$(error SANITIZE=thread needs CC=clang: gcc's libgomp is not instrumented and gives false reports)
endif

WARN     := -Wall -Wextra -Wshadow -Wpointer-arith -Wno-missing-field-initializers -Werror
# gcc and clang know vectors of a preferred width on x86 alone.
machine  := $(shell $(CC) -dumpmachine)
x86      := $(filter x86_64-% i%86-%,$(machine))
ARCH     := $(if $(filter 0,$(NATIVE)),,-march=native $(if $(x86),-mprefer-vector-width=512))
# clang warns of loops marked simd that it does not vectorise at -O1. With sanitizers, gcc's points-to analysis takes a
# third of the time to build the largest host kernels.
SAN      := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer \
              $(if $(findstring clang,$(CC)),-Wno-pass-failed,-fno-tree-pta))
# CUDA in the plain build only; without nvcc, or with NVCC= , the rest works as well.
NVCC     ?= $(if $(flavour),,$(shell command -v nvcc))
# One architecture by default: the device's own, if its driver says which. All device kernels take nvcc 4 minutes of it.
DEVICES   ?= $(wildcard /dev/nvidia[0-9]* /dev/dxg /dev/nvmap)
ifeq ($(origin CUDA_ARCHS),undefined)
CUDA_ARCHS := $(or $(if $(DEVICES),$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)),90)
endif
CUDA     := $(NVCC:%/bin/nvcc=%)
# No contraction and no reassociation: a rule gives the same bits in every kernel and compiler.
FP       := -ffp-contract=off -fno-math-errno -fno-trapping-math
# Where a linker happens to put a loop is worth up to 10 % of a kernel's time: all loops begin a cache line.
ALIGN    := -falign-functions=64 -falign-loops=64
# The same objects are in programs and in the library, which exports only what its header declares.
PIC      := -fPIC -fvisibility=hidden
# DEPS=dir: a prefix with libraries, dir/include and dir/lib; also as Debian lays them out.
deps     := $(if $(DEPS),$(or $(realpath $(DEPS)),$(error DEPS=$(DEPS): no such folder)))
deps_inc := $(if $(deps),$(patsubst %, -isystem %,$(wildcard $(deps)/include $(deps)/include/*-linux-gnu)))
deps_lib := $(if $(deps),$(foreach d,$(wildcard $(deps)/lib $(deps)/lib64 $(deps)/lib/*-linux-gnu),-L$d -Wl,-rpath,$d))
# Lines and functions for backtraces and profiles; with variables a build takes 1.4 to 2 times as long.
DEBUG    ?= -g1
COMMON   := $(if $(SANITIZE),-O1,-O3) $(DEBUG) -MMD -MP -fopenmp $(PIC) $(ARCH) $(FP) $(ALIGN) $(SAN) $(WARN) -I. -I$(B)$(deps_inc)
CFLAGS   += -std=gnu11 -Wstrict-prototypes -Wmissing-prototypes $(COMMON)
# C lets a function be named as its struct; what an initializer leaves out is 0.
CXXFLAGS += -std=c++17 $(COMMON) -Wno-shadow -Wno-missing-field-initializers
# As above, no contraction. Warnings and spills are errors.
NVCCFLAGS += -std=c++20 -O3 -fmad=false -lineinfo -I. -I$(B) -Werror all-warnings \
             -Xcompiler -Wall,-Wextra,-Wno-missing-field-initializers,$(subst $(space),$(comma),$(PIC)) -Xptxas -warn-spills,-Werror \
             $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$a,code=sm_$a) \
             -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))
LDLIBS   += $(deps_lib) -lz -lxxhash -lm

# EXTRA_KERNELS: files from outside of the folder, .../<family>/<name>.c; build them with B=other/folder
kernels  := $(sort $(filter-out kernels/host/%,$(wildcard kernels/*/*.c))) $(filter %.c,$(EXTRA_KERNELS))
# Where nothing is known of the CPU, on x86-64, every host kernel is built for several levels of it, best
# first, with those features; harness/registry.c takes one when a program starts. Otherwise it is built once.
isa_avx2   := avx2 bmi bmi2 fma popcnt
isa_avx512 := $(isa_avx2) avx512f avx512bw avx512cd avx512dq avx512vl
# One level serves a sanitizer.
isas     := $(if $(ARCH),,$(if $(filter x86_64-%,$(machine)),$(if $(SANITIZE),,avx512 avx2) plain))
levels    = $(foreach k,$1,$(or $(isas:%=$k.%.o),$k.o))
host     := $(call levels,$(kernels:%.c=$(B)/%))
# What kernels share is built once for each level too; other code calls that of the last level. kernels/host/update.c,
# what a rule does with rows, becomes update.RULE.LEVEL.o
CFLAGS   += $(if $(isas),-DLEVEL=_$(lastword $(isas)))
host_shared := $(call levels,$(patsubst %.c,$(B)/%,$(filter-out %/update.c,$(wildcard kernels/host/*.c))))
rules    := $(patsubst rules/%.h,%,$(sort $(wildcard rules/*.h)))
updates  := $(call levels,$(rules:%=$(B)/kernels/host/update.%))
cuda     := $(sort $(filter-out kernels/device/%,$(wildcard kernels/*/*.cu))) $(filter %.cu,$(EXTRA_KERNELS))
cli      := $(sort $(wildcard cli/*.c))
# A command of an extra is extras/*/command_NAME.c.
commands := $(sort $(wildcard extras/*/command_*.c))

# These files talk to the device. They are built with nvcc's runtime; without nvcc device_none.c replaces them.
# Tests build them against the emulation of CUDA: see emulation/emulation.mk.
device   := $(addprefix harness/device/,device_cuda.c device_step.c)
harness  := $(filter-out $(device) harness/device/device_none.c harness/registry.c,$(sort $(wildcard harness/*.c harness/*/*.c)))
# Without device kernels, as in some sanitized builds, nothing calls what they share.
parts    := $(sort $(wildcard $(if $(cuda),kernels/device/*.cu) harness/device/*.cu))
# kernels/device/lean.cu becomes lean_RULE.o
lean     := $(filter %/lean.cu,$(parts))
parts    := $(filter-out $(lean),$(parts))
leans    := $(if $(lean),$(rules:%=kernels/device/lean_%.o))
common   := $(host) $(host_shared) $(updates) $(harness:%.c=$(B)/%.o)
objects  := $(common) $(B)/harness/registry.o $(B)/harness/device/device_none.o
cuda_objects := $(common) $(C)/harness/registry.o $(device:%.c=$(B)/%.o) $(parts:%.cu=$(B)/%.o) $(leans:%=$(B)/%) \
            $(cuda:%.cu=$(B)/%.o)

# What a run measures; each becomes an option of build/bench and is in the record. See make help.
variables := FILTER SPEC TRACE ALPHA DIMS ROWS BATCH POOLING RULE SEED THREADS REPS RING MODES PLACE
$(foreach v,$(variables),$(eval $v ?=))
# A folder of recorded id streams, *.txt.gz.
TRACES   ?= $(wildcard ../shared/traces)
lower     = $(shell echo $1 | tr A-Z a-z)
# For the shell, whatever is in it.
quoted    = '$(subst ','\'',$1)'
given     = $(foreach v,$1,$(if $($v),--$(call lower,$v)=$(call quoted,$($v))))
selection = $(call given,$(variables))
options   = $(selection) --out=$(call quoted,$(OUT))

.PHONY: all cuda deps bench bench-gpu smoke clean help FORCE
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.PRECIOUS: $(B)/%.o

all:
	@$(MAKE) --no-print-directory $(jobs) $(B)/bench $(B)/embfuse
# The same with device kernels, by nvcc.
cuda: $(C)/bench $(C)/embfuse

# --- Debian packages: installed by root, otherwise named. Elsewhere the user sees to them.
packages_bench := gcc g++ libbenchmark-dev libxxhash-dev zlib1g-dev gnuplot-nox python3 python3-scipy
packages_test  := $(packages_bench) libcmocka-dev python3-numpy
packages_metrics := $(packages_bench) valgrind
# To build a suite of tests. Where something else is missing, a test skips and says what it needs.
packages_test-portable := $(packages_test)
packages_ci    := $(packages_test) $(packages_metrics) libbenchmark-tools \
                  python3-yaml clang clang-format libomp-dev \
                  gcc-aarch64-linux-gnu libc6-dev-arm64-cross python3-pip
missing         = $(shell command -v dpkg-query >/dev/null && for p in $(packages_$1); do \
                      dpkg-query -W -f '$${db:Status-Abbrev}' $$p 2>/dev/null | grep -q ^ii || echo $$p; done)
define require
$(if $(deps),$(call require_in_deps,$1),$(call require_packages,$1))
endef
define require_packages
@missing="$(call missing,$1)"; \
if [ -z "$$missing" ]; then :; \
elif [ "$$(id -u)" = 0 ]; then \
    apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $$missing; \
else \
    echo "missing packages; run this, then make again: sudo apt-get install $$missing" >&2; \
    echo "without root: DEPS=dir, a prefix with the libraries (make deps DEPS=dir)" >&2; exit 1; \
fi
endef

# With DEPS: HEADER:LIBRARY of those libraries, and programs on the path.
libraries_bench := benchmark/benchmark.h:benchmark xxhash.h:xxhash zlib.h:z
libraries_test  := $(libraries_bench) cmocka.h:cmocka
libraries_ci    := $(libraries_test)
programs_bench  := gnuplot python3
programs_test   := $(programs_bench)
programs_ci     := $(programs_test)
define require_in_deps
@mkdir -p $(B); lacks=0; to=$(B)/deps.$$$$; \
for l in $(libraries_$1); do \
    printf '#include <%s>\n' stdarg.h stddef.h setjmp.h stdint.h "$${l%:*}" | sed '$$a int main() { return 0; }' | \
        $(CXX) -fopenmp -x c++ $(deps_inc) - $(deps_lib) -l"$${l#*:}" -o $$to 2>/dev/null || \
        { lacks=1; echo "DEPS=$(DEPS) lacks include/$${l%:*} with lib/lib$${l#*:}" >&2; }; \
done; rm -f $$to; \
for p in $(programs_$1); do command -v $$p >/dev/null || { lacks=1; echo "$$p is not on the path" >&2; }; done; \
exit $$lacks
endef

deps:
	$(call require,$(or $(FOR),ci))

# A file gets its name when it is whole: two makes in one folder, or a program that runs, never meet half of it.
# A generated file that would not change is left alone.
whole     = -o $@.$$$$ && mv -f $@.$$$$ $@
object    = -MT $@ -MF $@.$$$$.new $(whole) && mv -f $@.$$$$.new $(@:.o=.d)
renewed   = >$@.$$$$ && if cmp -s $@.$$$$ $@; then rm $@.$$$$; else mv -f $@.$$$$ $@; fi

# --- the registries: one KERNEL(family, symbol, level) line per object: of host kernels, and in folders of their own
# with those by nvcc, with emulated ones, or with planted defects.
registries := $(B) $(C) $(B)/emulated $(B)/planted
$(B)/kernel_list.inc: listed = $(host)
$(C)/kernel_list.inc: listed = $(host) $(cuda:%.cu=$(B)/%.o)
$(registries:%=%/kernel_list.inc): FORCE
	@mkdir -p $(@D)
	@printf '%s\n' $(listed) | sed -E -e 's|.*/([^/]*)/([^/.]*)\.([^/.]*)\.o|KERNEL(\1, \2_\3, \3)|' \
	    -e 's|.*/([^/]*)/([^/.]*)\.o|KERNEL(\1, \2, )|' $(renewed)
FORCE:

$(foreach r,$(registries),$(eval $r/harness/registry.o: $r/kernel_list.inc))
$(registries:%=%/harness/registry.o): \
    CFLAGS += -DISAS='$(foreach i,$(or $(isas),$(if $(ARCH),native,plain)),ISA($i,$(isa_$i:%=HAS(%))))'

# --- the rules: every file of rules/ is one. Objects begin after these; then they know what they read.
rule_lists = $(B)/rule_list.h $(B)/rule_files.h $(B)/oracle_files.h $(B)/rule_steps.h
$(B)/rule_list.h: FORCE
	@mkdir -p $(@D)
	@echo '#define RULES(X, ...) $(foreach r,$(rules),X($r, __VA_ARGS__))' $(renewed)
$(B)/rule_files.h: rule_file := rules/%s.h
$(B)/oracle_files.h: rule_file := harness/check/rules/%s.h
$(B)/rule_steps.h: rule_file := tests/rules/%s.inc
$(B)/rule_files.h $(B)/oracle_files.h $(B)/rule_steps.h: FORCE
	@mkdir -p $(@D)
	@printf '#include "$(rule_file)"\n' $(rules) $(renewed)

# --- where the binary comes from, rewritten only when that changes. A recorded result does not change it.
$(B)/build_info.h: FORCE
	@mkdir -p $(@D)
	@{ echo '#define BUILD_VERSION "$(shell sed -n 's/^version: //p' CITATION.cff)"'; \
	   echo '#define BUILD_COMMIT "$(shell git rev-parse HEAD 2>/dev/null)"'; \
	   echo '#define BUILD_DIRTY "$(if $(shell git status --porcelain -- . ':!reports/results' 2>/dev/null | head -n 1),yes,no)"'; \
	   echo '#define BUILD_COMPILER "$(shell $(CC) --version | head -n 1)"'; \
	   echo '#define BUILD_FLAGS "$(filter-out $(deps_inc),$(subst ",,$(CFLAGS)))"'; \
	   echo '#define BUILD_CC "$(CC)"'; \
	   echo '#define BUILD_NATIVE "$(NATIVE)"'; \
	   echo '#define BUILD_SANITIZE "$(SANITIZE)"'; \
	   echo '#define BUILD_NVCC "$(if $(NVCC),$(shell $(NVCC) --version | sed -n 's/.*release/release/p') $(NVCCFLAGS))"'; \
	   echo '#define BUILD_LIBBENCHMARK "$(shell dpkg-query -W -f '$${Version}' libbenchmark-dev 2>/dev/null)"'; } $(renewed)

$(B)/harness/measure/environment.o: $(B)/build_info.h

# --- which kernels were verified on a GPU, or with nvcc's PTX
$(B)/gpu_verified.inc $(B)/ptx_verified.inc: $(B)/%_verified.inc: FORCE
	@mkdir -p $(@D)
	@{ sed -E '/^#|^ *$$/d; s/ *\| */", "/g; s/^/VERIFIED("/; s/ *$$/")/' reports/results/$*-verified.txt 2>/dev/null || :; } $(renewed)

$(B)/cli/list.o: $(B)/gpu_verified.inc $(B)/ptx_verified.inc

# --- the commands of extras
$(B)/extra_commands.inc: FORCE
	@mkdir -p $(@D)
	@echo '$(foreach c,$(commands),EXTRA($(patsubst command_%.c,%,$(notdir $c))))' $(renewed)

$(B)/cli/embfuse.o: $(B)/extra_commands.inc

# --- frames of pictures as strings, with their style: the installed program has no source tree
$(B)/%.gp.h: %.gp reports/style.gp
	@mkdir -p $(@D)
	@sed -e '/^load /{' -e 'r reports/style.gp' -e 'd' -e '}' $< | sed 's/[\\"]/\\&/g; s/.*/"&\\n"/' >$@

$(B)/cli/stats.o: $(B)/cli/stats.gp.h

# V=1 shows the commands.
quiet     = $(if $(V),,@echo '  $1 $@';)

$(B)/%.o: %.c Makefile | $(rule_lists)
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) $(CFLAGS) -c $< $(object)

$(C)/%.o $(B)/planted/%.o: %.c Makefile | $(rule_lists)
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) -I$(@D:%/harness=%) $(CFLAGS) -c $< $(object)

$(B)/harness.a: $(harness:%.c=$(B)/%.o) $(host_shared) $(updates) $(B)/harness/device/device_none.o
%.a:
	@rm -f $@
	$(call quiet,AR)$(AR) rcsD $@ $^

# One level of a host kernel, whose exported constant gets another name, or of what kernels share.
at_level  = $(if $1,$(isa_$1:%=-m%) -mprefer-vector-width=512 -ULEVEL -DLEVEL=_$1)
define isa_rule
$$(B)/%.$1.o: %.c Makefile | $(rule_lists)
	@mkdir -p $$(@D)
	$$(call quiet,CC)$$(CC) $$(CFLAGS) $(call at_level,$1) -Dkernel_$$(*F)=kernel_$$(*F)_$1 -c $$< $$(object)
endef
$(foreach i,$(isas),$(eval $(call isa_rule,$i)))

$(updates): $(B)/kernels/host/update.%.o: kernels/host/update.c Makefile | $(rule_lists)
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) $(CFLAGS) $(call at_level,$(word 2,$(subst ., ,$*))) \
	    -DRULE=$(firstword $(subst ., ,$*)) -c $< $(object)

# CUB's kernels spill a little, which is NVIDIA's affair.
$(B)/kernels/device/sort.o: NVCCFLAGS := $(filter-out -Xptxas -warn-spills%,$(NVCCFLAGS))

# For other CUDA_ARCHS device kernels are compiled again, and tests learn from this file what is built.
$(B)/cuda_archs: FORCE
	@mkdir -p $(@D)
	@echo $(CUDA_ARCHS) $(renewed)

# The PTX of each architecture is kept beside the object: for extras/cuda/ptx/. Of a single one nvcc calls it NAME.ptx.
define nvcc
@rm -rf $(@:.o=.keep) $(@:.o=.*.ptx) && mkdir -p $(@:.o=.keep)
$(call quiet,NVCC)$(NVCC) $(NVCCFLAGS) -Xptxas -v -MD -MP -keep -keep-dir $(@:.o=.keep) $1 -c $< 2>$(@:.o=.ptxas) $(object) || \
    { grep -v '^ptxas info\|^    [0-9]' $(@:.o=.ptxas) >&2; exit 1; }
@$(foreach a,$(CUDA_ARCHS),mv $(@:.o=.keep)/$(notdir $(<:.cu=))$(if $(word 2,$(CUDA_ARCHS)),.compute_$a).ptx $(@:.o=.$a.ptx);) rm -rf $(@:.o=.keep)
endef
$(B)/%.o: %.cu Makefile $(B)/cuda_archs | $(rule_lists)
	$(nvcc)

$(leans:%=$(B)/%): $(B)/kernels/device/lean_%.o: $(lean) Makefile $(B)/cuda_archs | $(rule_lists)
	$(call nvcc,-DLEAN_RULE=$*)

$(device:%.c=$(B)/%.o): CFLAGS += -isystem $(CUDA)/include

$(B)/%.o: %.cpp Makefile | $(rule_lists)
	@mkdir -p $(@D)
	$(call quiet,CXX)$(CXX) $(CXXFLAGS) -c $< $(object)

# The CUDA runtime is linked in: without a driver the programs start, and say that there is none.
cudart   := $(if $(NVCC),-L$(CUDA)/lib64 -lcudart_static -ldl -lrt -lpthread)

embfuse  := $(patsubst %.c,$(B)/%.o,$(cli) $(commands))
recorder := $(B)/harness/record/gbench.o $(B)/harness/record/main.o
$(recorder): CXXFLAGS += -O1
$(B)/bench: $(recorder) $(objects)
$(B)/embfuse: $(embfuse) $(objects)
$(C)/bench: $(recorder) $(cuda_objects)
$(C)/embfuse: $(embfuse) $(cuda_objects)
$(C)/bench $(C)/embfuse: LDLIBS += $(cudart)
# Programs: main and its parts, kernels, harness; archives last.
link      = $(call quiet,LD)$(CXX) $(CXXFLAGS) $(filter-out %.a,$^) $(filter %.a,$^) $(if $(filter bench,$(@F)),-lbenchmark -lpthread) $(LDLIBS) $(whole)
$(B)/bench $(B)/embfuse $(C)/bench $(C)/embfuse:
	$(link)

include emulation/emulation.mk
extras := $(patsubst extras/%/extra.mk,%,$(sort $(wildcard extras/*/extra.mk)))
include tests/test.mk
include reports/report.mk
# Extras: a folder of extras/ is one, and nothing else names it.
include $(extras:%=extras/%/extra.mk)

# --- measure, print the table, draw the plots. The status is that of the measurement: 2 if a kernel was wrong;
# the table says so too. nvcc takes minutes: its objects are built only if there is a device, or PLACE asks.
any_bench  = $(if $(and $(NVCC),$(filter device all,$(or $(PLACE),$(if $(DEVICES),all)))),$(C)/bench,$(B)/bench)
queue      = $(call given,QUEUE)
bench:
	$(call require,bench)
	@$(MAKE) --no-print-directory $(any_bench)
	@$(any_bench) $(options) $(call given,VISITS SECONDS PRECISION) $(queue); status=$$?; \
	 case $$status in 0 | 2) ;; *) exit $$status ;; esac; \
	 $(report_table) && $(report_plots) && exit $$status

# Each run has a folder of its own in OUT. What does not fit is named, with figures, and left out.
places     = --place=$(call quoted,$(or $(PLACE),device))
axes       = $(call given,FILTER SEED THREADS REPS RING MODES)
# The warm table, too: published times are of hot loops.
shown      = $(sort $(or $(MODE),cold) $(filter warm,$(or $(MODES),cold warm)))
bench-gpu:
	$(call require,bench)
	@$(MAKE) --no-print-directory $(if $(NVCC),$(C),$(B))/bench
	@worst=0; \
	 run() { to=$(call quoted,$(OUT))/$$1; shift; $(if $(NVCC),$(C),$(B))/bench $(places) $(queue) "$$@" --out="$$to"; status=$$?; \
	     case $$status in 0) ;; 2) worst=2 ;; *) exit $$status ;; esac; \
	     [ ! -e "$$to/bench.json" ] || { $(foreach m,$(shown),$(PYTHON) reports/table.py "$$to/bench.json" --mode $m &&) \
	     $(PYTHON) reports/plots.py "$$to/bench.json" "$$to/plots" $(call given,MODE); } || exit 1; }; \
	 $(if $(SPEC)$(TRACE)$(ALPHA)$(DIMS)$(ROWS)$(BATCH)$(POOLING),run gpu $(selection), \
	 run gpu $(axes) --spec=datasets/gpu.spec $(call given,RULE); \
	 run gpu-dynamicemb $(axes) --spec=datasets/dynamicemb.spec --rule=$(call quoted,$(or $(RULE),sgd adam))); \
	 exit $$worst

smoke:
	$(call require,bench)
	@$(MAKE) --no-print-directory $(any_bench)
	@$(any_bench) --smoke $(selection) $(queue) --out=$(call quoted,$(OUT)/smoke)

help:
	@sed -n 's/^#| \?//p' Makefile

help-%:
	@$(if $(wildcard $*/*.mk extras/$*/*.mk),,echo 'help-$*: no such part; make help names them' >&2; exit 1)
	@sed -n 's/^#| \?//p' $(wildcard $*/*.mk $*/*/*.mk extras/$*/*.mk extras/$*/*/*.mk)

clean:
	rm -rf build

-include $(shell find $(B) -name '*.d' 2>/dev/null)
