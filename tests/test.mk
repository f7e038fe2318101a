# Tests: every tests/test_*.c is a cmocka program, every tests/test_*.sh and test_*.py a script; all
# speak TAP, and tests/run.sh adds them up. ONLY=name runs one of them.

test_programs := $(patsubst tests/%.c,$(B)/tests/%,$(sort $(wildcard tests/test_*.c)))
test_scripts  := $(sort $(wildcard tests/test_*.sh tests/test_*.py))
test_support  := $(patsubst %.c,$(B)/%.o,$(filter-out tests/test_%,$(wildcard tests/*.c)))
ONLY ?=

.PHONY: test

$(B)/tests/test_%: $(B)/tests/test_%.o $(test_support) $(objects)
	$(call quiet,LD)$(CC) $(CFLAGS) $^ -lcmocka $(LDLIBS) -o $@

# It counts what kernels ask the system for.
$(B)/tests/test_memory: LDLIBS += -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc \
    -Wl,--wrap=aligned_alloc,--wrap=posix_memalign,--wrap=mmap

include tests/fuzz/fuzz.mk

test:
	$(call require,test)
	@$(MAKE) --no-print-directory all $(test_programs)
	@BUILD=$(B) SANITIZE=$(SANITIZE) PYTHON=$(PYTHON) tests/run.sh $(filter %$(ONLY),$(basename $(test_programs))) $(filter %$(ONLY).sh %$(ONLY).py,$(test_scripts))
