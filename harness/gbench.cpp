/* SPDX-License-Identifier: MIT
 *
 * The Google Benchmark driver: walks workloads x rules x kernels x cache modes, and leaves
 * measuring to measure.c. One workload is in memory at a time; its benchmarks are registered, run
 * with their repetitions in random order, and taken down again. A sample is one repetition of one
 * iteration with manual time. The JSON is written at the end, under a temporary name until it is
 * whole.
 *
 * Workarounds for libbenchmark 1.7.1 (Debian 12): memory goes out as counters (its MemoryManager
 * reads freed memory with repetitions); counters that are not finite are left out (it would write
 * NaN, which is not JSON); the exit status is our own (it returns 0 whatever happened).
 */
#include <benchmark/benchmark.h>

#include <regex.h>
#include <unistd.h>

#include <cinttypes>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/gbench_record.h"

extern "C" {
#include "harness/environment.h"
#include "harness/measure.h"
#include "harness/options.h"
#include "harness/registry.h"
}

namespace {

/* One kernel on one workload, in one cache mode. */
struct Case {
    const struct registered *entry;
    enum cache_mode mode;
    std::string name;
};

class Driver {
  public:
    explicit Driver(const struct options &o) : options(o) {}
    int run();

  private:
    const struct options &options;
    Progress progress;
    std::vector<Run> accepted;
    std::map<std::string, std::string> context; /* keys of the record that are known late */
    int wrong = 0, refused = 0, disturbed = 0;
    double alpha = NAN; /* of the workload that is measured */

