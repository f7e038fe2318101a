# SPDX-License-Identifier: MIT
# Device kernels from nvcc's own PTX: translated to C++ and run on the emulation, under the host halves of nvcc's
# objects. See extras/cuda/README.md. PTX_ARCHS: the PTX of which GPUs make test-ptx runs.

PTX_ARCHS ?= $(or $(filter 90,$(CUDA_ARCHS)),$(lastword $(CUDA_ARCHS)))
X         := $(B)/ptx
# The kernels of all rules are three million lines of PTX. Only these rules run as PTX, one for each way through the
# kernels: no sums, states, a sum of gradients, sums before and after the step. The other rules run as C++.
PTX_RULES ?= sgd adagrad rowwise_adagrad adam lars rowwise_lamb
ptx_files := $(parts:%.cu=%) $(cuda:%.cu=%) $(if $(leans),$(PTX_RULES:%=kernels/device/lean_%))
ptx_others = $(filter-out $(ptx_files:%=$(E)/%.o),$(leans:%=$(E)/%))
ptx_host  := $(ptx_files:%=$(X)/host/%.o)
ptx_run   := $(patsubst %.cpp,$(B)/%.o,$(wildcard extras/cuda/ptx/*.cpp))
# Groups of tests/kernels.
ptx_groups := kernels max onesweep properties
ptx_tests  = $(foreach a,$1,$(ptx_groups:%=$(X)/$a/tests:%))
# A translation is as many files as its size asks for, so those are known only when it is made.
ptx_made   = $(foreach a,$1,$(ptx_files:%=$(X)/$a/%.made))
ptx_parts  = $(patsubst %.cpp,%.o,$(shell find $(X)/$1 -name '*.cpp' 2>/dev/null))

$(ptx_run): CXXFLAGS += -Iemulation/include

.PRECIOUS: $(X)/host/%.o $(CUDA_ARCHS:%=$(X)/%/%.o) $(CUDA_ARCHS:%=$(X)/%/%.made)

# The host's half: launches find the translation of this file by the registration, which gets a name of its own.
$(X)/host/%.o: $(B)/%.o extras/cuda/ptx/ptx.mk
	@mkdir -p $(@D)
	$(call quiet,PTX)objcopy --redefine-sym cudaFuncGetAttributes=ptx_cudaFuncGetAttributes \
	    --redefine-sym __cudaRegisterFunction=ptx_register_$(subst /,_,$*) $< $@

define ptx_arch
$(X)/$1/%.made: $(B)/%.o $(wildcard extras/cuda/ptx/*.py)
	@mkdir -p $$(@D)
	$$(call quiet,PTX)$$(PYTHON) extras/cuda/ptx/translate.py $$(subst /,_,$$*) $$*.$1.ptx $(B)/$$*.$1.ptx $(X)/$1/$$* && touch $$@

# Half optimized: full optimization would take more time than it saves.
$(X)/$1/%.o: $(X)/$1/%.cpp extras/cuda/ptx/ptx.mk
	$$(call quiet,CXX)$$(CXX) -std=c++20 -Og -w -fno-strict-aliasing $$(FP) -Iemulation/include -I. -MMD -MP -c $$< $$(object)

$(X)/$1/groups.inc: FORCE
	@mkdir -p $$(@D)
	@printf 'GROUP(%s)\n' $(ptx_groups) $$(renewed)
$(X)/$1/main.o: tests/support/main.c $(X)/$1/groups.inc
	$$(call quiet,CC)$$(CC) $$(CFLAGS) -I$(X)/$1 -c $$< $$(object)
$(X)/$1/tests: $(ptx_groups:%=$(B)/tests/kernels/test_%.o) $(X)/$1/main.o $(B)/extras/cuda/tests/ptx/only_device.o $(host) $(host_shared) $(updates) \
               $(E)/harness/registry.o $(device:%.c=$(E)/%.o) $(ptx_host) $(call ptx_parts,$1) $(ptx_others) $(ptx_run) $(emulation) $(archives)
	$$(call quiet,LD)$$(CXX) $$(CXXFLAGS) $$^ -lcmocka $$(LDLIBS) $$(whole)
endef
$(foreach a,$(CUDA_ARCHS),$(eval $(call ptx_arch,$a)))

.PHONY: ptx-programs test-ptx ptx-verify
# All architectures are translated, which is a check of its own. PTX_ARCHS are compiled, too.
ptx-programs:
	@$(MAKE) --no-print-directory $(call ptx_made,$(CUDA_ARCHS))
	@$(MAKE) --no-print-directory $(PTX_ARCHS:%=$(X)/%/tests)

test-ptx ptx-verify:
	@[ -n "$(NVCC)" ] || { echo '$@: nvcc is missing, so there is no PTX' >&2; exit 1; }
	$(call require,test)
	@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc)) ptx-programs $(if $(filter ptx-verify,$@),ONLY=)
	@BUILD=$(B) NVCC=$(NVCC) PYTHON=$(PYTHON) $(if $(filter ptx-verify,$@),extras/cuda/tests/ptx_verify.sh $(call ptx_tests,$(PTX_ARCHS)) -- \
	    $(notdir $(cuda:%.cu=%)),tests/run.sh $(filter $(only),$(call ptx_tests,$(PTX_ARCHS))))
