/* SPDX-License-Identifier: MIT */
#include "emulation/counts/names.h"

#include <cstdlib>
#include <cxxabi.h>
#include <fstream>
#include <map>
#include <sstream>
#include <vector>

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

/* "# nvcc 13.0, sm_80 sm_90" names the columns of the lines after it: "80 89 4 0 FILE FUNCTION". */
bool registers_read(const char *path) {
    std::ifstream in(path);
    std::vector<int> archs;
    for (std::string line; std::getline(in, line);) {
        for (size_t at = 0; line[0] == '#' && (at = line.find("sm_", at)) != std::string::npos;)
            archs.push_back(atoi(line.c_str() + (at += 3)));
        if (line.empty() || line[0] == '#') continue;
        std::istringstream fields(line);
        std::vector<int> columns(archs.size());
        int shared, stack;
        std::string file, function;
        for (int &c : columns) fields >> c;
        fields >> shared >> stack >> file >> std::ws;
        std::getline(fields, function);
        for (size_t i = 0; i < archs.size(); i++) {
            int &most = registers[{function, archs[i]}]; /* of equal names in several files */
            if (columns[i] > most) most = columns[i];
        }
    }
    return !registers.empty();
}

int registers_of(const std::string &function, int arch) {
    auto found = registers.find({function, arch});
    return found == registers.end() ? 64 : found->second;
}

} // namespace counts
