# SPDX-License-Identifier: MIT
# CUDA on the CPU: see README.md here. The host compiler builds device kernels, and the code that talks to the
# device, from the same sources. Every test program is linked with these.
#
#| make bench-gpu measure device kernels on datasets/gpu.spec and dynamicemb.spec, or on what SPEC=, TRACE=,
#|                ALPHA= ... select; status 1 without a device
#| make test-ptx  run the tests of device kernels with nvcc's PTX, translated, without a GPU: PTX_ARCHS="80 90 100";
#|                make ptx-verify also writes the record reports/results/ptx-verified.txt
#| make gpu-verify  test device kernels on a real GPU and write a record; status 1 without a GPU
#| make gpu-record  both of these, packed into OUT/DEVICE-DRIVER-DATE.tar.gz; docs/cuda.md. Status 1 without
#|                a GPU, or if one of them fails; the archive has what there is
#| make cuda12    install the headers of CUDA 12 in build/ (24 MB, once); make test ONLY=cuda_old compiles with them
#| make resources  record what device kernels compile to in extras/cuda/tests/golden/cuda_sass.txt, with which make test compares.
#|                It needs a disassembler: make sass-tools installs one in build/ (7 MB, once) if CUDA has none
#| make counts    what device kernels do, counted on nvcc's PTX without a GPU: requests, sectors, atomics; not timed.
#|                make counts-renew accepts a change, make test-counts judges it; COUNTS_SPEC=file KERNEL=text;
#|                COUNTS_LINES=1: also the source lines that move most
#| make sass-counts  instructions that warps issue in the kernel of extras/cuda/sass/target.cu: nvcc's machine code, executed
#|                on the CPU, and every row of it checked. make sass-counts-renew accepts a change, make test-cuda judges it;
#|                SASS='--rule=adam --lines=20 --blocks=all --listing=file': some of it, lines, the whole launch, the code

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
