/* SPDX-License-Identifier: MIT
 *
 * The result file of the Google Benchmark driver: the library's JSON with keys of our own, under a
 * temporary name until it is whole.
 */
#ifndef EMBFUSE_GBENCH_WRITE_H
#define EMBFUSE_GBENCH_WRITE_H

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "harness/gbench_record.h"

extern "C" {
#include "harness/environment.h"
#include "harness/options.h"
#include "harness/registry.h"
}

inline std::string result_path(const struct options &o) {
    return std::string(o.out) + "/bench.json";
}

/* Before anything is measured. */
inline bool can_write(const struct options &o) {
    std::error_code ignored;
    std::filesystem::create_directories(o.out, ignored);
    std::string part = result_path(o) + ".part";
    FILE *f = fopen(part.c_str(), "a");
    if (f && fclose(f) == 0 && unlink(part.c_str()) == 0) return true;
    fprintf(stderr, "bench: %s: %s; choose another folder with OUT=\n", part.c_str(),
            strerror(errno));
    return false;
}

/* context: keys of the record that became known during the run. device: what it ran on, or NULL. */
inline bool write_json(const struct options &o, const std::map<std::string, std::string> &context,
                       const struct device_facts *device, const std::vector<Run> &runs) {
    std::string path = result_path(o), part = path + ".part";
    auto add = [](void *, const char *key, const char *value) {
        benchmark::AddCustomContext(key, value);
    };
    environment_describe(o.threads, device, add, nullptr);
    options_describe(&o, add, nullptr);
    int count;
    const struct registered *all = registry(&count);
    for (int i = 0; i < count; i++) {
        const struct kernel *k = all[i].kernel;
        benchmark::AddCustomContext(std::string("emb_kernel_") + k->name,
                                    std::string(all[i].family) + " | " + place_name(k->place) +
                                        " | " + traits_text(k->traits) + " | " + k->label + " | " +
                                        k->idea);
    }
    for (const auto &c : context) benchmark::AddCustomContext(c.first, c.second);

    std::ofstream file(part);
    benchmark::JSONReporter json;
    json.SetOutputStream(&file);
    json.SetErrorStream(&file);
    json.ReportContext(benchmark::BenchmarkReporter::Context());
    json.ReportRuns(runs);
    json.Finalize();
    file.close();
    if (!file || rename(part.c_str(), path.c_str())) {
        fprintf(stderr, "bench: cannot write %s: %s\n", path.c_str(), strerror(errno));
        unlink(part.c_str());
        return false;
    }
    fprintf(stderr, "wrote %s\n", path.c_str());
    return true;
}

#endif
