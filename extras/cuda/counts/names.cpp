/* SPDX-License-Identifier: MIT */
#include "extras/cuda/counts/names.h"

#include <algorithm>
#include <cstdlib>
#include <cxxabi.h>
#include <fstream>
#include <map>

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

static std::map<std::pair<std::string, int>, int> registers;

/* Lines "FILE FUNCTION sm_80: code 256 registers 8 ...". */
bool registers_read(const char *path) {
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
        const size_t begin = line.find(' ') + 1, arch = line.find(" sm_"),
                     count = line.find(" registers ");
        if (line[0] == '#' || arch == std::string::npos || count == std::string::npos) continue;
        int &most = registers[{line.substr(begin, arch - begin), atoi(line.c_str() + arch + 4)}];
        most =
            std::max(most, atoi(line.c_str() + count + 11)); /* of equal names in several files */
    }
    return !registers.empty();
}

int registers_of(const std::string &function, int arch) {
    auto found = registers.find({function, arch});
    return found == registers.end() ? 64 : found->second;
}

} // namespace counts
