/* SPDX-License-Identifier: MIT
 *
 * Emulated CUB: all headers.
 */
#ifndef EMULATED_CUB_H
#define EMULATED_CUB_H

#include "cub/device/device_radix_sort.cuh"
#include "cub/device/device_reduce.cuh"
#include "cub/device/device_run_length_encode.cuh"
#include "cub/device/device_scan.cuh"

#endif
