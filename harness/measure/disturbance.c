/* SPDX-License-Identifier: MIT */
#define _GNU_SOURCE
#include "harness/measure/disturbance.h"

#include <ctype.h>
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "harness/memory.h"

/* Nanoseconds that a thread has waited. */
static double waited_by(const char *proc, const char *thread) {
    char path[400], text[80];
    double wait = 0;
    snprintf(path, sizeof path, "%.120s/self/task/%s/schedstat", proc, thread);
    read_start(path, text, sizeof text);
    sscanf(text, "%*s %lf", &wait);
    return wait;
}

/* Seconds that a hypervisor has taken from the CPUs that this process may use. */
static double stolen_from(const char *proc) {
    char path[200], line[400];
    cpu_set_t mine;
    int cpu;
    long ticks, all = 0;
    snprintf(path, sizeof path, "%.120s/stat", proc);
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof mine, &mine);
    while (fgets(line, sizeof line, f)) { /* cpuN user nice system idle iowait irq softirq steal */
        const bool of_a_cpu =
            isdigit((unsigned char)line[3]) &&
            sscanf(line, "cpu%d %*d %*d %*d %*d %*d %*d %*d %ld", &cpu, &ticks) == 2;
        if (of_a_cpu && cpu < CPU_SETSIZE && CPU_ISSET(cpu, &mine)) all += ticks;
    }
    fclose(f);
    return (double)all / (double)sysconf(_SC_CLK_TCK);
}

struct disturbance disturbance_now(const char *proc) {
    char tasks[200];
    double waited = 0;
    snprintf(tasks, sizeof tasks, "%.120s/self/task", proc);
    DIR *d = opendir(tasks);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') waited += waited_by(proc, e->d_name);
    if (d) closedir(d);
    return (struct disturbance){1e-9 * waited, stolen_from(proc)};
}

bool disturbed(struct disturbance before, struct disturbance after, double seconds) {
    const double lost = after.waited - before.waited + after.stolen - before.stolen;
    return lost > waiting_tolerated * seconds;
}
