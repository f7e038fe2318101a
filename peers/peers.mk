# Systems that people use today, beside the suite's kernels, in the same run: see peers/README.md.
# Nothing else of the suite needs what this target installs.

.PHONY: peers

peers_venv    := build/peers/venv
# Adam, whose tables are three times as large, on one of the skews only: 15 minutes in all, on a busy machine.
peers_rules   := (zipf/.*|cached|single-hot)/(sgd|rowwise_adagrad|adagrad)|(zipf/alpha:1.05|cached|single-hot)/adam
peers_filter  := ^($(peers_rules))/(cpu_(fused|sort|dense)|torch_.*|fbgemm)/
peers_spec    := $(if $(SPEC)$(TRACE)$(ALPHA)$(DIMS)$(ROWS)$(BATCH)$(POOLING),,--spec=datasets/standard.spec)
# Of a choice of workloads of one's own, all are measured, with these kernels.
peers_others  := /(cpu_(fused|sort|dense)|torch_.*|fbgemm)/
peers_preset  := --filter='$(if $(peers_spec),$(peers_filter),$(peers_others))' --modes=cold \
                 --rule='sgd rowwise_adagrad adagrad adam' $(peers_spec)

# Everything that is linked into embfuse but its main.
$(B)/peers/session: $(B)/peers/session.o $(patsubst %.c,$(B)/%.o,$(filter-out cli/embfuse.c,$(cli))) $(objects)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ -lbenchmark -lpthread $(LDLIBS) $(cudart) -o $@

peers:
	$(call require,bench)
	@[ -e $(peers_venv)/complete ] || sh peers/setup.sh $(peers_venv) $(PYTHON)
	@$(MAKE) --no-print-directory $(B)/peers/session $(B)/embfuse
	@$(PYTHON) peers/peers.py --session $(B)/peers/session --embfuse $(B)/embfuse \
	     --python $(peers_venv)/bin/python $(peers_preset) $(filter-out --out=%,$(options)) \
	     --out='$(OUT)/peers'; status=$$?; [ $$status -ne 1 ] || exit 1; \
	 $(PYTHON) reports/table.py '$(OUT)/peers/bench.json' --mode $(MODE) && \
	 $(PYTHON) peers/ratios.py '$(OUT)/peers/bench.json' --mode $(MODE) && \
	 $(PYTHON) reports/plots.py '$(OUT)/peers/bench.json' '$(OUT)/peers/plots' --mode $(MODE) && exit $$status
