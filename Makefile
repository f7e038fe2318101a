# embfuse: build what this machine can. `make help` lists the targets and variables.
#
# The folder is the registry: every kernels/<family>/<name>.c (and .cu, where nvcc is) that ends in
# DEFINE_KERNEL(<name>) is in the table that the harness, the tests and the plots walk.

CC       ?= cc
CXX      ?= c++
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

WARN     := -Wall -Wextra -Wshadow -Wpointer-arith -Werror
ARCH     := $(if $(filter 0,$(NATIVE)),,-march=native -mprefer-vector-width=512)
SAN      := $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer)
# No contraction and no reassociation: a rule gives the same bits in every kernel and compiler.
FP       := -ffp-contract=off -fno-math-errno -fno-trapping-math
COMMON   := $(if $(SANITIZE),-O1,-O3) -g -fopenmp $(ARCH) $(FP) $(SAN) $(WARN) -I. -I$(B)
CFLAGS   += -std=gnu11 -Wstrict-prototypes -Wmissing-prototypes $(COMMON)
CXXFLAGS += -std=c++17 $(COMMON) -Wno-shadow # C lets a function be named as its struct
LDLIBS   += -lz -lxxhash -lm

kernels  := $(sort $(wildcard kernels/*/*.c))
harness  := $(filter-out harness/embfuse.c,$(sort $(wildcard harness/*.c datasets/*.c)))
objects  := $(kernels:%.c=$(B)/%.o) $(harness:%.c=$(B)/%.o)
headers  := $(wildcard kernels/*.h kernels/*/*.h harness/*.h datasets/*.h tests/*.h)

.PHONY: all deps bench test smoke plots clean help
.DELETE_ON_ERROR:
.SECONDARY:

all: $(B)/bench $(B)/embfuse

# --- the registry: one KERNEL(family, name) line per file, rewritten only when it changes
$(B)/kernel_list.inc: FORCE
	@mkdir -p $(@D)
	@printf '%s\n' $(kernels) | sed -E 's|kernels/([^/]*)/([^/]*)\.c.?|KERNEL(\1, \2)|' > $@.new
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
	   echo '#define BUILD_LIBBENCHMARK "$(shell pkg-config --modversion benchmark 2>/dev/null)"'; } > $@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(B)/harness/environment.o: $(B)/build_info.h

$(B)/%.o: %.c $(headers) Makefile
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@

$(B)/%.o: %.cpp $(headers) Makefile
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -c $< -o $@

$(B)/bench: $(B)/harness/gbench.o $(objects)
	$(CXX) $(CXXFLAGS) $^ -lbenchmark -lpthread $(LDLIBS) -o $@

$(B)/embfuse: $(B)/harness/embfuse.o $(objects)
	$(CC) $(CFLAGS) $^ $(LDLIBS) -o $@

include tests/test.mk

clean:
	rm -rf build
