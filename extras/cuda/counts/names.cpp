/* SPDX-License-Identifier: MIT */
#include "extras/cuda/counts/names.h"

#include <cstdlib>
#include <cxxabi.h>

namespace counts {

static void remove_all(std::string &name, const std::string &begin, const std::string &end) {
    for (size_t at; (at = name.find(begin)) != std::string::npos;) {
        const size_t to = name.find(end, at);
        if (to == std::string::npos) return;
        name.erase(at, to + end.size() - at);
    }
}

/* The parenthesis that is not inside of template arguments begins the parameters. */
static std::string without_parameters(const std::string &name) {
    int depth = 0;
    for (size_t i = 0; i < name.size(); i++) {
        depth += (name[i] == '<') - (name[i] == '>');
        if (name[i] == '(' && depth == 0) return name.substr(0, i);
    }
    return name;
}

std::string function_name(const char *symbol) {
    int status;
    char *text = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
    std::string name = text ? text : symbol;
    free(text);
    remove_all(name, "_INTERNAL_", "::");
    remove_all(name, "(anonymous namespace)", "::");
    name = without_parameters(name);
    for (const char *prefix : {"void ", "static "})
        if (name.rfind(prefix, 0) == 0) name.erase(0, std::string(prefix).size());
    return name;
}

} // namespace counts
