/* SPDX-License-Identifier: MIT
 *
 * Measures the suite's kernels one sample at a time, as build/bench does. extras/peers/peers.py drives it
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
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "harness/record/gbench_cases.h"
#include "harness/record/gbench_record.h"
#include "harness/record/gbench_write.h"

extern "C" {
#include "cli/description.h"
#include "cli/json.h"
#include "cli/outputs.h"
#include "harness/measure/measure.h"
#include "harness/record/machine_lock.h"
#include "harness/record/options.h"
#include "harness/registry.h"
#include "harness/workload/regular_file.h"
}

namespace {

void say_error(const std::string &why) {
    printf("{");
    json_text("error", why.c_str(), "}\n");
}

void say_texts(const char *key, const std::map<std::string, std::string> &texts) {
    printf("{\"%s\": {", key);
    const char *comma = "";
    for (const auto &x : texts) {
        printf("%s", comma);
        json_text(x.first.c_str(), x.second.c_str(), "");
        comma = ", ";
    }
    printf("}}\n");
}

/* One workload with one rule. */
class Session {
  public:
    Session(const struct options &o, enum rule_kind r, double exponent)
        : options(o), rule(r), alpha(exponent) {}
    ~Session() {
        measure_close(&m);
        workload_free(&w);
    }
    bool open(const struct worklist *list, int i, const std::vector<Case> &wanted,
              struct error *err);
    bool obey(); /* false: the input has ended */

  private:
    const struct options &options;
    enum rule_kind rule;
    double alpha;
    struct workload w = {};
    struct measure m = {};
    std::vector<Case> cases;
    std::map<Candidate, struct scratch_use> use;
    std::map<std::string, std::string> refused;

    void say_open();
    void check(const Candidate &candidate, bool first);
    void sample(const Case &c, int round);
    int write_batch(struct outputs *o, const std::string &prefix, int b, struct error *err);
    int write_batches(struct outputs *o, const std::string &prefix, struct error *err);
    int write_weights(struct outputs *o, const std::string &prefix, struct error *err);
};

/* Before the first sample a kernel is also admitted: it may lack memory, or not accept the batches. */
void Session::check(const Candidate &candidate, bool first) {
    const struct kernel *k = candidate.kernel;
    struct check_result result = {};
    struct error err = {};
    int status = first ? measure_admit(&m, k, candidate.mode(), &use[candidate], &result, &err)
                       : measure_check(&m, k, candidate.mode(), w.ring - 1, &result, &err);
    if (status)
        refused[k->name] = status > 0 ? std::string("WRONG RESULT: ") + result.message : err.text;
}

bool Session::open(const struct worklist *list, int i, const std::vector<Case> &wanted,
                   struct error *err) {
    if (worklist_make(list, i, rule, &w, err)) return false;
    for (int32_t t = 0; t < w.num_tables; t++)
        if (table_is_narrow(&w.tables[t]) || w.grad_type != FP32 || w.varied ||
            w.tables[t].row_state != ROW_STATE_APART) {
            fail(err, "peers take fp32 and presets alone and store states apart; leave out "
                      "weight_type, momentum_type, grad_type, hypers and row_state");
            return false;
        }
    if (measure_open(&m, &w, OP_STEP, GRAD_EXACT, options.threads, err) ||
        measure_open_place(&m, ON_HOST, err))
        return false;
    for (const Case &c : wanted) {
        const struct kernel *k = c.entry->kernel;
        if (!use.count(c.candidate())) check(c.candidate(), true);
        if (!refused.count(k->name)) cases.push_back(c);
    }
    return true;
}

void Session::say_open() {
    printf("{");
    json_text("workload", w.name, ", ");
    json_text("rule", rule_info(rule).name, ", ");
    json_text("text", w.text, ", ");
    printf("\"ring\": %d, \"seed\": %llu, \"tables\": [", w.ring, (unsigned long long)w.seed);
    for (int32_t t = 0; t < w.num_tables; t++)
        printf("%s[%lld, %d]", t ? ", " : "", (long long)w.tables[t].rows, w.tables[t].dim);
    printf("], \"cases\": [");
    for (size_t i = 0; i < cases.size(); i++) {
        printf(i ? ", {" : "{");
        json_text("kernel", cases[i].entry->kernel->name, ", ");
        json_text("mode", mode_name(cases[i].mode), "}");
    }
    printf("]}\n");
}

void Session::sample(const Case &c, int round) {
    const struct kernel *k = c.entry->kernel;
    struct sample s = {};
    struct error err;
    if (measure_sample(&m, k, c.mode, round, nullptr, &s, &err)) return say_error(err.text);
    benchmark::UserCounters counters;
    workload_counters(counters, &m, s.batch, alpha);
    sample_counters(counters, &m, s, use[c.candidate()]);
    bool dense = (k->traits & DENSE_STEP) && !rule_keeps_idle(&m.rules[0]);
    bool exact = m.exact[s.batch] && !(k->traits & STEP_PER_LOOKUP);
    printf("{");
    json_text("name", c.name.c_str(), ", ");
    printf("\"run_type\": \"iteration\", \"repetition_index\": %d, \"iterations\": 1, "
           "\"real_time\": %.17g, \"cpu_time\": %.17g, \"time_unit\": \"ms\", \"label\": "
           "\"workload=%s rule=%s kernel=%s mode=%s place=host operation=%s check=%s "
           "fingerprint=%016llx placement=%s\"",
           round, 1e3 * s.times.seconds, 1e3 * s.times.seconds, w.name, rule_info(rule).name,
           k->name, mode_name(c.mode), dense ? "dense" : "lazy", exact ? "exact" : "bound",
           (unsigned long long)m.stats[s.batch].fingerprint, placement(s.ceiling.pingpong_ns));
    for (const auto &x : counters)
        if (std::isfinite(x.second.value))
            printf(", \"%s\": %.17g", x.first.c_str(), x.second.value);
    printf("}\n");
}

