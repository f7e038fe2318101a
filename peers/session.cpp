/* SPDX-License-Identifier: MIT
 *
 * Measures the suite's kernels one sample at a time, as build/bench does. peers/peers.py drives it
 * line by line, so that other systems can take turns. It takes the options of bench, and writes one
 * JSON object per line:
 *
 *     {"context": {...}}                                  first: the keys of the record
 *     {"workload": NAME, "rule": R, "cases": [...], ...}  for each workload and rule, after a check
 *                                                         of the kernels; then it obeys
 *         batches PREFIX     write the ring as files, PREFIX0.batch, PREFIX1.batch ... as gen does
 *         weights PREFIX     write the initial weights
 *         sample I ROUND     measure case number I: a row of the record
 *         next               check the kernels again; "refused" lists the kernels that failed
 *     {"end": true}
 *
 * If something fails, the object has "error".
 */
#include <climits>
#include <cstring>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "harness/record/gbench_cases.h"
#include "harness/record/gbench_record.h"
#include "harness/record/gbench_write.h"

extern "C" {
#include "cli/description.h"
#include "cli/json.h"
#include "cli/outputs.h"
#include "harness/record/machine_lock.h"
#include "harness/measure/measure.h"
#include "harness/record/options.h"
#include "harness/registry.h"
}

namespace {

void say_error(const std::string &why) {
    printf("{");
    json_text("error", why.c_str(), "}\n");
    fflush(stdout);
}

void say_context(const struct options &o) {
    printf("{\"context\": {");
    const char *comma = "";
    for (const auto &x : describe(o, nullptr)) {
        printf("%s", comma);
        json_text(x.first.c_str(), x.second.c_str(), "");
        comma = ", ";
    }
    printf("}}\n");
    fflush(stdout);
}

/* One workload with one rule. */
class Session {
  public:
    Session(const struct options &o, struct workload *of, enum rule_kind r, double exponent)
        : options(o), w(of), rule(r), alpha(exponent) {}
    ~Session() {
        measure_close(&m);
    }
    bool open(std::vector<Case> wanted, struct error *err);
    bool obey(); /* false: the input has ended */

  private:
    const struct options &options;
    struct workload *w;
    enum rule_kind rule;
    double alpha;
    struct measure m = {};
    std::vector<Case> cases;
    std::map<const struct kernel *, struct scratch_use> use;
    std::map<std::string, std::string> refused;

