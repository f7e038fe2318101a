# SPDX-License-Identifier: MIT
# libembfuse: the kernels of this build behind extras/library/embfuse.h, as a shared and a static library.
#
#| make library   build build/libembfuse.so and .a; make library-cuda: in build/cuda/, with device kernels
#| make install   install libembfuse, its header and manual, and both programs: PREFIX=/usr/local DESTDIR=. They run on
#|                every CPU of this kind; NATIVE=1 builds for this one alone. make uninstall removes them
#| make example   build the C example, extras/library/examples/dlrm.c, and run it for a second
#| make train-example  train a small DLRM on planted clicks: rules, lazy and dense Adam, fp32 and bf16; about 5
#|                minutes on two cores; OUT/train-example/training.md and .png. SEEDS=3, THREADS=2: runs at once
#| make overhead  what a call of libembfuse costs over a call of its kernel, in microseconds

.PHONY: library library-cuda install install-built uninstall example train-example overhead

version   := $(shell sed -n 's/^version: //p' CITATION.cff)
# While the version begins with 0, every minor version may change the interface.
soname    := libembfuse.so.$(basename $(version))
shared    := $(B)/libembfuse.so.$(version)
# The library is linked from all objects that only it has, from kernels, and from what these need.
own       := $(patsubst %.c,$(B)/%.o,$(filter-out extras/library/command_%,$(wildcard extras/library/*.c)))
frozen    := $(patsubst %.c,$(B)/%.o,$(wildcard extras/library/frozen/*.c))
others    := $(harness:%.c=$(B)/%.o) $(frozen)
# What a program that links the static library needs beside it.
libraries := $(strip -fopenmp -lxxhash -ljansson -lm)
packages_library := $(packages_bench) libjansson-dev

$(B)/extras/library/needed.a: $(filter-out $(B)/harness/program.o,$(others))
	@mkdir -p $(@D) && rm -f $@
	$(call quiet,AR)$(AR) rcsD $@ $^

# The library in a folder: its objects, and what else it is linked with.
define library_in
$1/libembfuse.so.$(version): $2 $(B)/extras/library/needed.a extras/library/embfuse.map
	@mkdir -p $$(@D)
	$$(call quiet,LD)$(CC) -shared $(SAN) -Wl,-soname,$(soname) \
	    -Wl,--version-script=extras/library/embfuse.map $(if $(SANITIZE),,-Wl,-z,defs) -Wl,--as-needed \
	    $2 $(B)/extras/library/needed.a $(libraries) $3 $$(whole)
	@ln -sf $$(@F) $1/$(soname) && ln -sf $$(@F) $1/libembfuse.so

# One object that shows only the names of the header.
$1/libembfuse.a: $2 $(B)/extras/library/needed.a
	@mkdir -p $$(@D)
	$$(call quiet,AR)$(LD) -r $2 $(B)/extras/library/needed.a -o $1/embfuse.o && objcopy --localize-hidden $1/embfuse.o && \
	    rm -f $$@ && $(AR) rcsD $$@ $1/embfuse.o && rm $1/embfuse.o
endef
$(eval $(call library_in,$(B),$(own) $(filter-out $(others),$(objects))))
$(eval $(call library_in,$(C),$(own) $(filter-out $(others),$(cuda_objects)),$(cudart) -lstdc++))

library: $(shared) $(B)/libembfuse.a
library-cuda: $(C)/$(notdir $(shared)) $(C)/libembfuse.a

# make install CUDA_BUILD=1 adds device kernels. What is installed chooses instructions when it starts, unless NATIVE is
# given.
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
needs    = $(strip $(libraries) $(if $(CUDA_BUILD),$(cudart) -lstdc++))
to      := $(DESTDIR)$(PREFIX)
to_lib  := $(DESTDIR)$(LIBDIR)
filled   = sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(version)|' \
               -e 's|@SONAME@|$(soname)|' -e 's|@LIBRARIES@|$(needs)|' \
               -e 's|@LIBRARY_LIST@|$(subst $(space),;,$(needs))|' $1 >$2
portable = $(if $(filter file,$(origin NATIVE)),NATIVE=0 $(if $(CUDA_BUILD),NVCC=$(NVCC)))
install:
	@$(MAKE) --no-print-directory $(portable) install-built
install-built: W = $(if $(CUDA_BUILD),$(C),$(B))
install-built: $(if $(CUDA_BUILD),cuda library-cuda,all library)
	install -d $(to)/include $(to)/bin $(to)/share/man/man1 $(to_lib)/pkgconfig $(to_lib)/cmake/embfuse
	install -m 644 extras/library/embfuse.h $(to)/include
	install $(W)/bench $(to)/bin/embfuse-bench
	install $(W)/embfuse $(to)/bin
	install -m 644 man/embfuse.1 $(to)/share/man/man1
	install -m 644 $(W)/$(notdir $(shared)) $(W)/libembfuse.a $(to_lib)
	ln -sf $(notdir $(shared)) $(to_lib)/$(soname)
	ln -sf $(soname) $(to_lib)/libembfuse.so
	$(call filled,extras/library/embfuse.pc.in,$(to_lib)/pkgconfig/embfuse.pc)
	$(call filled,extras/library/embfuse-config.cmake.in,$(to_lib)/cmake/embfuse/embfuse-config.cmake)
	$(call filled,extras/library/embfuse-config-version.cmake.in,$(to_lib)/cmake/embfuse/embfuse-config-version.cmake)

# Folders stay, but for the one that is named after this project.
uninstall:
	rm -f $(to)/include/embfuse.h $(to)/bin/embfuse-bench $(to)/bin/embfuse $(to)/share/man/man1/embfuse.1
	rm -f $(addprefix $(to_lib)/,$(notdir $(shared)) $(soname) libembfuse.so libembfuse.a pkgconfig/embfuse.pc)
	rm -f $(addprefix $(to_lib)/cmake/embfuse/embfuse-config,.cmake -version.cmake)
	[ ! -d $(to_lib)/cmake/embfuse ] || rmdir --ignore-fail-on-non-empty $(to_lib)/cmake/embfuse

# The same objects without kernels and harness, which programs and tests of the suite link as they are. Saved states are
# apart: who links them links -ljansson.
library_a := $(B)/extras/library/library.a
state_a   := $(B)/extras/library/state.a
state     := $(filter $(B)/extras/library/state_%,$(own))
$(library_a): $(filter-out $(state),$(own)) $(frozen)
$(state_a): $(state)
$(B)/extras/library/status.o: $(B)/build_info.h
$(B)/extras/library/command_monitor.o: $(B)/extras/library/monitor.gp.h
$(foreach d,$(B) $(C) $(E) $(P),$d/embfuse): $(library_a)

# --- programs that use it as its users do: see extras/library/examples/README.md
$(B)/examples/dlrm: extras/library/examples/dlrm.c extras/library/embfuse.h $(shared)
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) -std=gnu11 -O2 -g $(SAN) $(WARN) -Iextras/library $< $(shared) -Wl,-rpath,'$$ORIGIN/..' -lm $(whole)

example: $(B)/examples/dlrm
	@$(B)/examples/dlrm

# Click models on a log whose labels depend on the ids. extras/library/study/training.md is a copy.
train-example:
	$(call require,test)
	@$(MAKE) --no-print-directory $(shared)
	@EMBFUSE_LIBRARY=$(abspath $(shared)) $(PYTHON) extras/library/study/study.py $(call quoted,$(OUT)/train-example) \
	     $(SEEDS:%=--seeds=%) $(THREADS:%=--jobs=%)

# What a call of the library costs over a call of its kernel.
$(B)/extras/library/study/overhead: $(B)/extras/library/study/overhead.o $(objects) $(library_a)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(LDLIBS) $(whole)

overhead: $(B)/extras/library/study/overhead
	@$<

# --- tests
packages_test-library  := $(packages_test) libjansson-dev pkg-config cmake
libraries_test-library := $(libraries_test) jansson.h:jansson
packages_ci     += libjansson-dev pkg-config cmake
libraries_ci    += jansson.h:jansson
programs_ci     += pkg-config cmake
needs_library   := library $(B)/embfuse $(B)/examples/dlrm
wrapped_library := pread pwrite fsync renameat
$(eval $(call suite_rule,library))
$(B)/extras/library/tests/tests: LDLIBS += -ljansson
$(B)/extras/library/tests/tests: $(state_a) $(library_a)
fuzz_sources_frozen := $(fuzz_sources_npy) extras/library/frozen/frozen.c
fuzz_sources_state  := $(fuzz_sources_spec) harness/memory.c harness/workload/npy.c harness/workload/tables.c \
                       harness/workload/row_index.c extras/library/state_header.c extras/library/state_file.c -ljansson
