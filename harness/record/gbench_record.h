/* SPDX-License-Identifier: MIT
 *
 * The Google Benchmark driver records and shows runs, their counters, the words of their labels, and the
 * progress line. Rows of the record have disturbed, that their last try was; the context has, for the run:
 *
 *     emb_cpus_allowed   CPUs that this process may use
 *     emb_cut_short      only in an incomplete record: how many samples it has, and whether a
 *                        signal stopped the run or the record was written before its end
 */
#pragma once

#include <benchmark/benchmark.h>

#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

extern "C" {
#include "harness/measure/measure.h"
}

using Run = benchmark::BenchmarkReporter::Run;

/* Keeps the samples until a check shows that the kernel's result is still right after timing. */
class Collector : public benchmark::BenchmarkReporter {
  public:
    bool ReportContext(const Context &) override {
        return true;
    }
    void ReportRuns(const std::vector<Run> &reported) override {
        for (Run run : reported) {
            if (run.run_type == Run::RT_Aggregate || run.error_occurred) continue;
            for (auto c = run.counters.begin(); c != run.counters.end();)
                c = std::isfinite(c->second.value) ? std::next(c) : run.counters.erase(c);
            runs.push_back(run);
        }
    }
    std::vector<Run> runs;
};

struct Progress {
    int done = 0, total = 0;
    double begin = clock_seconds(), last = 0;
    bool terminal = isatty(STDERR_FILENO) && getenv("TERM") && strcmp(getenv("TERM"), "dumb") != 0;

    /* A terminal shows one line that is rewritten; a log gets a new line every few seconds. */
    void say(const std::string &what) {
        double now = clock_seconds(), elapsed = now - begin;
        if (!terminal && now - last < 5) return;
        last = now;
        char left[40] = "";
        if (done && done < total)
            snprintf(left, sizeof left, ", about %.0f s left", elapsed / done * (total - done));
        fprintf(stderr, "%s[%d/%d] %.0f s%s: %s%s", terminal ? "\r\033[K" : "", done, total,
                elapsed, left, what.c_str(), terminal ? "" : "\n");
    }
    void clear() {
        if (terminal) fprintf(stderr, "\r\033[K");
    }
};

inline const char *mode_name(enum cache_mode mode) {
    return mode == MODE_COLD ? "cold" : mode == MODE_WARM ? "warm" : "iteration";
}

/* Counters that are the same for every sample of a workload. */
inline void workload_counters(benchmark::UserCounters &c, const struct measure *m, int batch,
                              double alpha) {
    const struct id_stats &s = m->stats[batch];
    double lookups = s.lookups ? (double)s.lookups : 1;
    int64_t rows = 0, states = 0;
    int32_t dim = 0;
    const struct workload *w = m->workload;
    for (int32_t t = 0; t < w->num_tables; t++) {
        const struct table_shape *table = &w->tables[t];
        rows += table->rows;
        if (table->dim > dim) dim = table->dim;
        for (int a = 0; a < TABLE_ARRAYS; a++)
            if (a != TABLE_WEIGHT)
                states += table->rows * rule_array_width(table->rule, table->dim, a) *
                          dtype_bytes(table_array_type(table, a));
    }
    c["tables"] = w->num_tables;
    c["rows"] = (double)rows;
    c["dim"] = dim;
    c["state_bytes"] = (double)states / (double)rows; /* of a row, all tables' mean */
    c["alpha"] = alpha;
    c["lookups"] = (double)s.lookups;
    c["distinct"] = (double)s.distinct;
    c["hottest_share"] = (double)s.hottest / lookups;
    c["in_bag_duplicates"] = (double)s.in_bag_duplicates / lookups;
    c["bags"] = (double)s.bags;
    c["empty_bags"] = (double)s.empty_bags;
    c["longest_bag"] = (double)s.longest_bag;
    for (int b = 0; b < RUN_BINS; b++)
        c["run_lookups_" + std::to_string(b)] = (double)s.run_lookups[b] / lookups;
}

