/* SPDX-License-Identifier: MIT
 *
 * Emulated CUB: all headers.
 */
#pragma once

#include "cub/device/device_radix_sort.cuh"
#include "cub/device/device_reduce.cuh"
#include "cub/device/device_run_length_encode.cuh"
#include "cub/device/device_scan.cuh"
