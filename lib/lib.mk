# SPDX-License-Identifier: MIT
# libembfuse: the kernels of this build behind include/embfuse.h, as a shared and a static library.

.PHONY: lib lib-cuda install

version   := $(shell sed -n 's/^version: //p' CITATION.cff)
# While the version begins with 0, every minor version may change the interface.
soname    := libembfuse.so.$(basename $(version))
shared    := $(B)/libembfuse.so.$(version)
# The library is linked from all objects that only it has, from kernels, and from what these need.
own       := $(patsubst %.c,$(B)/%.o,$(wildcard lib/*.c))
others    := $(harness:%.c=$(B)/%.o) $(patsubst %.c,$(B)/%.o,$(wildcard serving/*.c))
# What a program that links the static library needs beside it.
libraries := $(strip -fopenmp -lxxhash -lm)

$(B)/lib/needed.a: $(filter-out $(B)/harness/program.o,$(others))
	@mkdir -p $(@D) && rm -f $@
	$(call quiet,AR)$(AR) rcsD $@ $^

# The library in a folder: its objects, and what else it is linked with.
define library_in
$1/libembfuse.so.$(version): $2 $(B)/lib/needed.a lib/embfuse.map
	@mkdir -p $$(@D)
	$$(call quiet,LD)$(CC) -shared $(SAN) -Wl,-soname,$(soname) \
	    -Wl,--version-script=lib/embfuse.map $(if $(SANITIZE),,-Wl,-z,defs) -Wl,--as-needed \
	    $2 $(B)/lib/needed.a $(libraries) $3 $$(whole)
	@ln -sf $$(@F) $1/$(soname) && ln -sf $$(@F) $1/libembfuse.so

# One object that shows only the names of the header.
$1/libembfuse.a: $2 $(B)/lib/needed.a
	@mkdir -p $$(@D)
	$$(call quiet,AR)$(LD) -r $2 $(B)/lib/needed.a -o $1/embfuse.o && objcopy --localize-hidden $1/embfuse.o && \
	    rm -f $$@ && $(AR) rcsD $$@ $1/embfuse.o && rm $1/embfuse.o
endef
$(eval $(call library_in,$(B),$(own) $(filter-out $(others),$(objects))))
$(eval $(call library_in,$(C),$(own) $(filter-out $(others),$(cuda_objects)),$(cudart) -lstdc++))

lib: $(shared) $(B)/libembfuse.a
lib-cuda: $(C)/$(notdir $(shared)) $(C)/libembfuse.a

# make install CUDA_BUILD=1 installs what make cuda builds.
PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
needs    = $(strip $(libraries) $(if $(CUDA_BUILD),$(cudart) -lstdc++))
to      := $(DESTDIR)$(PREFIX)
to_lib  := $(DESTDIR)$(LIBDIR)
filled   = sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(version)|' \
               -e 's|@SONAME@|$(soname)|' -e 's|@LIBRARIES@|$(needs)|' \
               -e 's|@LIBRARY_LIST@|$(subst $(space),;,$(needs))|' $1 >$2
install: W = $(if $(CUDA_BUILD),$(C),$(B))
install: $(if $(CUDA_BUILD),cuda,all)
	install -d $(to)/include $(to)/bin $(to)/share/man/man1 $(to_lib)/pkgconfig $(to_lib)/cmake/embfuse
	install -m 644 include/embfuse.h $(to)/include
	install $(W)/bench $(to)/bin/embfuse-bench
	install $(W)/embfuse $(to)/bin
	install -m 644 man/embfuse.1 $(to)/share/man/man1
	install -m 644 $(W)/$(notdir $(shared)) $(W)/libembfuse.a $(to_lib)
	ln -sf $(notdir $(shared)) $(to_lib)/$(soname)
	ln -sf $(soname) $(to_lib)/libembfuse.so
	$(call filled,lib/embfuse.pc.in,$(to_lib)/pkgconfig/embfuse.pc)
	$(call filled,lib/embfuse-config.cmake.in,$(to_lib)/cmake/embfuse/embfuse-config.cmake)
	$(call filled,lib/embfuse-config-version.cmake.in,$(to_lib)/cmake/embfuse/embfuse-config-version.cmake)
