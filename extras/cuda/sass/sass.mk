# SPDX-License-Identifier: MIT
# Instructions that a kernel executes, counted by an interpreter of its machine code: ../README.md.
# SASS='--rule=adam --lines=20': options of counts.py. SASS_TARGET and SASS_OBJECT: of another kernel.

sass_library := $(B)/extras/cuda/sass/libsass.so
sass_target  := $(B)/extras/cuda/sass/target
sass_rules   := sgd rowwise_adagrad adagrad adam
sass_object  := $(foreach r,$(sass_rules),$(B)/$(subst %,$r,$(shell sed -n 's/^#define OBJECT "\([^"]*\)".*/\1/p' extras/cuda/sass/target.cu)).o)

$(sass_library): $(patsubst %.cpp,$(B)/%.o,$(wildcard extras/cuda/sass/*.cpp))
	$(call quiet,LD)$(CXX) $(CXXFLAGS) -shared $^ $(whole)

# It has no kernel, so nothing calls some functions of kernels/device/.
$(E)/extras/cuda/sass/target.o: CXXFLAGS += -Wno-unused-function
$(sass_target): $(E)/extras/cuda/sass/target.o
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(whole)

.PHONY: sass-counts sass-counts-renew
sass-counts sass-counts-renew:
	@[ -n "$(NVCC)" ] || { echo '$@: nvcc is missing, so there is no machine code' >&2; exit 1; }
	@$(MAKE) --no-print-directory sass-tools
	@$(MAKE) --no-print-directory $(sass_library) $(sass_target) $(sass_object)
	@NVCC=$(NVCC) $(PYTHON) extras/cuda/sass/counts.py --build=$(B) $(if $(filter %-renew,$@),--renew,$(SASS))
