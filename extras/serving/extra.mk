# SPDX-License-Identifier: MIT
# Frozen tables as a server keeps them: export, lookup, latency.
#
#| make serving   time a frozen table mapped, in Redis and in FAISS, and compare bytes and recall of its types; installs
#|                FAISS into build/serving/venv. ROWS= DIMS= ALPHA=, BATCH= requests of POOLING= rows, WEIGHT=own.npy

.PHONY: serving
serving_objects := $(B)/extras/serving/latency.o
$(foreach d,$(B) $(C) $(E) $(P),$d/embfuse): $(serving_objects) $(library_a)

# A frozen table as it is served: mapped, in Redis where hiredis is installed, and in FAISS.
hiredis  := $(wildcard /usr/include/hiredis/hiredis.h)
cli_parts = $(patsubst %.c,$(B)/%.o,$(filter-out cli/embfuse.c,$(cli)))
$(B)/extras/serving/study/serving: LDLIBS += $(if $(hiredis),-lhiredis)
$(B)/extras/serving/study/serving: $(B)/extras/serving/study/serving.o $(B)/extras/serving/study/store$(if $(hiredis),,_none).o \
                              $(cli_parts) $(serving_objects) $(objects) $(library_a)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(LDLIBS) $(whole)

# Without the last two, Redis is left out.
packages_serving := $(packages_bench) python3-numpy python3-venv redis-server libhiredis-dev
serving_venv     := build/serving/venv
serving:
	$(call require,serving)
	@[ -e $(serving_venv)/complete ] || sh tests/support/venv.sh $(serving_venv) $(PYTHON) serving \
	     extras/serving/study/requirements.txt 'FAISS, 100 MB' 'import faiss, numpy' || :
	@$(MAKE) --no-print-directory $(B)/extras/serving/study/serving $(B)/embfuse
	@$(PYTHON) extras/serving/study/serving.py $(call quoted,$(OUT)/serving) --embfuse=$(B)/embfuse \
	     --serving=$(B)/extras/serving/study/serving --python=$(serving_venv)/bin/python \
	     $(if $(WEIGHT),--weight=$(call quoted,$(WEIGHT))) $(call given,ROWS DIMS ALPHA BATCH POOLING REPS SEED)

packages_test-serving := $(packages_test)
packages_ci   += redis-server libhiredis-dev
needs_serving := $(B)/extras/serving/study/serving $(B)/embfuse
$(eval $(call suite_rule,serving))
$(B)/extras/serving/tests/tests: $(serving_objects) $(library_a)
