/* SPDX-License-Identifier: MIT */
#include "harness/measure/disturbance.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <sys/resource.h>

#include "harness/memory.h"

/* Nanoseconds that a thread has waited. Adds to *ran what it has run: 0 if the system does not count. */
static double waited_by(const char *tasks, const char *thread, double *ran) {
    char path[400], text[80];
    double run = 0, wait = NAN;
    snprintf(path, sizeof path, "%.120s/%s/schedstat", tasks, thread);
    read_start(path, text, sizeof text);
    sscanf(text, "%lf %lf", &run, &wait);
    *ran += run;
    return wait;
}

struct disturbance disturbance_now(const char *tasks) {
    struct rusage usage;
    double ran = 0, waited = 0;
    DIR *d = opendir(tasks);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') waited += waited_by(tasks, e->d_name, &ran);
    if (d) closedir(d);
    getrusage(RUSAGE_SELF, &usage);
    return (struct disturbance){ran > 0 ? 1e-9 * waited : NAN, usage.ru_nivcsw};
}

bool disturbed(struct disturbance before, struct disturbance after, double seconds) {
    const double waited = after.waited - before.waited;
    return isnan(waited) ? after.switches != before.switches : waited > waiting_tolerated * seconds;
}
