/* SPDX-License-Identifier: MIT
 *
 * The Google Benchmark driver walks workloads x rules x kernels x cache modes, and leaves measuring to measure.c. One
 * workload is in memory at a time; its benchmarks are registered, run with their repetitions in random order, and taken
 * down again. A sample is one repetition. Each repetition runs one iteration, whose time the driver sets itself. The
 * driver visits all workloads several times, and a row has samples of every visit: they differ more than those of one.
 * After each workload the driver writes the JSON, with a temporary name until it is complete. A signal ends the run early;
 * after a crash the driver goes on without the kernel.
 *
 * Workarounds for libbenchmark 1.7.1 (Debian 12): counters report memory, because the library's MemoryManager reads freed
 * memory when a benchmark has repetitions; the driver omits counters that are not finite (the library writes NaN, which
 * is not JSON) and sets its own exit status (the library always returns 0).
 */
#include <benchmark/benchmark.h>

#include <unistd.h>

#include <algorithm>
#include <cinttypes>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/record/gbench_journal.h"
#include "harness/record/gbench_turns.h"

extern "C" {
#include "harness/record/bench.h"
#include "harness/record/machine_lock.h"
#include "harness/measure/measure.h"
#include "harness/record/worklist.h"
#include "harness/registry.h"
}

namespace {

class Driver : Journal {
  public:
    Driver(const struct options &o, const struct bench_places *p) : Journal(o), own_places(p) {}

    int run() {
        struct worklist list;
        struct error err;
        if (!output.can_write()) return EXIT_USAGE;
        if (worklist_read(&options, &list, &err)) {
            fprintf(stderr, "bench: %s\n", err.text);
            return EXIT_USAGE;
        }
        char name[SPEC_NAME_MAX];
        bool again = resume(list), possible = use_device(list);
        if (!again) rows = rows_of(options, places, list);
        if (rows.empty() && possible)
            fprintf(stderr,
                    "bench: FILTER='%s' matches none of WORKLOAD/RULE/KERNEL/MODE, such as "
                    "%s/rowwise_adagrad/cpu_fused/cold%s\n",
                    options.filter, worklist_name(&list, 0, name),
                    options.places == (1u << ON_DEVICE) ? ", among the kernels of the device" : "");
        if (again || (!rows.empty() && begin())) measure_all(list);
        drop_tables();
        worklist_free(&list);
        progress.clear();
        return finish();
    }

  private:
    const struct bench_places *own_places; /* NULL: the usual ones, in one process */
    struct device_facts facts = {};        /* of the device if with_device */
    bool with_device = false;
    double alpha = NAN;          /* the exponent of the measured workload */
    struct ceiling once[2] = {}; /* by enum backend: a smoke run measures ceilings once */
    struct {
        struct table_set set = {};
        int of = -1; /* the workload, -1: none */
        enum rule_kind rule;
    } kept; /* host tables, kept in case the next workload has the same ones */

    /* Reports what could not run: a kernel, or all kernels of a place. If the device is lost, the
     * driver runs no more device kernels. It cannot check the device kernels of this workload again, so
     * their samples do not count. */
    void failed(const std::string &workload, const char *what, enum backend place,
                const struct error &err) {
        if (place == ON_HOST || !device_lost()) return refuse(workload, what, err.text);
        if (!(places & (1u << ON_DEVICE))) return;
        places &= ~(1u << ON_DEVICE);
        wrong++;
        refuse(workload, what, std::string("DEVICE ERROR: ") + err.text);
        refuse("*", "device kernels",
               "not run from here on, and samples on " + workload +
                   " dropped: the device is lost to an earlier error");
    }

    Row &row(const Case &c) {
        return rows[{point, c.name}];
    }

    /* Drops a kernel on this workload with this rule, and all kernels of a lost place. */
    void drop(const std::vector<Case> &cases, const Candidate &candidate) {
        for (const Case &c : cases)
            if (c.candidate() == candidate || !(places & (1u << c.entry->kernel->place)))
                row(c).drop();
    }

    /* The number of the first sample of a visit. */
    int first(int of_visit) const {
        return of_visit * options.reps / options.visits;
    }
    int share() const {
        return first(visit + 1) - first(visit);
    }