    bool matches(const std::string &name) const;
    std::vector<Case> cases_of(const std::string &workload, enum rule_kind rule) const;
    bool measure_workload(struct workload *w, enum rule_kind rule);
    bool measure_point(const struct plan *plan, int i, enum rule_kind rule);
    void measure_cases(struct measure *m, std::vector<Case> cases, const std::string &rule);
    void sample(benchmark::State &state, struct measure *m, const Case &c, const std::string &rule,
                const struct scratch_use &use, int *round);
    void refuse(const std::string &workload, const char *kernel, const std::string &why);
    bool can_write() const;
    bool write_json() const;
    std::string path() const {
        return std::string(options.out) + "/bench.json";
    }
};

bool Driver::matches(const std::string &name) const {
    if (!options.filter[0]) return true;
    regex_t pattern;
    if (regcomp(&pattern, options.filter, REG_EXTENDED | REG_NOSUB)) return false;
    bool found = regexec(&pattern, name.c_str(), 0, nullptr, 0) == 0;
    regfree(&pattern);
    return found;
}

std::vector<Case> Driver::cases_of(const std::string &workload, enum rule_kind rule) const {
    std::vector<Case> cases;
    int count;
    const struct registered *all = registry(&count);
    for (int i = 0; i < count; i++)
        for (enum cache_mode mode : {MODE_COLD, MODE_WARM}) {
            std::string name = workload + "/" + rule_info(rule).name + "/" + all[i].kernel->name +
                               "/" + mode_name(mode);
            if (options.modes & (1u << mode) && matches(name))
                cases.push_back({&all[i], mode, name});
        }
    return cases;
}

void Driver::refuse(const std::string &workload, const char *kernel, const std::string &why) {
    progress.clear();
    fprintf(stderr, "not run: %s, %s: %s\n", workload.c_str(), kernel, why.c_str());
    context["emb_not_run_" + std::to_string(refused++)] = workload + " | " + kernel + " | " + why;
}

void Driver::sample(benchmark::State &state, struct measure *m, const Case &c,
                    const std::string &rule, const struct scratch_use &use, int *round) {
    struct sample s = {};
    for (auto unused : state) {
        (void)unused;
        measure_sample(m, c.entry->kernel, c.mode, (*round)++, &s);
        state.SetIterationTime(s.seconds);
    }
    bool dense =
        (c.entry->kernel->traits & DENSE_STEP) && !rule_info(m->rules[0].kind).idle_is_identity;
    char print[32];
    snprintf(print, sizeof print, "%016" PRIx64, m->stats[s.batch].fingerprint);
    state.SetLabel("workload=" + std::string(m->workload->name) + " rule=" + rule +
                   " kernel=" + c.entry->kernel->name + " mode=" + mode_name(c.mode) +
                   " operation=" + (dense ? "dense" : "lazy") +
                   " check=" + (m->exact[s.batch] ? "exact" : "bound") + " fingerprint=" + print +
                   " placement=" + placement(s.ceiling.pingpong_ns));
    workload_counters(state.counters, m, s.batch, alpha);
    sample_counters(state.counters, m, s, use);
    disturbed += s.disturbed;
    progress.done++;
    progress.say(c.name);
}

void Driver::measure_cases(struct measure *m, std::vector<Case> cases, const std::string &rule) {
    const std::string workload = m->workload->name;
    std::map<const struct kernel *, struct scratch_use> use;
    std::set<const struct kernel *> out;
    struct error err;
    struct check_result result;

    auto reject = [&](const struct kernel *k) {
        out.insert(k);
        wrong++;
        refuse(workload, k->name, std::string("WRONG RESULT: ") + result.message);
    };
    for (const Case &c : cases) {
        const struct kernel *k = c.entry->kernel;
        if (use.count(k) || out.count(k)) continue;
        progress.say(workload + ": checking " + k->name);
        int status = measure_admit(m, k, &use[k], &result, &err);
        if (status > 0) reject(k);
        if (status >= 0) continue;
        out.insert(k);
        refuse(workload, k->name, err.text);
    }

    benchmark::ClearRegisteredBenchmarks();
    std::vector<int> rounds(cases.size(), 0);
    int registered = 0;
    for (size_t i = 0; i < cases.size(); i++) {
        const Case &c = cases[i];
        if (out.count(c.entry->kernel)) {
            progress.total -= options.reps;
            continue;
        }
        registered++;
        benchmark::RegisterBenchmark(
            c.name.c_str(),
            [this, m, &c, &rule, &use, &rounds, i](benchmark::State &state) {
                sample(state, m, c, rule, use[c.entry->kernel], &rounds[i]);
            })
            ->UseManualTime()
            ->Iterations(1)
            ->Repetitions(options.reps)
            ->Unit(benchmark::kMillisecond);
    }
    if (registered == 0) return;
    Collector collector;
    benchmark::RunSpecifiedBenchmarks(&collector);

    for (const auto &u : use) {
        if (out.count(u.first)) continue;
        progress.say(workload + ": checking again " + u.first->name);
        if (!measure_check(m, u.first, m->workload->ring - 1, &result)) reject(u.first);
    }
    for (const Run &run : collector.runs) {
        bool keep = true;
        for (const struct kernel *k : out)
            keep &=
                run.report_label.find(std::string(" kernel=") + k->name + " ") == std::string::npos;
        if (keep) accepted.push_back(run);
    }
}

bool Driver::measure_point(const struct plan *plan, int i, enum rule_kind rule) {
    char name[SPEC_NAME_MAX];
    int cases = (int)cases_of(plan_name(plan, i, name), rule).size();
    if (cases == 0) return false;
    progress.say(std::string(name) + ": generating");
    struct workload w;
    struct error err;
    if (plan_make(plan, i, rule, &w, &err)) {
        refuse(name, "all kernels", err.text);
        progress.total -= cases * options.reps;
        return false;
    }
    alpha = plan_alpha(plan, i);
    bool measured = measure_workload(&w, rule);
    workload_free(&w);
    return measured;
}

bool Driver::measure_workload(struct workload *w, enum rule_kind rule) {
    std::vector<Case> cases = cases_of(w->name, rule);
    context["emb_workload_" + std::string(w->name)] = w->text;
    struct measure m;
    struct error err;
    if (measure_open(&m, w, GRAD_EXACT, options.threads, &err)) {
        refuse(w->name, "all kernels", err.text);
        progress.total -= (int)cases.size() * options.reps;
        return false;
    }
    measure_cases(&m, cases, rule_info(rule).name);
    measure_close(&m);
    return true;
}

/* Before anything is measured. */
bool Driver::can_write() const {
    std::error_code ignored;
    std::filesystem::create_directories(options.out, ignored);
    std::string part = path() + ".part";
    FILE *f = fopen(part.c_str(), "a");
    if (f && fclose(f) == 0 && unlink(part.c_str()) == 0) return true;
    fprintf(stderr, "bench: %s: %s; choose another folder with OUT=\n", part.c_str(),
            strerror(errno));
    return false;
}

bool Driver::write_json() const {
    std::string part = path() + ".part";
    auto add = [](void *, const char *key, const char *value) {
        benchmark::AddCustomContext(key, value);
    };
    environment_describe(options.threads, add, nullptr);
    options_describe(&options, add, nullptr);
    int count;
    const struct registered *all = registry(&count);
    for (int i = 0; i < count; i++) {
        const struct kernel *k = all[i].kernel;
        benchmark::AddCustomContext(
            std::string("emb_kernel_") + k->name,
            std::string(all[i].family) + " | " + (k->place == ON_HOST ? "host" : "device") + " | " +
                traits_text(k->traits) + " | " + k->label + " | " + k->idea);
    }
    for (const auto &c : context) benchmark::AddCustomContext(c.first, c.second);

    std::ofstream file(part);
    benchmark::JSONReporter json;
    json.SetOutputStream(&file);
    json.SetErrorStream(&file);
    json.ReportContext(benchmark::BenchmarkReporter::Context());
    json.ReportRuns(accepted);
    json.Finalize();
    file.close();
    if (!file || rename(part.c_str(), path().c_str())) {
        fprintf(stderr, "bench: cannot write %s: %s\n", path().c_str(), strerror(errno));
        unlink(part.c_str());
        return false;
    }
    fprintf(stderr, "wrote %s\n", path().c_str());
    return true;
}

int Driver::run() {
    struct plan plan;
    struct error err;
    if (!can_write()) return EXIT_USAGE;
    if (plan_read(&options, &plan, &err)) {
        fprintf(stderr, "bench: %s\n", err.text);
        return EXIT_USAGE;
    }
    char name[SPEC_NAME_MAX];
    for (int i = 0; i < plan.count; i++)
        for (int r = 0; r < RULE_COUNT; r++)
            if (plan_rules(&plan, i) & (1u << r))
                progress.total +=
                    (int)cases_of(plan_name(&plan, i, name), (enum rule_kind)r).size() *
                    options.reps;
    if (progress.total == 0)
        fprintf(stderr,
                "bench: FILTER='%s' matches none of WORKLOAD/RULE/KERNEL/MODE, such as "
                "%s/rowwise_adagrad/cpu_fused/cold\n",
                options.filter, plan_name(&plan, 0, name));
    int measured = 0;
    for (int i = 0; i < plan.count && progress.total; i++)
        for (int r = 0; r < RULE_COUNT; r++)
            if (plan_rules(&plan, i) & (1u << r))
                measured += measure_point(&plan, i, (enum rule_kind)r);
    plan_free(&plan);
    progress.clear();
    context["emb_disturbed_samples"] = std::to_string(disturbed);
    bool written = measured && write_json();
    if (wrong) return EXIT_WRONG_RESULT;
    return written ? EXIT_FINE : EXIT_USAGE;
}

/* OpenMP reads its variables when it is loaded, so threads are bound by starting again. */
void bind_threads(char **argv) {
    if (getenv("OMP_PROC_BIND")) return;
    setenv("OMP_PROC_BIND", "true", 1);
    setenv("OMP_PLACES", "cores", 0);
    execv("/proc/self/exe", argv);
}

} // namespace

int main(int argc, char **argv) {
    bind_threads(argv);
    struct options options;
    struct error err;
    int status = options_parse(argc, argv, &options, &err);
    if (status < 0) {
        fprintf(stderr, "bench: %s\n", err.text);
        return EXIT_USAGE;
    }
    if (status > 0) return EXIT_FINE; /* --help */
    char interleave[] = "--benchmark_enable_random_interleaving=true";
    char *given[] = {argv[0], interleave, nullptr};
    int count = 2;
    benchmark::Initialize(&count, given);
    return Driver(options).run();
}
