# SPDX-License-Identifier: MIT
"""Is the machine quiet? How many CPUs other work keeps busy, and waiting until it is few. The kernel's
count is looked at over a few seconds, not the load average, which tells of minutes ago."""
import os
import time

CORES = len(os.sched_getaffinity(0))
QUIET = 0.05 * CORES  # CPUs that may be busy
WINDOW = 5.0          # seconds of a look


def cpu_ticks():
    """(busy, all) of all CPUs since the start; time that another guest of the host took is busy."""
    with open("/proc/stat", encoding="ascii") as file:
        ticks = [int(v) for v in file.readline().split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)  # idle, waiting for a disk


def busy():
    """CPUs that are busy: the mean of a few seconds."""
    first = cpu_ticks()
    time.sleep(WINDOW)
    spent, passed = (b - a for a, b in zip(first, cpu_ticks()))
    return os.cpu_count() * spent / passed if passed else 0.0


def wait(most, say):
    """Waits until the machine is quiet, `most` seconds at the most: (seconds waited, CPUs still busy)."""
    begin, said = time.monotonic(), -60.0
    while (others := busy()) > QUIET:
        waited = time.monotonic() - begin
        if waited >= most:
            break
        if waited - said >= 60:
            say(f"other work keeps {others:.1f} of {os.cpu_count()} CPUs busy; waiting for it up to "
                f"{(most - waited) / 60:.0f} min more")
            said = waited
    return time.monotonic() - begin, others