    /* True if a slow kernel has had its share in this visit. */
    bool enough(const Case &c, const std::vector<Case> &cases) {
        double least = INFINITY;
        for (const Case &o : cases)
            if (o.mode == c.mode && o.entry->kernel->place == c.entry->kernel->place)
                least = std::min(least, row(o).all.least);
        return options.fewer && 2 * (int)row(c).times.size() >= share() &&
               row(c).all.least > SLOW_TIMES * least;
    }

    void sample(benchmark::State &state, struct measure *m, const Case &c,
                const std::vector<Case> &cases, const std::string &rule, Pairs *pairs) {
        const struct kernel *k = c.entry->kernel;
        Row &own = row(c);
        struct sample s = {};
        struct error err;
        const int number = first(visit) + own.begun++;
        const bool slow = enough(c, cases);
        bool skip = stop_signal || slow || own.all.dropped;
        if (slow) progress.total--;
        for (auto unused : state) {
            (void)unused;
            Blame blame(k);
            if (!skip && pairs->measure(m, c, number, &s, &err)) {
                failed(m->workload->name, k->name, k->place, err);
                drop(cases, c.candidate());
                skip = true;
            }
            skip |= stop_signal != 0;
            if (skip) {
                state.SkipWithError("no sample");
                break;
            }
            state.SetIterationTime(s.times.seconds);
        }
        if (skip) return;
        own.times.push_back(s.times.seconds);
        own.all.least = std::min(own.all.least, s.times.seconds);
        progress.done++;
        progress.say(c.name);
        bool dense = (k->traits & DENSE_STEP) && !rule_keeps_idle(&m->rules[0]);
        bool exact = operation_has_order(k->operation) ||
                     (m->exact[s.batch] && !(k->traits & STEP_PER_LOOKUP));
        char print[32];
        snprintf(print, sizeof print, "%016" PRIx64, m->stats[s.batch].fingerprint);
        state.SetLabel(
            "workload=" + std::string(m->workload->name) + " rule=" + rule + " kernel=" + k->name +
            " mode=" + mode_name(c.mode) + " place=" + place_name(k->place) + " operation=" +
            (k->operation != OP_STEP ? operation_name(k->operation)
             : dense                 ? "dense"
                                     : "lazy") +
            " check=" + (exact ? "exact" : "bound") + " fingerprint=" + print +
            " placement=" + placement(s.ceiling.pingpong_ns) +
            (k->variant ? std::string(" variant=") + k->variant(&m->workload->batches[s.batch])
                        : ""));
        workload_counters(state.counters, m, s.batch, alpha);
        sample_counters(state.counters, m, s, own.all.use);
        state.counters["visit"] = visit;
    }