int Session::write_batch(struct outputs *o, const std::string &prefix, int b, struct error *err) {
    const struct batch *in = &w.batches[b];
    int64_t offsets = in->flat_bags + 1;
    auto npy = [&](const char *what, enum npy_type type, int64_t count, const void *data) {
        std::string path = prefix + "." + what + ".npy";
        return outputs_npy(o, path.c_str(), type, 1, &count, data, err);
    };
    if (npy("ids", in->id_type == ID_INT32 ? NPY_INT32 : NPY_INT64, in->lookups, in->ids) ||
        npy("offsets", NPY_INT64, offsets, in->offsets) ||
        npy("grad", NPY_FLOAT32, in->grad_elements, in->grad) ||
        (in->lookup_weights && npy("lookup_weights", NPY_FLOAT32, in->lookups, in->lookup_weights)))
        return -1;
    std::string path = prefix + ".batch";
    FILE *file = outputs_text(o, path.c_str(), err);
    if (!file) return -1;
    description_write(file, &w, b);
    return file_end(file, path.c_str(), err);
}

int Session::write_batches(struct outputs *o, const std::string &prefix, struct error *err) {
    int status = 0;
    for (int b = 0; b < w.ring && status == 0; b++)
        status = write_batch(o, prefix + std::to_string(b), b, err);
    return status;
}

int Session::write_weights(struct outputs *o, const std::string &prefix, struct error *err) {
    struct place *host = m.at[ON_HOST].place;
    int status = 0;
    for (int32_t t = 0; t < w.num_tables && status == 0; t++) {
        std::string path = prefix + ".weight." + std::to_string(t) + ".npy";
        int64_t shape[2] = {w.tables[t].rows, w.tables[t].dim};
        status = outputs_npy(o, path.c_str(), NPY_FLOAT32, 2, shape,
                             host->ops->tables(host)[t].weight.data, err);
    }
    return status;
}

bool Session::obey() {
    say_open();
    std::string line;
    while (std::getline(std::cin, line) && line != "next") {
        struct error err;
        char prefix[PATH_MAX];
        unsigned i;
        int round, status;
        if (sscanf(line.c_str(), "sample %u %d", &i, &round) == 2 && i < cases.size()) {
            sample(cases[i], round);
            continue;
        }
        struct outputs files = {};
        if (sscanf(line.c_str(), "batches %4095[^\n]", prefix) == 1)
            status = write_batches(&files, prefix, &err);
        else if (sscanf(line.c_str(), "weights %4095[^\n]", prefix) == 1)
            status = write_weights(&files, prefix, &err);
        else
            status = fail(&err, "unknown command '%.60s'", line.c_str());
        if (outputs_end(&files, status, &err))
            say_error(err.text);
        else
            printf("{}\n");
    }
    if (!std::cin) return false;
    for (const auto &u : use)
        if (!refused.count(u.first.kernel->name)) check(u.first, false);
    say_texts("refused", refused);
    return true;
}

bool run_point(const struct options &o, const struct worklist *list, int i, enum rule_kind rule) {
    char name[SPEC_NAME_MAX];
    std::vector<Case> cases =
        cases_of(o, 1u << ON_HOST, worklist_name(list, i, name), {OP_STEP, rule});
    if (cases.empty()) return true;
    struct error err;
    Session session(o, rule, worklist_alpha(list, i));
    if (session.open(list, i, cases, &err)) return session.obey();
    say_error(std::string(name) + ": " + err.text);
    return true;
}

} // namespace

int main(int argc, char **argv) {
    setvbuf(stdout, nullptr, _IOLBF, BUFSIZ); /* whoever drives it waits for each line */
    static struct options options; /* keeps the filter's pattern as long as the program runs */
    struct error err;
    struct worklist list;
    int status = options_parse(argc, argv, &options, &err);
    if (status > 0) return EXIT_FINE; /* --help */
    volatile sig_atomic_t never = 0;
    if (status == 0) status = worklist_read(&options, &list, &err);
    if (status == 0) status = machine_lock(options.queue, &never, &err);
    if (status < 0) {
        say_error(err.text);
        return EXIT_USAGE;
    }
    say_texts("context", describe(options, nullptr));
    bool led = true;
    for (int i = 0; i < list.count; i++) {
        const struct subject_list subjects = worklist_subjects(&list, i);
        for (int k = 0; k < subjects.count; k++)
            if (led && subjects.at[k].operation == OP_STEP)
                led = run_point(options, &list, i, subjects.at[k].rule);
    }
    worklist_free(&list);
    if (led) printf("{\"end\": true}\n");
    return EXIT_FINE;
}
