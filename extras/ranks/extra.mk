# SPDX-License-Identifier: MIT
# Several ranks. Only programs that talk over MPI link with it.
#
#| make bench-ranks  iterations on ranks of this machine over MPI, with the bytes that ranks send: RANKS="1 2 4"
#|                SHARDING="table row column data"; extras/ranks/README.md has all of it
#| make scale     weak and strong scaling over RANKS="1 2 4 8" of this machine, and on two nodes with shaped
#|                LINKS="1gbit 10gbit" if they are given (as root), each beside a model of bytes, links and local work;
#|                the best sharding on 8 to 16,384 ranks of a cluster, only modelled. SHARDING= REPS=9; OUT/scale/scale.md
#| make server    training on a parameter server over MPI: synchronous, with bounded staleness, without a bound; rates,
#|                versions, loss and drift. RANKS=4, SERVERS=1 of them, CLOCKS=200, RULE=adagrad; OUT/server/server.md
#| make zero      ZeRO-1 and ZeRO-3 of an embedding table beside rows in shards: bytes held and sent, time; RANKS=4

mpi_files     := extras/ranks/transport_mpi.c extras/ranks/program.c
ranks_objects := $(patsubst %.c,$(B)/%.o,$(filter-out $(mpi_files) extras/ranks/train.c extras/ranks/transport_nccl.c,$(sort $(wildcard extras/ranks/*.c))))

# Open MPI, where it is; everything else works without it.
packages_ranks := $(packages_bench) libjansson-dev pkg-config openmpi-bin libopenmpi-dev
mpi            := $(shell command -v mpirun >/dev/null && pkg-config --exists ompi-c 2>/dev/null && echo yes)
mpi_include    := $(patsubst -I%,-isystem %,$(shell pkg-config --cflags-only-I ompi-c 2>/dev/null))
$(mpi_files:%.c=$(B)/%.o): CFLAGS += $(mpi_include)

# The programs on MPI, and one whose runs cannot end well.
ranks_programs := $(B)/extras/ranks/bench $(B)/extras/ranks/train $(B)/extras/ranks/study/server $(B)/extras/ranks/study/machine $(B)/extras/ranks/tests/mpi/ends
$(B)/extras/ranks/bench: $(B)/harness/record/gbench.o
$(ranks_programs): %: %.o $(mpi_files:%.c=$(B)/%.o) $(ranks_objects) $(objects) $(state_a) $(library_a)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(if $(filter bench,$(@F)),-lbenchmark) -lpthread $(shell pkg-config --libs ompi-c) $(LDLIBS) -ljansson $(whole)

.PHONY: bench-ranks server scale zero
bench-ranks:
	$(call require,ranks)
	@$(MAKE) --no-print-directory $(B)/extras/ranks/bench
	@$(PYTHON) extras/ranks/study/sharding.py $(call quoted,$(OUT)/sharding/sharding.json) $(call quoted,$(OUT)/sharding) \
	     --bench=$(B)/extras/ranks/bench --kernel=cpu_fused $(call given,RANKS SHARDING REPS SEED)

# The same with kernels of a device, whose rows travel by NCCL, where that is: beside CUDA, in /usr (NVIDIA's package libnccl-dev),
# or in NCCL=folder with include/ and lib/ (PyPI: nvidia-nccl-cu13). NCCL= goes without: then they travel through host memory.
ifneq ($(NVCC),)
NCCL    ?= $(patsubst %/include/nccl.h,%,$(firstword $(wildcard $(CUDA)/include/nccl.h /usr/include/nccl.h)))
libnccl := $(if $(NCCL),$(if $(wildcard $(NCCL)/include/nccl.h),$(firstword $(wildcard $(NCCL)/lib/libnccl.so* $(NCCL)/lib/*/libnccl.so*))))
$(B)/extras/ranks/transport_nccl.o: CFLAGS += -isystem $(CUDA)/include $(patsubst %,-isystem %/include,$(filter-out /usr,$(NCCL)))
$(B)/extras/ranks/bench_cuda: $(B)/extras/ranks/bench.o $(B)/harness/record/gbench.o $(mpi_files:%.c=$(B)/%.o) $(ranks_objects) \
                       $(cuda_objects) $(state_a) $(library_a) $(if $(libnccl),$(B)/extras/ranks/transport_nccl.o)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(libnccl) $(patsubst %,-Wl$(comma)-rpath$(comma)%,$(dir $(libnccl))) \
	    -lbenchmark -lpthread $(shell pkg-config --libs ompi-c) $(LDLIBS) -ljansson $(cudart) $(whole)
