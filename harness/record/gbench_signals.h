/* SPDX-License-Identifier: MIT
 *
 * Signals during a run. Ctrl-C, kill and a closed terminal end it early: the program drops the current sample, and
 * checks and writes the samples before it. A second signal ends the program at once.
 *
 * A crash costs one failed kernel, not the run. The program calls execve() on itself, which ends
 * all threads and drops all memory, so that it never uses anything that the kernel may have broken.
 * The process keeps its id, the machine's lock, its terminal and its parent. An unnamed file holds
 * what the new start has to know; stray writes of a kernel cannot reach it.
 *
 * A kernel takes the blame for any crash while it runs or is checked, even if an earlier kernel
 * caused the damage. A crash at another time, a signal from another process, or a signal that other
 * code handles (a sanitizer) ends the program as usual. A debugger stops first.
 */
#pragma once

#include <omp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

extern "C" {
#include "harness/registry.h"
}

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

/* The handler of crashes writes this to the beginning of the file. */
struct Crash {
    int signal; /* 0: none */
    int kernel; /* its place in the registry */
    int stop;   /* stop_signal at the time of the crash */
};

/* Everything that the handler needs; set before a crash can happen. */
struct Restart {
    int file = -1;
    volatile sig_atomic_t kernel = -1; /* the one to blame; -1: none */
    char **argv = nullptr;
    cpu_set_t cpus; /* of the process; each thread may be bound to only one of them */
};
inline Restart restart;

/* While this object lives, its kernel takes the blame for crashes. */
struct Blame {
    explicit Blame(const struct kernel *k) {
        const struct registered *r = registry();
        while (r->kernel != k) r++;
        restart.kernel = (int)(r - registry());
    }
    ~Blame() {
        restart.kernel = -1;
    }
};

/* Several threads may crash at once: the first execve() ends the others. */
inline void start_again(int signal, siginfo_t *info, void *) {
    const Crash crash = {signal, restart.kernel, stop_signal};
    bool own = info->si_code > 0 || info->si_pid == getpid();
    if (own && crash.kernel >= 0 && pwrite(restart.file, &crash, sizeof crash, 0) > 0) {
        sched_setaffinity(0, sizeof restart.cpus, &restart.cpus);
        execve("/proc/self/exe", restart.argv, environ);
    }
    ::signal(signal, SIG_DFL);
    raise(signal);
}

inline bool cpus_of_process(cpu_set_t *cpus) {
    if (sched_getaffinity(0, sizeof *cpus, cpus)) return false;
    for (int p = 0; p < omp_get_num_places(); p++) {
        std::vector<int> own(omp_get_place_num_procs(p));
        omp_get_place_proc_ids(p, own.data());
        for (int cpu : own) CPU_SET(cpu, cpus);
    }
    return true;
}

/* Without the file, a crash ends the program. */
inline void take_crashes(char **argv) {
    static const char variable[] = "EMBFUSE_RESTART"; /* "process id, file" */
    const char *text = getenv(variable);
    int pid;
    restart.argv = argv;
    if (!cpus_of_process(&restart.cpus)) return;
    if (!text || sscanf(text, "%d %d", &pid, &restart.file) != 2 || pid != getpid()) {
        restart.file = memfd_create("embfuse-bench", 0);
        setenv(variable, (std::to_string(getpid()) + " " + std::to_string(restart.file)).c_str(),
               1);
    }
    struct sigaction action = {}, now;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER; /* none is blocked after execve() */
    action.sa_sigaction = start_again;
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT})
        if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
            sigaction(signal, &action, nullptr);
}

/* Gives the handler a stack in every thread: a kernel may overflow its own. Called before each
 * kernel, because OpenMP may end threads and start others. The stacks are never freed. */
inline void give_signal_stacks(int threads) {
#pragma omp parallel num_threads(threads)
    {
        stack_t now, own = {};
        own.ss_size = 64 << 10;
        if (sigaltstack(nullptr, &now) == 0 && now.ss_flags & SS_DISABLE) {
            own.ss_sp = mmap(nullptr, own.ss_size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (own.ss_sp != MAP_FAILED) sigaltstack(&own, nullptr);
        }
    }
}

/* Replaces what a new start will read; it begins with a Crash, for the handler. */
inline void leave(const std::string &state) {
    if (restart.file < 0) return;
    bool left = ftruncate(restart.file, 0) == 0 &&
                pwrite(restart.file, state.data(), state.size(), 0) == (ssize_t)state.size();
    if (!left) restart.file = -1;
}

/* Returns what leave() wrote before this start, or "". */
inline std::string left_behind() {
    const off_t size = restart.file < 0 ? 0 : lseek(restart.file, 0, SEEK_END);
    std::string state(size > 0 ? (size_t)size : 0, '\0');
    bool whole = pread(restart.file, state.data(), state.size(), 0) == (ssize_t)state.size();
    return whole ? state : "";
}