    void say_open();
    void judge(const struct kernel *k, int status, const struct check_result &result,
               const struct error &err);
    void check_again();
    void sample(const Case &c, int round);
    int write_batches(const std::string &prefix, struct error *err);
    int write_batch(struct outputs *o, const std::string &prefix, int b, struct error *err);
    int write_weights(const std::string &prefix, struct error *err);
};

void Session::judge(const struct kernel *k, int status, const struct check_result &result,
                    const struct error &err) {
    if (status == 0) return;
    refused[k->name] = status > 0 ? std::string("WRONG RESULT: ") + result.message : err.text;
}

bool Session::open(std::vector<Case> wanted, struct error *err) {
    if (measure_open(&m, w, GRAD_EXACT, options.threads, err) ||
        measure_open_place(&m, ON_HOST, err))
        return false;
    std::set<const struct kernel *> seen;
    for (const Case &c : wanted) {
        const struct kernel *k = c.entry->kernel;
        struct check_result result = {};
        struct error why = {};
        if (seen.insert(k).second)
            judge(k, measure_admit(&m, k, &use[k], &result, &why), result, why);
        if (!refused.count(k->name)) cases.push_back(c);
    }
    return true;
}

void Session::check_again() {
    for (const auto &u : use) {
        struct check_result result = {};
        struct error why = {};
        if (refused.count(u.first->name)) continue;
        judge(u.first, measure_check(&m, u.first, w->ring - 1, &result, &why), result, why);
    }
}

void Session::say_open() {
    printf("{");
    json_text("workload", w->name, ", ");
    json_text("rule", rule_info(rule).name, ", ");
    json_text("text", w->text, ", ");
    printf("\"ring\": %d, \"seed\": %llu, \"tables\": [", w->ring, (unsigned long long)w->seed);
    for (int32_t t = 0; t < w->num_tables; t++)
        printf("%s[%lld, %d]", t ? ", " : "", (long long)w->tables[t].rows, w->tables[t].dim);
    printf("], \"cases\": [");
    for (size_t i = 0; i < cases.size(); i++) {
        printf(i ? ", {" : "{");
        json_text("kernel", cases[i].entry->kernel->name, ", ");
        json_text("mode", mode_name(cases[i].mode), "}");
    }
    printf("]}\n");
    fflush(stdout);
}

void Session::sample(const Case &c, int round) {
    const struct kernel *k = c.entry->kernel;
    struct sample s = {};
    struct error err;
    if (measure_sample(&m, k, c.mode, round, &s, &err)) return say_error(err.text);
    benchmark::UserCounters counters;
    workload_counters(counters, &m, s.batch, alpha);
    sample_counters(counters, &m, s, use[k]);
    bool dense = (k->traits & DENSE_STEP) && !rule_idle_is_identity(rule);
    bool exact = m.exact[s.batch] && !(k->traits & STEP_PER_LOOKUP);
    printf("{");
    json_text("name", c.name.c_str(), ", ");
    printf("\"run_type\": \"iteration\", \"repetition_index\": %d, \"iterations\": 1, "
           "\"real_time\": %.17g, \"cpu_time\": %.17g, \"time_unit\": \"ms\", \"label\": "
           "\"workload=%s rule=%s kernel=%s mode=%s place=host operation=%s check=%s "
           "fingerprint=%016llx placement=%s\"",
           round, 1e3 * s.times.seconds, 1e3 * s.times.seconds, w->name, rule_info(rule).name,
           k->name, mode_name(c.mode), dense ? "dense" : "lazy", exact ? "exact" : "bound",
           (unsigned long long)m.stats[s.batch].fingerprint, placement(s.ceiling.pingpong_ns));
    for (const auto &x : counters)
        if (std::isfinite(x.second.value))
            printf(", \"%s\": %.17g", x.first.c_str(), x.second.value);
    printf("}\n");
    fflush(stdout);
}

int Session::write_batch(struct outputs *o, const std::string &prefix, int b, struct error *err) {
    const struct batch *in = &w->batches[b];
    int64_t offsets = in->num_features * in->bags + 1;
    auto npy = [&](const char *what, enum npy_type type, int64_t count, const void *data) {
        std::string path = prefix + "." + what + ".npy";
        return outputs_npy(o, path.c_str(), type, 1, &count, data, err);
    };
    if (npy("ids", in->id_type == ID_INT32 ? NPY_INT32 : NPY_INT64, in->lookups, in->ids) ||
        npy("offsets", NPY_INT64, offsets, in->offsets) ||
        npy("grad", NPY_FLOAT32, in->grad_floats, in->grad) ||
        (in->lookup_weights && npy("lookup_weights", NPY_FLOAT32, in->lookups, in->lookup_weights)))
        return -1;
    const char *part = outputs_add(o, (prefix + ".batch").c_str(), err);
    FILE *file = part ? fopen(part, "w") : nullptr;
    if (!part) return -1;
    if (file) description_write(file, w, b);
    bool bad = !file || ferror(file);
    if ((file && fclose(file)) || bad) return fail(err, "%s: %s", part, strerror(errno));
    return 0;
}

int Session::write_batches(const std::string &prefix, struct error *err) {
    struct outputs o = {};
    int status = 0;
    for (int b = 0; b < w->ring && status == 0; b++)
        status = write_batch(&o, prefix + std::to_string(b), b, err);
    if (status == 0) status = outputs_commit(&o, err);
    outputs_free(&o);
    return status;
}

int Session::write_weights(const std::string &prefix, struct error *err) {
    struct outputs o = {};
    struct place *host = m.at[ON_HOST].place;
    int status = 0;
    for (int32_t t = 0; t < w->num_tables && status == 0; t++) {
        std::string path = prefix + ".weight." + std::to_string(t) + ".npy";
        int64_t shape[2] = {w->tables[t].rows, w->tables[t].dim};
        status = outputs_npy(&o, path.c_str(), NPY_FLOAT32, 2, shape,
                             host->ops->tables(host)[t].weight.data, err);
    }
    if (status == 0) status = outputs_commit(&o, err);
    outputs_free(&o);
    return status;
}

bool Session::obey() {
    say_open();
    std::string line;
    for (;;) {
        if (!std::getline(std::cin, line)) return false;
        if (line == "next") break;
        struct error err;
        char prefix[PATH_MAX];
        unsigned i;
        int round, status = 0;
        if (sscanf(line.c_str(), "sample %u %d", &i, &round) == 2 && i < cases.size()) {
            sample(cases[i], round);
            continue;
        }
        if (sscanf(line.c_str(), "batches %4095[^\n]", prefix) == 1)
            status = write_batches(prefix, &err);
        else if (sscanf(line.c_str(), "weights %4095[^\n]", prefix) == 1)
            status = write_weights(prefix, &err);
        else
            status = fail(&err, "unknown command '%.60s'", line.c_str());
        if (status)
            say_error(err.text);
        else
            printf("{}\n"), fflush(stdout);
    }
    check_again();
    printf("{\"refused\": {");
    const char *comma = "";
    for (const auto &x : refused) {
        printf("%s", comma);
        json_text(x.first.c_str(), x.second.c_str(), "");
        comma = ", ";
    }
    printf("}}\n");
    fflush(stdout);
    return true;
}

bool run_point(const struct options &o, const struct plan *plan, int i, enum rule_kind rule) {
    char name[SPEC_NAME_MAX];
    std::vector<Case> cases = cases_of(o, 1u << ON_HOST, plan_name(plan, i, name), rule);
    if (cases.empty()) return true;
    struct workload w;
    struct error err;
    if (plan_make(plan, i, rule, &w, &err)) {
        say_error(std::string(name) + ": " + err.text);
        return true;
    }
    bool led = true;
    for (int32_t t = 0; t < w.num_tables; t++)
        if (w.tables[t].weight_type != FP32 || w.tables[t].row_state != ROW_STATE_APART) {
            say_error(
                std::string(name) +
                ": peers store rows as fp32, states apart; leave weight_type and row_state out");
            workload_free(&w);
            return true;
        }
    {
        Session session(o, &w, rule, plan_alpha(plan, i));
        if (session.open(cases, &err))
            led = session.obey();
        else
            say_error(std::string(name) + ": " + err.text);
    }
    workload_free(&w);
    return led;
}

} // namespace

int main(int argc, char **argv) {
    static struct options options; /* keeps the filter's pattern as long as the program runs */
    struct error err;
    struct plan plan;
    int status = options_parse(argc, argv, &options, &err);
    if (status > 0) return EXIT_FINE; /* --help */
    volatile sig_atomic_t never = 0;
    if (status == 0) status = plan_read(&options, &plan, &err);
    if (status == 0) status = machine_lock(options.queue, &never, &err);
    if (status < 0) {
        say_error(err.text);
        return EXIT_USAGE;
    }
    say_context(options);
    bool led = true;
    for (int i = 0; i < plan.count; i++)
        for (int r = 0; r < RULE_COUNT; r++)
            if (led && plan_rules(&plan, i) & (1u << r))
                led = run_point(options, &plan, i, (enum rule_kind)r);
    plan_free(&plan);
    if (led) printf("{\"end\": true}\n");
    return EXIT_FINE;
}
