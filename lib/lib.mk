# SPDX-License-Identifier: MIT
# libembfuse: the kernels of this build behind include/embfuse.h, as a shared and a static library.

.PHONY: lib install

version   := $(shell sed -n 's/^version: //p' CITATION.cff)
# While the version begins with 0, every minor version may change the interface.
soname    := libembfuse.so.$(basename $(version))
shared    := $(B)/libembfuse.so.$(version)
# The library is linked from all objects that only it has, from kernels, and from what these need.
library   := $(patsubst %.c,$(B)/%.o,$(wildcard lib/*.c)) $(filter-out $(harness:%.c=$(B)/%.o),$(objects))
needed    := $(filter-out $(B)/harness/program.o $(B)/lib/%,$(harness:%.c=$(B)/%.o))
# What a program that links the static library needs beside it.
libraries := $(strip -fopenmp -lxxhash -lm $(if $(NVCC),$(cudart) -lstdc++))

lib: $(shared) $(B)/libembfuse.a

$(B)/lib/needed.a: $(needed)
	@rm -f $@
	$(call quiet,AR)$(AR) rcsD $@ $^

$(shared): $(library) $(B)/lib/needed.a lib/embfuse.map
	$(call quiet,LD)$(CC) -shared $(SAN) -Wl,-soname,$(soname) \
	    -Wl,--version-script=lib/embfuse.map $(if $(SANITIZE),,-Wl,-z,defs) -Wl,--as-needed \
	    $(library) $(B)/lib/needed.a $(libraries) $(whole)
	@ln -sf $(@F) $(B)/$(soname) && ln -sf $(@F) $(B)/libembfuse.so

# One object that shows only the names of the header.
$(B)/libembfuse.a: $(library) $(B)/lib/needed.a
	$(call quiet,AR)$(LD) -r $^ -o $(B)/lib/embfuse.o && objcopy --localize-hidden $(B)/lib/embfuse.o && \
	    rm -f $@ && $(AR) rcsD $@ $(B)/lib/embfuse.o

PREFIX  ?= /usr/local
LIBDIR  ?= $(PREFIX)/lib
to      := $(DESTDIR)$(PREFIX)
to_lib  := $(DESTDIR)$(LIBDIR)
filled   = sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(version)|' \
               -e 's|@SONAME@|$(soname)|' -e 's|@LIBRARIES@|$(libraries)|' \
               -e 's|@LIBRARY_LIST@|$(subst $(space),;,$(libraries))|' $1 >$2
install: all
	install -d $(to)/include $(to)/bin $(to)/share/man/man1 $(to_lib)/pkgconfig $(to_lib)/cmake/embfuse
	install -m 644 include/embfuse.h $(to)/include
	install $(B)/bench $(to)/bin/embfuse-bench
	install $(B)/embfuse $(to)/bin
	install -m 644 man/embfuse.1 $(to)/share/man/man1
	install -m 644 $(shared) $(B)/libembfuse.a $(to_lib)
	ln -sf $(notdir $(shared)) $(to_lib)/$(soname)
	ln -sf $(soname) $(to_lib)/libembfuse.so
	$(call filled,lib/embfuse.pc.in,$(to_lib)/pkgconfig/embfuse.pc)
	$(call filled,lib/embfuse-config.cmake.in,$(to_lib)/cmake/embfuse/embfuse-config.cmake)
	$(call filled,lib/embfuse-config-version.cmake.in,$(to_lib)/cmake/embfuse/embfuse-config-version.cmake)