    /* Kernels are checked before the first sample and after the last one. */
    void measure_cases(struct measure *m, const std::vector<Case> &cases, const std::string &rule) {
        const std::string workload = m->workload->name;
        std::map<Candidate, const Row *> admitted;
        struct error err;
        struct check_result result;

        /* Takes the status of measure_admit() or measure_check(): drops a kernel that failed, and reports why. */
        auto judge = [&](const Candidate &candidate, int status) {
            const struct kernel *k = candidate.kernel;
            if (status == 0) return;
            wrong += status > 0;
            if (status > 0)
                refuse(workload, k->name, std::string("WRONG RESULT: ") + result.message);
            else
                failed(workload, k->name, k->place, err);
            drop(cases, candidate);
        };
        for (const Case &c : cases) {
            const Candidate candidate = c.candidate();
            if (row(c).all.dropped) continue;
            if (stop_signal) return;
            const auto [at, added] = admitted.insert({candidate, &row(c)});
            if (!added) {
                row(c).all.use = at->second->all.use;
                continue;
            }
            const struct kernel *k = candidate.kernel;
            progress.say(workload + (visit ? ": opening " : ": checking ") + k->name);
            give_signal_stacks(options.threads);
            Blame blame(k);
            judge(candidate,
                  visit ? measure_admit_again(m, k, candidate.mode(), &err)
                        : measure_admit(m, k, candidate.mode(), &row(c).all.use, &result, &err));
        }

        Pairs pairs;
        benchmark::ClearRegisteredBenchmarks();
        bool any = false;
        for (const Case &c : cases) {
            auto twin = [&](const Case &o) {
                return o.entry == c.entry && o.mode + c.mode == MODE_COLD + MODE_WARM;
            };
            /* Ranks keep the times of one sample only. */
            if (c.entry->kernel->place == ON_HOST && !own_places &&
                std::any_of(cases.begin(), cases.end(), twin))
                pairs.of.insert(c.entry->kernel);
            if (row(c).all.dropped) continue;
            any = true;
            benchmark::RegisterBenchmark(
                c.name.c_str(),
                [this, m, &c, &cases, &rule, &pairs](benchmark::State &state) {
                    sample(state, m, c, cases, rule, &pairs);
                })
                ->UseManualTime()
                ->Iterations(1)
                ->Repetitions(share())
                ->Unit(benchmark::kMillisecond);
        }
        if (!any) return;
        Collector collector;
        benchmark::RunSpecifiedBenchmarks(&collector);

        for (const auto &[candidate, first_row] : admitted) {
            if (first_row->all.dropped || (visit + 1 < options.visits && !stop_signal)) continue;
            progress.say(workload + ": checking again " + candidate.kernel->name);
            Blame blame(candidate.kernel);
            judge(candidate, measure_check(m, candidate.kernel, candidate.mode(),
                                           m->workload->ring - 1, &result, &err));
        }
        for (Run run : collector.runs) {
            Row &own = rows[{point, run.run_name.function_name}];
            if (own.all.dropped) continue;
            /* For the library, a visit is a run of its own. */
            run.run_name.repetitions = "repeats:" + std::to_string(options.reps);
            run.repetitions = options.reps;
            run.repetition_index += first(visit);
            own.all.samples++;
            add_run(&own.text, run);
        }
        for (const Case &c : cases) row(c).end_visit();
    }

    /* Drops the cases of a place that does not open. */
    void keep_open(const std::string &workload, std::vector<Case> *cases,
                   const std::function<int(enum backend, struct error *)> &open) {
        for (enum backend place : {ON_HOST, ON_DEVICE}) {
            struct error err;
            auto here = [&](const Case &c) { return c.entry->kernel->place == place; };
            if (std::none_of(cases->begin(), cases->end(), here) || open(place, &err) == 0)
                continue;
            failed(workload, place == ON_HOST ? "host kernels" : "device kernels", place, err);
            auto gone = [&](const Case &c) {
                if (here(c)) row(c).drop();
                return here(c);
            };
            cases->erase(std::remove_if(cases->begin(), cases->end(), gone), cases->end());
        }
    }

    void drop_tables() {
        if (kept.of >= 0) tables_free(&kept.set);
        kept.of = -1;
    }

    int open_place(struct measure *m, int i, enum rule_kind rule, enum backend place,
                   struct error *err) {
        const struct workload *w = m->workload;
        if (place == ON_HOST && !m->open) {
            if (kept.of < 0 && tables_create(&kept.set, w->tables, w->num_tables, w->seed, err))
                return -1;
            kept.of = i;
            kept.rule = rule;
            kept.set.shapes = w->tables;
            m->tables = &kept.set;
        }
        return measure_open_place(m, place, err);
    }

