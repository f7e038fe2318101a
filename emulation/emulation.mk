# SPDX-License-Identifier: MIT
# CUDA on the CPU: see README.md here. The host compiler builds device kernels, and the code that talks to the
# device, from the same sources. Every test program is linked with these.
#
#| make bench-gpu measure device kernels on datasets/gpu.spec and dynamicemb.spec, or on what SPEC=, TRACE=,
#|                ALPHA= ... select; status 1 without a device
#| make gpu-verify  test device kernels on a real GPU and write a record; status 1 without a GPU
#| make gpu-record  both of these, packed into OUT/DEVICE-DRIVER-DATE.tar.gz; docs/cuda.md. Status 1 without
#|                a GPU, or if one of them fails; the archive has what there is

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
$(E)/embfuse: $(embfuse) $(common) $(emulated) $(emulation)
$(E)/bench $(E)/embfuse:
	$(link)

selftest     := $(patsubst emulation/selftest/%,$(E)/emulation/selftest/%.o,$(basename $(wildcard emulation/selftest/*.c*)))
