/* SPDX-License-Identifier: MIT
 *
 * Names of device functions, and their registers.
 */
#pragma once

#include <string>

namespace counts {

/* "sum_runs<1, true, false>": demangled, without parameters and the prefix of file-local names. */
std::string function_name(const char *symbol);

/* Reads the table that `make resources` writes. */
bool registers_read(const char *path);

/* Registers for that architecture; of a function that is not in the table, as CUB's, 64. */
int registers_of(const std::string &function, int arch);

} // namespace counts
