/* SPDX-License-Identifier: MIT
 *
 * In programs with translated PTX only the tests of device kernels run, unless TESTS says otherwise.
 */
#include <stdlib.h>

__attribute__((constructor)) static void only_device_kernels(void) {
    setenv("TESTS", "cuda_*", 0);
}