    bool measure_point(const struct worklist *list, int i, struct subject subject) {
        const enum rule_kind rule = subject.rule;
        const int wrong_before = wrong;
        char name[SPEC_NAME_MAX];
        std::vector<Case> cases = cases_of(options, places, worklist_name(list, i, name), subject);
        auto dropped = [&](const Case &c) { return row(c).all.dropped; };
        cases.erase(std::remove_if(cases.begin(), cases.end(), dropped), cases.end());
        if (kept.of >= 0 && (rule != kept.rule || !worklist_same_tables(list, i, kept.of)))
            drop_tables();
        keep_open(name, &cases, [&](enum backend place, struct error *err) {
            const bool fits = place == ON_HOST && kept.of >= 0;
            return fits ? 0 : worklist_tables_fit(list, i, rule, place, err);
        });
        if (cases.empty()) return false;
        progress.say(std::string(name) + ": generating");
        struct workload w = {};
        struct measure m = {};
        struct error err;
        const bool made = worklist_make(list, i, rule, &w, &err) == 0;
        if (made) {
            say_no_device();
            context["emb_workload_" + std::string(w.name)] = w.text;
            if (list->traces) add_origins(list->traces[i / list->specs.count], &context);
        }
        if (made &&
            measure_open(&m, &w, subject.operation, GRAD_EXACT, options.threads, &err) == 0) {
            m.once = options.smoke ? once : nullptr;
            if (own_places) m.open = own_places->open;
            keep_open(name, &cases, [&](enum backend place, struct error *why) {
                return open_place(&m, i, rule, place, why);
            });
        } else {
            refuse(name, "all kernels", err.text);
            for (const Case &c : cases) row(c).drop();
            cases.clear();
        }
        alpha = worklist_alpha(list, i);
        if (!cases.empty()) measure_cases(&m, cases, subject_name(subject));
        measure_close(&m);
        workload_free(&w);
        if (wrong > wrong_before) drop_tables(); /* a wrong kernel may have written anywhere */
        return !cases.empty();
    }

    /* Opens the device if a kernel of the list needs it. False: the options ask for a device, and there
     * is none. If they do not ask, the run goes on without it. */
    bool use_device(const struct worklist &list) {
        struct error err;
        const unsigned device = 1u << ON_DEVICE;
        bool wanted = !rows_of(options, places & device, list).empty() || places == device;
        if (wanted && device_open(&err) == 0) {
            facts = device_facts();
            with_device = true;
            return true;
        }
        places &= ~device;
        if (!wanted) return true;
        no_device = err.text;
        if (!rows_of(options, places, list).empty())
            return true; /* says so later, once anything can run */
        say_no_device();
        return false;
    }

    bool begin() {
        struct error err;
        if (machine_lock(options.queue, &stop_signal, &err)) {
            if (!stop_signal) fprintf(stderr, "bench: %s\n", err.text);
            return false;
        }
        context.merge(describe(options, with_device ? &facts : nullptr));
        if (own_places)
            own_places->describe(
                [](void *ctx, const char *key, const char *value) {
                    (*static_cast<Context *>(ctx))[key] = value;
                },
                &context);
        if (options.smoke)
            context["emb_smoke"] =
                "a check: times are no measurement; ceilings were measured once, and "
                "caches flushed for the first workload only";
        progress.begin = clock_seconds();
        return true;
    }

    bool another_visit() const {
        if (stop_signal || visit < options.visits) return !stop_signal;
        return clock_seconds() - progress.begin < options.seconds &&
               !narrow(rows, options.precision);
    }

    /* Samples to take, without those of more visits. */
    int left() const {
        int count = 0;
        for (const auto &[key, row] : rows)
            if (!row.all.dropped)
                count +=
                    (key.first >= point) * share() + std::max(0, options.reps - first(visit + 1));
        return count;
    }

    void measure_all(const struct worklist &list) {
        for (; another_visit(); visit++, point = 0) {
            drop_tables();
            for (; point < list.count * SUBJECTS_MAX && !stop_signal; point++) {
                const int i = point / SUBJECTS_MAX, k = point % SUBJECTS_MAX;
                const struct subject_list subjects = worklist_subjects(&list, i);
                const bool done = visit >= options.visits && narrow(rows, options.precision, point);
                if (k >= subjects.count || done) continue;
                progress.total = progress.done + left();
                if (measured) write("the run did not end: ");
                keep();
                measured += measure_point(&list, i, subjects.at[k]);
            }
        }
    }
};

/* OpenMP reads its variables at load time, so the program starts again to bind threads. */
void bind_threads(char **argv) {
    if (getenv("OMP_PROC_BIND")) return;
    setenv("OMP_PROC_BIND", "true", 1);
    setenv("OMP_PLACES", "cores", 0);
    execv("/proc/self/exe", argv);
}

} // namespace

int bench_main(int argc, char **argv, const struct bench_places *places) {
    if (!places) {
        bind_threads(argv);
        take_crashes(argv);
    }
    static struct options options; /* keeps the filter's pattern as long as the program runs */
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
    take_stop_signals();
    return Driver(options, places).run();
}
