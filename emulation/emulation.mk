# SPDX-License-Identifier: MIT
# CUDA on the CPU: see README.md here. The host compiler builds device kernels, and the code that talks to the
# device, from the same sources. Every test program is linked with these.

E            := $(B)/emulated
emulated     := $(E)/harness/registry.o $(device:%.c=$(E)/%.o) $(parts:%.cu=$(E)/%.o) $(leans:%=$(E)/%) $(cuda:%.cu=$(E)/%.o)
emulation    := $(patsubst %.cpp,$(B)/%.o,$(wildcard emulation/*.cpp))
# Without -fno-tree-slp-vectorize gcc 12 reads four floats at once, even where a kernel's test forbids it.
EMULATEFLAGS := -Iemulation/include -I$(E) -fno-tree-slp-vectorize $(if $(findstring clang,$(CC)),-Wno-pass-failed)

# The runtime tells ThreadSanitizer what a device orders. Its own bookkeeping is not watched.
$(emulation): CXXFLAGS := $(filter-out -fsanitize=thread,$(CXXFLAGS)) -Iemulation/include

.PRECIOUS: $(E)/%.o
$(E)/kernel_list.inc: listed = $(host) $(cuda:%.cu=$(E)/%.o)

$(E)/%.o: %.c Makefile emulation/emulation.mk | $(rule_lists)
	@mkdir -p $(@D)
	$(call quiet,CC)$(CC) $(EMULATEFLAGS) $(CFLAGS) -c $< $(object)

emulated_cu = $(call quiet,CXX)$(CXX) $(EMULATEFLAGS) $(CXXFLAGS) -O1 -std=c++20 -fno-strict-aliasing -Wno-unknown-pragmas $1 \
                  -x c++ -c $< $(object)
$(E)/%.o: %.cu Makefile emulation/emulation.mk | $(rule_lists)
	@mkdir -p $(@D)
	$(emulated_cu)

$(leans:%=$(E)/%): $(E)/kernels/device/lean_%.o: $(lean) Makefile emulation/emulation.mk | $(rule_lists)
	@mkdir -p $(@D)
	$(call emulated_cu,-O0 -DLEAN_RULE=$*)

# Both programs, with an emulated device.
$(E)/bench: $(recorder) $(common) $(emulated) $(emulation)
$(E)/embfuse: $(cli:%.c=$(B)/%.o) $(common) $(emulated) $(emulation) $(guests)
$(E)/bench $(E)/embfuse:
	$(link)

# NCCL's stand-in, for programs of several ranks with emulated devices.
nccl_stand_in := $(E)/ranks/transport_nccl.o $(B)/emulation/nccl/nccl_over_mpi.o
$(B)/emulation/nccl/nccl_over_mpi.o: CXXFLAGS += -Iemulation/include $(mpi_include)

selftest     := $(patsubst emulation/selftest/%,$(E)/emulation/selftest/%.o,$(basename $(wildcard emulation/selftest/*.c*)))
