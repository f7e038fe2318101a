/* SPDX-License-Identifier: MIT
 *
 * In programs with translated PTX only the tests of device kernels run, unless TESTS says otherwise.
 */
#include <stdlib.h>
#include <string.h>

__attribute__((constructor)) static void only_device_kernels(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "device_index") == 0)
        return; /* no kernel gives its name to these */
    setenv("TESTS", "cuda_*", 0);
}
