/* SPDX-License-Identifier: MIT
 *
 * Emulated CUDA: with this header first on the include path, a .cu file is plain C++, and its
 * kernels run on the CPU, for correctness only. Under nvcc the project's kernels/device/launch.h
 * defines the three macros; everything else has CUDA's own names.
 */
#pragma once

#include "cuda_runtime_api.h"

#ifdef __cplusplus
#include <math.h>

#include "emulation/vector_types.h"

#include "emulation/device.h"
#include "emulation/language.h"

#include "emulation/addresses.h"
#include "emulation/atomics.h"
#include "emulation/collectives.h"
#include "emulation/functions.h"
#include "emulation/intrinsics.h"
#include "emulation/launch.h"
#endif