endif

# Training on a parameter server: servers and workers are ranks.
server:
	$(call require,ranks)
	@$(MAKE) --no-print-directory $(B)/extras/ranks/study/server
	@mkdir -p $(call quoted,$(OUT)/server)
	@$(PYTHON) extras/ranks/launch.py -np $(or $(RANKS),4) $(B)/extras/ranks/study/server $(or $(SERVERS),1) $(or $(CLOCKS),200) \
	     $(or $(RULE),adagrad) >$(call quoted,$(OUT)/server/server.jsonl)
	@$(PYTHON) extras/ranks/study/server.py $(call quoted,$(OUT)/server/server.jsonl) $(call quoted,$(OUT)/server)

# Iterations on several ranks: measured and predicted here, and modelled on a cluster.
scale:
	$(call require,ranks)
	@$(MAKE) --no-print-directory $(B)/embfuse $(B)/extras/ranks/bench $(B)/extras/ranks/study/machine
	@$(PYTHON) extras/ranks/study/scale.py $(call quoted,$(OUT)/scale/scale.jsonl) $(call quoted,$(OUT)/scale) \
	     --build=$(B) $(call given,RANKS LINKS SHARDING REPS)

# What dense data parallelism with a partitioned optimizer moves for an embedding table, beside rows that are
# sharded. Ranks are threads of one process.
threads_programs := $(B)/extras/ranks/study/zero $(B)/extras/ranks/tests/bytes/count
$(B)/extras/ranks/tests/bytes/count: $(B)/support.a
$(threads_programs): %: %.o $(ranks_objects) $(objects) $(state_a) $(library_a)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(LDLIBS) -ljansson $(whole)

zero:
	$(call require,bench)
	@$(MAKE) --no-print-directory $(B)/extras/ranks/study/zero
	@mkdir -p $(call quoted,$(OUT)/zero)
	@$(B)/extras/ranks/study/zero $(or $(RANKS),4) >$(call quoted,$(OUT)/zero/zero.jsonl)
	@$(PYTHON) extras/ranks/study/zero.py $(call quoted,$(OUT)/zero/zero.jsonl) $(call quoted,$(OUT)/zero)

# --- tests
packages_test-ranks := $(packages_test) libjansson-dev
packages_ci   += openmpi-bin libopenmpi-dev iproute2
needs_ranks   := $(threads_programs) $(B)/embfuse $(if $(mpi),$(ranks_programs) $(E)/ranks_device)
wrapped_ranks := pwrite fsync renameat
$(eval $(call suite_rule,ranks))
$(B)/extras/ranks/tests/tests: LDLIBS += -ljansson
$(B)/extras/ranks/tests/tests: $(ranks_objects) $(B)/extras/library/tests/state_case.o $(state_a) $(library_a)

# NCCL over MPI, as one machine without devices has it.
nccl_stand_in := $(E)/extras/ranks/transport_nccl.o $(B)/extras/ranks/nccl/nccl_over_mpi.o
$(B)/extras/ranks/nccl/nccl_over_mpi.o: CXXFLAGS += -Iemulation/include $(mpi_include)

# Ranks with emulated devices.
$(E)/ranks_device: LDLIBS += -Wl,--wrap=device_rows_move
$(E)/ranks_device: $(B)/extras/ranks/tests/mpi/ranks_device.o $(mpi_files:%.c=$(B)/%.o) $(ranks_objects) $(nccl_stand_in)
$(E)/ranks_device: $(with_kernels) $(state_a) $(library_a) $(archives)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $(filter-out %.a,$^) $(state_a) $(library_a) $(archives) -lcmocka $(shell pkg-config --libs ompi-c) $(LDLIBS) -ljansson $(whole)
