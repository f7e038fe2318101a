/* SPDX-License-Identifier: MIT
 *
 * The result file of the Google Benchmark driver: the library's JSON with keys of the suite. The
 * file has a temporary name until it is complete.
 */
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "harness/record/gbench_record.h"

extern "C" {
#include "harness/measure/environment.h"
#include "harness/record/options.h"
#include "harness/registry.h"
}

using Context = std::map<std::string, std::string>;

/* The facts before the first sample: the program, the current state of the machine, the options. */
inline Context describe(const struct options &o, const struct device_facts *device) {
    Context all;
    auto add = [](void *ctx, const char *key, const char *value) {
        std::string text(4 * strlen(value) + 5, '\0'); /* JSON is UTF-8; a path need not be */
        escape_controls(value, &text[0], text.size());
        (*static_cast<Context *>(ctx))[key] = text.c_str();
    };
    environment_describe(o.threads, device, add, &all);
    options_describe(&o, add, &all);
    for (const struct registered *r = registry(); r->kernel; r++) {
        const struct kernel *k = r->kernel;
        char traits[TRAITS_MAX];
        all[std::string("emb_kernel_") + k->name] =
            std::string(r->family) + " | " + place_name(k->place) + " | " +
            (k->traits ? traits_text(k->traits, ",", traits) : "none") + " | " + k->label + " | " +
            k->idea;
    }
    return all;
}

/* Appends a run to the text of a row. */
inline void add_run(std::string *row, const Run &run) {
    std::ostringstream text;
    benchmark::JSONReporter json;
    json.SetOutputStream(&text);
    json.ReportRuns({run});
    *row += (row->empty() ? "" : ",\n") + text.str();
}

/* OUT/bench.json. Removes the folders it made if they stay empty. */
class Output {
  public:
    explicit Output(const struct options &o) : path(std::string(o.out) + "/bench.json") {}
    ~Output() {
        for (auto folder = made.rbegin(); folder != made.rend(); ++folder)
            rmdir(folder->c_str()); /* fails if it is not empty */
    }
    const std::string path;

    /* Called before the first measurement. Also removes the part file of a killed run. */
    bool can_write() {
        namespace fs = std::filesystem;
        std::vector<std::string> missing;
        std::error_code ignored;
        for (fs::path p = fs::path(path).parent_path(); !p.empty() && !fs::exists(p, ignored);
             p = p.parent_path())
            missing.push_back(p.string());
        for (auto folder = missing.rbegin(); folder != missing.rend(); ++folder)
            if (fs::create_directory(*folder, ignored)) made.push_back(*folder);
        FILE *f = fopen(part.c_str(), "w");
        if (f && fclose(f) == 0 && unlink(part.c_str()) == 0) return true;
        fprintf(stderr, "bench: %s: %s; choose another folder with OUT=\n", part.c_str(),
                strerror(errno));
        return false;
    }

    /* Replaces the file. The library can add keys to a context, but cannot change them. */
    bool write(Context context, const std::string &rows) {
        benchmark::internal::GetGlobalContext() = &context;
        errno = 0;
        std::ofstream file(part);
        benchmark::JSONReporter json;
        json.SetOutputStream(&file);
        json.SetErrorStream(&file);
        json.ReportContext(benchmark::BenchmarkReporter::Context());
        file << rows;
        json.Finalize();
        file.close();
        benchmark::internal::GetGlobalContext() = nullptr;
        if (!file || rename(part.c_str(), path.c_str())) {
            fprintf(stderr, "bench: cannot write %s: %s\n", path.c_str(), strerror(errno));
            unlink(part.c_str());
            return false;
        }
        return true;
    }

  private:
    const std::string part = path + ".part";
    std::vector<std::string> made; /* from the outside in */
};