inline void sample_counters(benchmark::UserCounters &c, const struct measure *m,
                            const struct sample &s, const struct scratch_use &use) {
    static const char *const stages[] = {"index_ms", "zero_ms", "reduce_ms", "update_ms"};
    const double mib = 1 << 20;
    const struct traffic &traffic = m->traffic[s.batch];
    const double forward = s.iteration ? (double)m->forward_traffic[s.batch].compulsory : 0;
    double lookups = (double)m->stats[s.batch].lookups;
    double bytes = forward + (double)traffic.compulsory;
    c["ns_per_lookup"] = lookups ? 1e9 * s.times.seconds / lookups : NAN;
    c["lookups_per_s"] = lookups / s.times.seconds;
    c["traffic_gbs"] = 1e-9 * bytes / s.times.seconds;
    c["copy_gbs"] = s.ceiling.copy_gbs;
    c["rmw_gbs"] = s.ceiling.rmw_gbs;
    if (s.ceiling.latency_ns > 0) {
        c["latency_ns"] = s.ceiling.latency_ns;
        c["lines_in_flight"] = ceiling_lines_in_flight(&s.ceiling, m->threads);
    }
    c["pingpong_ns"] = s.ceiling.pingpong_ns < 0 ? NAN : s.ceiling.pingpong_ns;
    c["share_copy"] = 1e-9 * bytes / s.times.seconds / s.ceiling.copy_gbs;
    c["share_rmw"] = 1e-9 * bytes / s.times.seconds / s.ceiling.rmw_gbs;
    const double memory_gbs = traffic_memory_gbs(m->operation, &s.ceiling);
    if (double roof = traffic_roof(&traffic, memory_gbs, s.ceiling.gather_gbs)) {
        /* The gathers of an iteration's forward are not measured, so its bytes count as memory's. */
        roof += 1e-9 * forward / s.ceiling.copy_gbs;
        c["roof_ms"] = 1e3 * roof;
        c["share_roof"] = roof / s.times.seconds;
        if (!s.iteration) { /* an iteration has two operations, and no single pair of terms */
            c["line_gbs"] = memory_gbs;
            c["gather_gbs"] = s.ceiling.gather_gbs;
            c["line_mib"] = (double)traffic.lines / mib;
            c["gather_mib"] = (double)traffic.gathered / mib;
        }
    }
    if (s.iteration) c["forward_ms"] = 1e3 * s.times.forward;
    for (int k = 0; k < STAGE_COUNT; k++) c[stages[k]] = 1e3 * s.times.stage[k];
    for (int k = 0; k < s.times.num_counters; k++)
        c[s.times.counters[k].name] = s.times.counters[k].value;
    if (s.times.replay != 0) { /* of a device */
        c["replay_ms"] = 1e3 * s.times.replay;
        c["replay_ns_per_lookup"] = lookups ? 1e9 * s.times.replay / lookups : NAN;
        c["stream_minus_replay_ms"] = 1e3 * (s.times.seconds - s.times.replay);
    }
    if (s.times.clocks.sm_mhz > 0) {
        c["sm_mhz"] = s.times.clocks.sm_mhz;
        c["memory_mhz"] = s.times.clocks.memory_mhz;
        c["clock_limits"] = s.times.clocks.limits;
    }
    c["plan_ms"] = 1e3 * s.times.plan;
    c["launches"] = use.graph.kernels + use.graph.memsets + use.graph.copies;
    c["launched_kernels"] = use.graph.kernels;
    c["launched_memsets"] = use.graph.memsets;
    c["scratch_per_lookup"] = lookups ? (double)use.declared / lookups : NAN;
    c["compulsory_mib"] = bytes / mib;
    c["persistent_mib"] = (double)m->bytes / mib;
    c["scratch_mib"] = (double)use.declared / mib;
    c["peak_mib"] = use.observed < 0 ? -1 : (double)(m->bytes + use.observed) / mib;
    c["threads"] = m->threads;
    c["rejected_samples"] = s.rejected;
    c["disturbed"] = s.times.disturbed;
}

/* The machine that first showed both states of a virtual machine's cores takes 41-52 ns with a
 * shared last-level cache and 205-218 ns without. */
inline const char *placement(double pingpong_ns) {
    return pingpong_ns < 0 ? "unknown" : pingpong_ns < 120 ? "same" : "split";
}

/* Adds emb_trace_FILE for each trace whose ids, X.ids.npy, have a line of JSON beside them, X.json:
 * where these ids come from, as an import or another program wrote it. paths: joined by commas. */
inline void add_origins(const std::string &paths, std::map<std::string, std::string> *context) {
    const std::string ending = ".ids.npy";
    std::istringstream list(paths);
    for (std::string path, line; std::getline(list, path, ',');) {
        if (path.size() <= ending.size() || path.substr(path.size() - ending.size()) != ending)
            continue;
        const std::string stem = path.substr(0, path.size() - ending.size());
        std::ifstream origin(stem + ".json");
        if (std::getline(origin, line))
            (*context)["emb_trace_" + stem.substr(stem.rfind('/') + 1)] = line;
    }
}
