# SPDX-License-Identifier: MIT
# Several ranks. Only programs that talk over MPI link with it.
#
#| make bench-ranks  iterations on ranks of this machine over MPI, with the bytes that ranks send: RANKS="1 2 4"
#|                SHARDING="table row column data"; ranks/README.md has all of it
#| make server    training on a parameter server over MPI: synchronous, with bounded staleness, without a bound; rates,
#|                versions, loss and drift. RANKS=4, SERVERS=1 of them, CLOCKS=200, RULE=adagrad; OUT/server/server.md
#| make zero      ZeRO-1 and ZeRO-3 of an embedding table beside rows in shards: bytes held and sent, time; RANKS=4,
#|                OFFLOAD=start of file names: also with an optimizer in files

mpi_files     := ranks/transport_mpi.c ranks/program.c
ranks_objects := $(patsubst %.c,$(B)/%.o,$(filter-out $(mpi_files) ranks/train.c ranks/transport_nccl.c,$(sort $(wildcard ranks/*.c))))

# Open MPI, where it is; everything else works without it.
packages_ranks := $(packages_bench) pkg-config openmpi-bin libopenmpi-dev
mpi            := $(shell command -v mpirun >/dev/null && pkg-config --exists ompi-c 2>/dev/null && echo yes)
mpi_include    := $(patsubst -I%,-isystem %,$(shell pkg-config --cflags-only-I ompi-c 2>/dev/null))
$(mpi_files:%.c=$(B)/%.o): CFLAGS += $(mpi_include)

# The programs on MPI, and one whose runs cannot end well.
ranks_programs := $(B)/ranks/bench $(B)/ranks/train $(B)/studies/server/server $(B)/studies/scale/here $(B)/tests/ranks/mpi/ends
$(B)/ranks/bench: $(B)/harness/record/gbench.o
$(ranks_programs): %: %.o $(mpi_files:%.c=$(B)/%.o) $(ranks_objects) $(objects) $(guests)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(if $(filter bench,$(@F)),-lbenchmark) -lpthread $(shell pkg-config --libs ompi-c) $(LDLIBS) $(whole)

.PHONY: bench-ranks
bench-ranks:
	$(call require,ranks)
	@$(MAKE) --no-print-directory $(B)/ranks/bench
	@$(PYTHON) studies/sharding.py $(call quoted,$(OUT)/sharding/sharding.json) $(call quoted,$(OUT)/sharding) \
	     --bench=$(B)/ranks/bench $(watched) $(call given,RANKS SHARDING REPS SEED)

# The same with kernels of a device, whose rows travel by NCCL, where that is: beside CUDA, in /usr (NVIDIA's package libnccl-dev),
# or in NCCL=folder with include/ and lib/ (PyPI: nvidia-nccl-cu13). NCCL= goes without: then they travel through host memory.
ifneq ($(NVCC),)
NCCL    ?= $(patsubst %/include/nccl.h,%,$(firstword $(wildcard $(CUDA)/include/nccl.h /usr/include/nccl.h)))
libnccl := $(if $(NCCL),$(if $(wildcard $(NCCL)/include/nccl.h),$(firstword $(wildcard $(NCCL)/lib/libnccl.so* $(NCCL)/lib/*/libnccl.so*))))
$(B)/ranks/transport_nccl.o: CFLAGS += -isystem $(CUDA)/include $(patsubst %,-isystem %/include,$(filter-out /usr,$(NCCL)))
$(B)/ranks/bench_cuda: $(B)/ranks/bench.o $(B)/harness/record/gbench.o $(mpi_files:%.c=$(B)/%.o) $(ranks_objects) \
                       $(cuda_objects) $(guests) $(if $(libnccl),$(B)/ranks/transport_nccl.o)
	$(call quiet,LD)$(CXX) $(CXXFLAGS) $^ $(libnccl) $(patsubst %,-Wl$(comma)-rpath$(comma)%,$(dir $(libnccl))) \
	    -lbenchmark -lpthread $(shell pkg-config --libs ompi-c) $(LDLIBS) $(cudart) $(whole)
endif

# Training on a parameter server: servers and workers are ranks.
.PHONY: server
server:
	$(call require,ranks)
	@$(MAKE) --no-print-directory $(B)/studies/server/server
	@mkdir -p $(call quoted,$(OUT)/server)
	@$(PYTHON) ranks/launch.py -np $(or $(RANKS),4) $(B)/studies/server/server $(or $(SERVERS),1) $(or $(CLOCKS),200) \
	     $(or $(RULE),adagrad) >$(call quoted,$(OUT)/server/server.jsonl)
	@$(PYTHON) studies/server.py $(call quoted,$(OUT)/server/server.jsonl) $(call quoted,$(OUT)/server)
