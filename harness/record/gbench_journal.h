/* SPDX-License-Identifier: MIT
 *
 * The journal of a run: its progress and its record, which a new start after a crash takes over, and
 * the end of the run.
 */
#pragma once

#include <type_traits>

#include "harness/record/gbench_rows.h"
#include "harness/record/gbench_signals.h"
#include "harness/record/gbench_write.h"

/* The progress of a run, which a new start takes over together with the record. */
struct State {
    Crash crash = {};         /* signal 0: none; the handler writes it to the file */
    int visit = 0, point = 0; /* point: as in Rows */
    unsigned places;          /* places with kernels to measure */
    int measured = 0, wrong = 0, refused = 0;
    Progress progress;
};
static_assert(std::is_trivially_copyable<State>::value, "it is written as it lies in memory");

class Journal : protected State {
  protected:
    explicit Journal(const struct options &o) : options(o), output(o) {
        places = o.places;
    }

    const struct options &options;
    Output output;
    Context context;       /* keys of the record */
    Rows rows;             /* of the record */
    std::string no_device; /* why there is no device, until say_no_device() */

    void refuse(const std::string &workload, const char *kernel, const std::string &why) {
        progress.clear();
        fprintf(stderr, "not run: %s, %s: %s\n", workload.c_str(), kernel, why.c_str());
        context["emb_not_run_" + std::to_string(refused++)] =
            workload + " | " + kernel + " | " + why;
    }

    void say_no_device() {
        if (no_device.empty()) return;
        progress.clear();
        fprintf(stderr, "bench: device kernels not measured: %s\n", no_device.c_str());
        context["emb_not_run_" + std::to_string(refused++)] = "* | device kernels | " + no_device;
        no_device.clear();
    }

    int samples() const {
        int count = 0;
        for (const auto &[key, row] : rows) count += row.all.samples;
        return count;
    }

    /* Saves all that a new start needs. */
    void keep() {
        const State now = *this;
        std::string all;
        auto add = [&](const void *data, size_t bytes) { all.append((const char *)data, bytes); };
        auto add_text = [&](const std::string &text) { add(text.c_str(), text.size() + 1); };
        add(&now, sizeof now);
        add_text(no_device);
        for (const auto &[key, row] : rows) {
            add_text(key.second);
            add_text(row.text);
            add(&key.first, sizeof key.first);
            add(&row.all, sizeof row.all);
        }
        add_text("");
        for (const auto &[key, value] : context) add_text(key), add_text(value);
        leave(all);
    }

    /* Restores the saved state and names the kernel that crashed. False: this is the first start. */
    bool resume(const struct worklist &list) {
        const std::string all = left_behind();
        State then;
        if (all.size() < sizeof then) return false;
        memcpy(&then, all.data(), sizeof then);
        const Crash crash = then.crash;
        if (!crash.signal) return false;
        then.crash = {};
        static_cast<State &>(*this) = then;
        size_t at = sizeof then;
        auto next = [&](void *data, size_t bytes) { at += all.copy((char *)data, bytes, at); };
        auto next_text = [&] {
            std::string text = all.c_str() + at;
            at += text.size() + 1;
            return text;
        };
        no_device = next_text();
        for (std::string name; !(name = next_text()).empty();) {
            Row row;
            int of;
            row.text = next_text();
            next(&of, sizeof of);
            next(&row.all, sizeof row.all);
            rows[{of, name}] = row;
        }
        while (at < all.size()) {
            std::string key = next_text();
            context[key] = next_text();
        }
        if (crash.stop) stop_signal = crash.stop;
        char name[SPEC_NAME_MAX];
        const char *kernel = registry()[crash.kernel].kernel->name;
        for (auto &[key, row] : rows)
            if (key.first == point &&
                key.second.find(std::string("/") + kernel + "/") != key.second.npos)
                row.drop();
        wrong++;
        refuse(worklist_name(&list, point / SUBJECTS_MAX, name), kernel,
               std::string("CRASHED: ") + strsignal(crash.signal));
        return true;
    }

    /* The record so far. */
    bool write(const std::string &cut_short) {
        Context now = context;
        progress.clear();
        if (!cut_short.empty())
            now["emb_cut_short"] = cut_short + std::to_string(samples()) + " of " +
                                   std::to_string(progress.total) + " samples";
        std::string text;
        for (const auto &[key, row] : rows)
            text += (text.empty() || row.text.empty() ? "" : ",\n") + row.text;
        return output.write(now, text);
    }

    /* Writes the record. Returns the exit status. */
    int finish() {
        if (stop_signal) {
            fprintf(stderr, "bench: cut short after %d of %d samples\n", samples(), progress.total);
            measured = samples();
        }
        const std::string why = stop_signal ? strsignal(stop_signal) + std::string(" after ") : "";
        bool written = (measured || (wrong && !stop_signal)) && write(why);
        if (written) fprintf(stderr, "wrote %s\n", output.path.c_str());
        if (stop_signal) return 128 + stop_signal;
        if (wrong) return EXIT_WRONG_RESULT;
        return written ? EXIT_FINE : EXIT_USAGE;
    }
};
