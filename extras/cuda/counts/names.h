/* SPDX-License-Identifier: MIT
 *
 * Names of device functions.
 */
#pragma once

#include <string>

namespace counts {

/* "sum_runs<1, true, false>": demangled, without parameters and the prefix of file-local names. */
std::string function_name(const char *symbol);

} // namespace counts
