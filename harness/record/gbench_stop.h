/* SPDX-License-Identifier: MIT
 *
 * Ctrl-C, kill and a closed terminal end a run early: the program drops the current sample, and
 * checks and writes the samples before it. A second signal ends the program at once.
 */
#pragma once

#include <signal.h>
#include <unistd.h>

inline volatile sig_atomic_t stop_signal = 0;

inline void take_stop_signals() {
    struct sigaction action = {}, now;
    action.sa_flags = SA_RESTART | SA_RESETHAND;
    action.sa_handler = [](int signal) {
        static const char text[] = "\nbench: stopping; what was measured is checked and written\n";
        stop_signal = signal;
        if (write(STDERR_FILENO, text, sizeof text - 1) < 0) return;
    };
    for (int signal : {SIGINT, SIGTERM, SIGHUP}) /* keeps signals ignored that nohup or & ignore */
        if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaction(signal, &action, nullptr);
    ::signal(SIGXFSZ, SIG_IGN); /* so that write() fails if a file may not grow */
}
