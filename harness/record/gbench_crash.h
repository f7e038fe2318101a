/* SPDX-License-Identifier: MIT
 *
 * A kernel that crashes is one failed kernel, not a lost run. The program then starts again in its own
 * place, by execve(), which ends all threads and drops all memory: nothing that a kernel may have broken
 * is used again. The process id stays, and with it the machine's lock, the terminal and who waits for it.
 * What the new start has to know lies in a file without a name, where no stray write of a kernel reaches it.
 *
 * A kernel is blamed for what shows while it is run or checked, even if one before it broke that unseen.
 * What crashes at another time, what another process sends, and what somebody else takes (a sanitizer),
 * ends the program as ever. A debugger stops before any of this happens.
 */
#ifndef EMBFUSE_GBENCH_CRASH_H
#define EMBFUSE_GBENCH_CRASH_H

#include <omp.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "harness/record/gbench_stop.h"

extern "C" {
#include "harness/registry.h"
}

/* What the signal handler leaves, at the beginning of the file. */
struct Crash {
    int signal; /* 0: none */
    int kernel; /* its place in the registry */
    int stop;   /* the stop_signal by then */
};

/* All that the handler needs, before it is called. */
struct Restart {
    int file = -1;
    volatile sig_atomic_t kernel = -1; /* that is to blame; -1: none */
    char **argv = nullptr;
    cpu_set_t cpus; /* of the process; each thread, the first one too, may be bound to but one */
};
inline Restart restart;

/* A kernel to blame for what crashes as long as this lives. */
struct Blame {
    explicit Blame(const struct kernel *k) {
        int count, i = 0;
        const struct registered *all = registry(&count);
        while (all[i].kernel != k) i++;
        restart.kernel = i;
    }
    ~Blame() {
        restart.kernel = -1;
    }
};

/* Several threads may crash, and come here, at once: the first execve() ends the others. */
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
    static const char variable[] = "EMBFUSE_RESTART"; /* "process id, file": nobody else's */
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

/* For the handler, in every thread that has none: a kernel's own stack may have run over. Before each
 * kernel, because OpenMP may end threads and make others; never given back. */
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

/* What a new start is to know, from now on. */
inline void leave(const std::string &state) {
    const Crash none = {};
    const size_t size = state.size();
    if (restart.file < 0) return;
    bool left = ftruncate(restart.file, 0) == 0 &&
                pwrite(restart.file, &none, sizeof none, 0) == sizeof none &&
                pwrite(restart.file, state.data(), size, sizeof none) == (ssize_t)size;
    if (!left) restart.file = -1;
}

/* The crash that this start comes after, and what was left before it; without a signal: none. */
inline Crash left_behind(std::string *state) {
    Crash crash = {};
    const off_t size = restart.file < 0 ? 0 : lseek(restart.file, 0, SEEK_END);
    if (size < (off_t)sizeof crash) return crash;
    state->resize((size_t)size - sizeof crash);
    if (pread(restart.file, state->data(), state->size(), sizeof crash) != (ssize_t)state->size() ||
        pread(restart.file, &crash, sizeof crash, 0) != sizeof crash)
        return {};
    return crash;
}

#endif
