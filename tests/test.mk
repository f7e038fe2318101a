# Tests: every tests/test_*.c is a cmocka program, every tests/test_*.sh and test_*.py is a script. All
# print TAP, and tests/run.sh adds up the results. ONLY="name name" builds and runs some of them.

# The example runs first, then the slowest programs, so that none of them runs alone at the end.
first_tests   := 00_example kernels device defects
test_programs := $(first_tests:%=$(B)/tests/test_%)
test_programs += $(filter-out $(test_programs),$(patsubst tests/%.c,$(B)/tests/%,$(sort $(wildcard tests/test_*.c))))
# Scripts about reports, studies, peers, examples, the Makefile, and what the library computes beside kernels do not
# depend on how kernels are compiled: they run only in the plain build.
tool_tests    := aarch64 add against auto average claims compare compilers counts counts_bound counts_planted \
                 counts_table crossover cuda_old deps drift examples figures gpu_record install joint_embeddings \
                 ladder links make medians mutants nvcc pages peers plots ptx ptx_lane ptx_verified pytorch_example \
                 ranks_device_mpi ranks_mpi record report_browser report_page reports reproduce sass sass_gate \
                 sass_issue scale schedule state_dict state_numpy sweep tables tiers torch_optim train_example \
                 workflow zero
test_scripts  := $(sort $(wildcard tests/test_*.sh tests/test_*.py))
ifneq ($(flavour),)
test_scripts  := $(filter-out $(foreach t,$(tool_tests),tests/test_$t.sh tests/test_$t.py),$(test_scripts))
endif
test_support  := $(patsubst %.c,$(B)/%.o,$(filter-out tests/test_%,$(wildcard tests/*.c)))
ONLY ?=

.PHONY: test

# The only test that calls CUDA itself.
$(B)/tests/test_device.o: CFLAGS += -Iemulation/include

$(B)/tests/test_registry.o $(B)/gpu/tests/test_registry.o: CFLAGS += -DEXTRA_KERNELS='"$(EXTRA_KERNELS)"'

$(B)/tests/test_%: $(B)/tests/test_%.o $(test_support) $(common) $(emulated) $(emulation)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ -lcmocka $(LDLIBS) $(whole)

$(patsubst %,$(B)/tests/test_%,ranks ranks_bytes ranks_columns checkpoint cost planner server zero): $(ranks_objects)
tier_tests    := $(patsubst %,$(B)/tests/test_%,tier_cache tier_faults tier_io tier_place tier_refused tier_rows) $(B)/gpu/tests/test_tier_place \
                 $(B)/gpu/tests/test_tier_refused
$(tier_tests): $(tiers_objects)
$(tier_tests): LDLIBS += $(tiers_libs)

# Ranks with emulated devices, and NCCL's stand-in alone.
$(E)/ranks_device: LDLIBS += -Wl,--wrap=device_rows_move
$(E)/nccl_misuse: $(E)/tests/mpi/nccl_misuse.o $(B)/ranks/transport_mpi.o $(B)/ranks/transport.o $(nccl_stand_in) \
                  $(common) $(emulated) $(emulation)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(shell pkg-config --libs ompi-c) $(LDLIBS) $(whole)
$(E)/ranks_device: $(B)/tests/mpi/ranks_device.o $(test_support) $(mpi_files:%.c=$(B)/%.o) $(ranks_objects) $(nccl_stand_in) \
                   $(common) $(emulated) $(emulation)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ -lcmocka $(shell pkg-config --libs ompi-c) $(LDLIBS) $(whole)

# The emulation alone: it runs correct kernels and finds planted bugs.
$(B)/tests/test_emulation: $(selftest) $(emulation)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ -lcmocka $(LDLIBS) $(whole)
test_programs += $(B)/tests/test_emulation

# Kernels with defects, for scripts of the plain build.
P       := $(B)/planted
planted := $(patsubst %.c,$(B)/%.o,$(wildcard tests/planted/*.c))
$(P)/kernel_list.inc: listed = $(host) $(planted)
$(P)/harness/registry.o: harness/registry.c Makefile
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) -I$(P) $(CFLAGS) -c $< $(object)
planted_objects := $(common) $(planted) $(P)/harness/registry.o $(B)/harness/device/device_none.o
$(P)/bench: $(recorder) $(planted_objects)
$(P)/embfuse: $(cli:%.c=$(B)/%.o) $(planted_objects)
$(P)/bench $(P)/embfuse:
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(if $(filter bench,$(@F)),-lbenchmark -lpthread) $(LDLIBS) $(whole)

# This program counts the kernels' requests for memory.
wrapped      := malloc calloc realloc aligned_alloc posix_memalign mmap cudaMalloc cudaMallocHost cudaHostAlloc
$(B)/tests/test_memory $(B)/gpu/tests/test_memory: LDLIBS += $(wrapped:%=-Wl,--wrap=%)

# This program finds a stand-in for NVIDIA's management library beside it.
# An rpath of the old kind also serves AddressSanitizer's library, which opens libraries for the program.
$(B)/tests/test_device_clocks: LDLIBS += -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/nvml'
$(B)/tests/test_device_clocks: | $(B)/tests/nvml/libnvidia-ml.so.1
$(B)/tests/nvml/libnvidia-ml.so.1: tests/nvml/nvml.c
	@mkdir -p $(@D)
	$(call quiet,LD)$(CC) $(WARN) -shared -fPIC $< $(whole)

# This program sets the available memory itself.
$(B)/tests/test_trace: LDLIBS += -Wl,--wrap=memory_available

# This program injects faults and crashes into the calls that write files.
file_calls   := open openat mkdir mkdirat pwrite pread fsync renameat unlinkat close
$(B)/tests/test_state_crash: LDLIBS += $(file_calls:%=-Wl,--wrap=%)

tier_calls   := close open openat mkdir pwrite pread fsync fdatasync renameat unlinkat io_uring_queue_init io_uring_submit_and_wait
$(B)/tests/test_tier_faults: LDLIBS += $(tier_calls:%=-Wl,--wrap=%)

# And this one into those of several ranks.
$(B)/tests/test_checkpoint: LDLIBS += $(addprefix -Wl$(comma)--wrap=,pwrite fsync renameat)

include tests/fuzz/fuzz.mk

# Which changes of one line does no test notice?
.PHONY: mutants
mutants:
	$(call require,test)
	@$(PYTHON) tests/mutants.py $(MINUTES:%=--minutes=%) $(SEED:%=--seed=%) $(SANITIZE:%=--sanitize=%) \
	    --out='$(OUT)/mutants.txt' $(FILES)

# --- what CI gates on without a quiet machine. valgrind knows no AVX-512, so instructions are those of a portable build.
portable_build = $(if $(filter 0,$(NATIVE)),$(B),$(B)/portable)
.PHONY: ci-metrics ci-metrics-renew
ci-metrics ci-metrics-renew:
	$(call require,metrics)
	@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc)) B=$(portable_build) NATIVE=0 \
	     SANITIZE= NVCC= $(portable_build)/bench $(portable_build)/embfuse
	@$(PYTHON) tests/ci_metrics.py $(portable_build) --nvcc='$(NVCC)' \
	     $(if $(filter %-renew,$@),--renew,$(KERNEL:%=--kernel=%))

# --- what nvcc makes of the kernels. If NVIDIA's disassembler is neither beside nvcc nor in PATH, it is installed once.
sass_venv    := build/sass/venv
.PHONY: resources sass-tools
sass-tools:
	@[ -e $(sass_venv)/complete ] || { [ -x '$(NVCC:%nvcc=%nvdisasm)' ] && [ -x '$(NVCC:%nvcc=%cuobjdump)' ]; } || \
	    { command -v nvdisasm && command -v cuobjdump; } >/dev/null || sh peers/setup.sh $(sass_venv) $(PYTHON) sass \
	    tests/sass/requirements.txt 'a disassembler, 7 MB' 'import glob, sys; \
	    assert glob.glob(sys.prefix + "/lib/*/site-packages/nvidia/*/bin/nvdisasm")'
resources: $(objects)
	@$(MAKE) --no-print-directory sass-tools
	@BUILD=$(B) NVCC=$(NVCC) $(PYTHON) tests/test_nvcc.py --renew

# --- a real device: the same programs, linked with CUDA instead of its emulation
G            := $(B)/gpu
gpu_names    := 00_example defects device device_index device_validate forward gradient kernels large max memory overflow own_lookups place_wrap properties registry tier_place tier_refused weight_grad
gpu_programs := $(gpu_names:%=$(G)/tests/test_%)
gpu_support  := $(test_support:$(B)/%=$(G)/%) $(G)/tests/gpu/no_emulation.o

.PRECIOUS: $(G)/%.o
$(G)/%.o: %.c Makefile tests/test.mk | $(rule_lists)
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) $(CFLAGS) -isystem $(CUDA)/include -c $< $(object)

$(G)/tests/test_%: $(G)/tests/test_%.o $(gpu_support) $(objects)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ -lcmocka $(LDLIBS) $(cudart) $(whole)

$(G)/tests/gpu/device_facts: $(G)/tests/gpu/device_facts.o $(objects)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(LDLIBS) $(cudart) $(whole)

.PHONY: gpu-verify
gpu-verify:
	@[ -n "$(NVCC)" ] || { echo 'gpu-verify: nvcc is missing, so there are no device kernels' >&2; exit 1; }
	$(call require,test)
	@$(MAKE) --no-print-directory $(G)/tests/gpu/device_facts
	@$(G)/tests/gpu/device_facts >/dev/null
	@$(MAKE) --no-print-directory $(gpu_programs)
	@BUILD=$(G) OUT=$(call quoted,$(OUT)) tests/gpu_verify.sh $(filter $(only),$(gpu_programs))

# The headers of CUDA 12, for tests/test_cuda_old.py. CCCL is of 12.4: older packages of it are not whole.
cuda12_packages := nvidia-cuda-runtime-cu12==12.0.146 nvidia-cuda-nvcc-cu12==12.0.140 nvidia-nvtx-cu12==12.0.140 \
                   nvidia-cuda-cccl-cu12==12.4.127.post1
.PHONY: cuda12
cuda12: build/cuda12/nvidia/complete
build/cuda12/nvidia/complete:
	@rm -rf build/cuda12
	@$(PYTHON) -m pip install -q --no-deps --root-user-action=ignore --target build/cuda12 $(cuda12_packages)
	@touch $@

# The first record of a device. It is built for this device alone, if the driver's tool says which one it is.
capability = $(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -d .)
own_archs  = $(if $(filter file,$(origin CUDA_ARCHS)),$(capability:%=CUDA_ARCHS=%))
.PHONY: gpu-record
gpu-record:
	@[ -n "$(DEVICES)" ] || { echo 'gpu-record: no CUDA device: there is no /dev/nvidia0' >&2; exit 1; }
	@MAKE='$(MAKE)' OUT=$(call quoted,$(OUT)) tests/gpu/record.sh $(own_archs)

# ONLY builds the chosen tests alone; scripts also need the programs. Without -j, as many jobs build as there are
# cores: the emulated device kernels take minutes.
only     = $(or $(addprefix %,$(ONLY)),%)
programs = $(filter $(only),$(test_programs))
scripts  = $(filter $(only:=.sh) $(only:=.py),$(test_scripts))
test:
	$(call require,test)
	@[ -n '$(programs)$(scripts)' ] || { echo "no test is called tests/test_$(ONLY)" >&2; exit 1; }
	@$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc)) $(programs) \
	     $(if $(scripts),all $(H)/bench $(E)/bench $(E)/embfuse $(B)/peers/session $(B)/studies/drift/drift $(B)/studies/cores/cores $(B)/studies/tune/tune \
                     $(B)/studies/serving/serving $(B)/examples/dlrm \
                     $(if $(flavour),,$(ptx_run) $(P)/bench $(P)/embfuse $(B)/studies/scale/scale $(B)/studies/zero/zero $(B)/studies/tiers/tiers $(if $(mpi),$(ranks_programs) $(E)/ranks_device $(E)/nccl_misuse)))
	@$(if $(and $(NVCC),$(filter %/test_ptx_lane.sh,$(scripts))),$(MAKE) --no-print-directory \
	     $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc)) ptx-programs ONLY=)
	@$(if $(and $(NVCC),$(filter $(COUNTS_ARCH),$(CUDA_ARCHS)),$(filter %/test_counts.py,$(scripts))),$(MAKE) --no-print-directory \
	     $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc)) counts-program ONLY=)
	@$(if $(and $(NVCC),$(filter %/test_nvcc.py,$(scripts))),$(MAKE) --no-print-directory sass-tools || :)
	@BUILD=$(B) NATIVE=$(NATIVE) SANITIZE=$(SANITIZE) PYTHON=$(PYTHON) NVCC=$(NVCC) PTX_ARCHS='$(PTX_ARCHS)' \
	     tests/run.sh $(programs) $(scripts)
