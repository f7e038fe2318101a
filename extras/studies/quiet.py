# SPDX-License-Identifier: MIT
"""Is the machine quiet? Counts the CPUs of the whole machine that other work keeps busy, and waits until they
are few. CPUs that this process may not use count too, because all share caches and memory. The counters are
read over a few seconds, because the load average lags by minutes."""
import os
import time

CPUS = os.cpu_count()  # of the machine
QUIET = 0.05 * CPUS    # CPUs that may be busy
WINDOW = 5.0           # seconds of one measurement


def cpu_ticks():
    """(busy, all) ticks of all CPUs since boot; time that the host gave to other guests counts as busy."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(v) for v in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)  # without idle time and waits for a disk


def busy():
    """The mean number of busy CPUs over WINDOW."""
    first = cpu_ticks()
    time.sleep(WINDOW)
    spent, passed = (b - a for a, b in zip(first, cpu_ticks()))
    return CPUS * spent / passed if passed else 0.0


def wait(most, say):
    """Waits until the machine is quiet, at most `most` seconds: (seconds waited, CPUs still busy)."""
    begin, said = time.monotonic(), -60.0
    while (others := busy()) > QUIET:
        waited = time.monotonic() - begin
        if waited >= most:
            break
        if waited - said >= 60:
            say(f"other work keeps {others:.1f} of {CPUS} CPUs busy; waiting for it up to "
                f"{(most - waited) / 60:.0f} min more")
            said = waited
    return time.monotonic() - begin, others
