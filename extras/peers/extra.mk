# SPDX-License-Identifier: MIT
# PyTorch and FBGEMM beside the suite's kernels, in the same run: see extras/peers/README.md. Nothing else in
# the suite needs what this target installs.
#
#| make peers     measure PyTorch and FBGEMM beside the kernels, on the same batches in the same run; installs
#|                both into build/peers/venv (several GB, once); variables as for bench. Without a selection,
#|                a second run measures FBGEMM and kernels on one thread: OUT/peers-1-thread/

.PHONY: peers

peers_venv    := build/peers/venv
# Momentum and Adam read and write the most, so they get fewer workloads.
peers_rules   := (zipf/alpha:(0|1.05|1.2)|cached|single-hot|dlrm-2022)/(sgd|adagrad|rowwise_adagrad)|(zipf/alpha:1.05|cached|single-hot)/(momentum|adam)
peers_filter  := ^($(peers_rules))/(cpu_(fused|sort|dense)|torch_.*|fbgemm)/
peers_spec    := $(if $(SPEC)$(TRACE)$(ALPHA)$(DIMS)$(ROWS)$(BATCH)$(POOLING),,--spec=datasets/standard.spec)
# If the user chooses workloads, all of them are measured, with these kernels.
peers_others  := /(cpu_(fused|sort|dense)|torch_.*|fbgemm)/
# FBGEMM's package may be built without OpenMP. So a run without choices also compares all on one
# thread.
peers_serial  := ^(zipf/alpha:(0|1.05|1.2)|cached|single-hot|dlrm-2022)/rowwise_adagrad/(cpu_(fused|sort)|fbgemm)/
peers_chosen  := $(FILTER)$(THREADS)$(RULE)$(MODES)$(SPEC)$(TRACE)$(ALPHA)$(DIMS)$(ROWS)$(BATCH)$(POOLING)
peers_preset  := --filter='$(if $(peers_spec),$(peers_filter),$(peers_others))' --modes=cold \
                 --rule=all $(peers_spec)

# The objects of embfuse except its main. Peers are compared with host kernels only.
$(B)/extras/peers/session: $(B)/extras/peers/session.o $(patsubst %.c,$(B)/%.o,$(filter-out cli/embfuse.c,$(cli))) $(objects)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ -lbenchmark -lpthread $(LDLIBS) $(whole)

peers:
	$(call require,bench)
	@[ -e $(peers_venv)/complete ] || sh tests/support/venv.sh $(peers_venv) $(PYTHON) peers extras/peers/requirements.txt \
	     'PyTorch and FBGEMM, several gigabytes' \
	     'import torch, fbgemm_gpu; torch.ops.fbgemm.split_embedding_codegen_lookup_sgd_function_cpu'
	@$(MAKE) --no-print-directory $(B)/extras/peers/session $(B)/embfuse
	@worst=0; \
	 run() { to=$(call quoted,$(OUT))/$$1; shift; $(PYTHON) extras/peers/peers.py --session $(B)/extras/peers/session \
	     --embfuse $(B)/embfuse --python $(peers_venv)/bin/python $(peers_preset) "$$@" --out="$$to"; \
	     status=$$?; [ $$status -ne 1 ] || exit 1; [ $$status -eq 0 ] || worst=$$status; \
	     $(PYTHON) reports/table.py "$$to/bench.json" $(call given,MODE) && \
	     $(PYTHON) reports/ratios.py "$$to/bench.json" $(call given,MODE) && \
	     $(PYTHON) reports/plots.py "$$to/bench.json" "$$to/plots" $(call given,MODE) || exit 1; }; \
	 run peers $(selection); \
	 $(if $(peers_chosen),,run peers-1-thread $(selection) --threads=1 \
	     --rule=rowwise_adagrad --filter='$(peers_serial)';) \
	 exit $$worst

packages_test-peers := $(packages_test)
needs_peers := $(B)/extras/peers/session $(B)/bench $(B)/embfuse
