#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Records a machine: measures which of the steps FOLDER lacks, one by one; a result gets its final name only when it is
complete. It draws nothing: make readme writes the pages.

A step is left out if its results exist. The script refuses a folder of another machine (CPU, caches, number
of CPUs, compiler, huge pages). It names results of other measured code (kernels, harness, workloads, Makefile
and what else the step runs, but not pages and comments); --force measures them again. `make record`
continues after an interruption, within sweep and scaling too. If a step cannot run, the script names it and
runs the others. Each step first waits for a quiet machine. A step with too many disturbed samples runs once
more, and the less disturbed result stays.

Exit status: 0 all chosen steps are there, 1 usage, another machine's folder, or interrupted, 2 a kernel gave
a wrong result (the results are kept), 3 some chosen steps are missing.
"""
import contextlib
import fcntl
import os
import re
import shutil
import signal
import sys
import time
from dataclasses import dataclass

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
import program
import quiet
from identity import other_machine
from merge import read
from parts import write
from program import Arguments, ResultError
from record_step import Skipped, run, traces
from recorded import NOISY, RESULTS, STEPS, USUAL, code, disturbed, kernels, machine, make_command, share, stored
from results import load


def say(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", flush=True)


def minutes(seconds):
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"


@dataclass
class Recorder:
    args: object
    machine: str
    begin: float
    waited: float = 0.0

    def path(self, name):
        return stored(self.args.folder, name)

    def variables(self, step):
        """The variables of make, without OUT. Without traces, a step that needs them is skipped."""
        known = {"kernel": self.args.kernel, "below": self.args.below}
        if any("{traces}" in v for _, v in step.variables):
            known["traces"] = traces(self.args.traces, self.args.work)
        given = dict(s.split("=", 1) for s in self.args.set)
        return {k: v.format_map(known) for k, v in step.variables} | given

    def state(self, step):
        """'missing', 'whole', or the commit of its other code."""
        if not all(os.path.exists(self.path(n)) for n in step.results):
            return "missing"
        contexts = [load(self.path(n)).context for n in step.results]
        if all(c.get("emb_record_code") == code(step) and c.get("emb_record_machine") == self.machine
               for c in contexts):
            return "whole"
        return f"of commit {str(contexts[0].get('emb_commit', '?'))[:12]}"

    def wait(self):
        """Waits for a quiet machine; returns a text about it for the result."""
        left = max(0.0, min(self.args.wait, 6 * self.args.wait - self.waited))
        waited, others = quiet.wait(left, say)
        self.waited += waited
        if others > quiet.QUIET:
            say(f"not quiet: other work keeps {others:.1f} CPUs busy; measuring all the same")
        return f"{waited:.0f} s, then other work kept {others:.2f} of {quiet.CPUS} CPUs busy"

    def measure(self, step, attempt):
        """Runs make: ({name: path of a result}, facts for its context); ResultError if one is not whole."""
        variables, waited = self.variables(step), self.wait()
        out = os.path.join(self.args.work, step.name, str(attempt))
        os.makedirs(out, exist_ok=True)
        paths = {n: os.path.join(out, p) for n, p in step.results.items()}
        for path in paths.values():  # left by an interrupted run
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        log, begin = os.path.join(out, "log"), time.monotonic()
        words = [f"{k}={v}" for k, v in variables.items()]
        status, reason = run([*self.args.make.split(), "--no-print-directory", step.target, f"OUT={out}",
                              *words], log)
        seconds = time.monotonic() - begin
        left = [load(p) for p in paths.values() if os.path.exists(p)]
        if any("emb_cut_short" in r.context for r in left):
            raise ResultError(f"cut short (log: {log})")
        if status not in (0, 2) or len(left) < len(paths):  # 2: the file names a wrong result
            raise ResultError(f"{reason or f'make {step.target} ended with status {status}'} (log: {log})")
        command = make_command(step, variables).replace(os.path.join(self.args.work, "traces"), "TRACES")
        facts = {"emb_record_code": code(step), "emb_record_kernels": kernels(), "emb_record_machine": self.machine,
                 "emb_record_command": command, "emb_record_seconds": f"{seconds:.0f}", "emb_record_waited": waited}
        return paths, facts

    def keep(self, step, paths, facts):
        """Gives results their final names. An earlier result of the same code stays if less disturbed."""
        mean = lambda results: sum(map(share, results)) / len(results)
        new = mean([load(p) for p in paths.values()])
        if self.state(step) == "whole":
            old = mean([load(self.path(n)) for n in step.results])
            attempts = f"the less disturbed of two: {100 * min(old, new):.0f} and {100 * max(old, new):.0f} %"
            facts["emb_record_attempts"] = attempts
            say(f"{step.name}: kept {attempts}")
            if old <= new:
                paths = {n: self.path(n) for n in step.results}
                facts = {"emb_record_attempts": attempts}
        for name, path in paths.items():
            data = read(path)
            data["context"] |= facts
            trim(data["context"], self.args.work)
            write(self.path(name), data)
        shutil.rmtree(os.path.join(self.args.work, step.name), ignore_errors=True)
        return new

    def step(self, step):
        """Measures a step, and once more if it was disturbed too often and there is time."""
        begin = time.monotonic()
        noise = self.keep(step, *self.measure(step, 1))
        took = time.monotonic() - begin
        some, every = map(sum, zip(*(disturbed(load(self.path(n))) for n in step.results)))
        say(f"{step.name}: {minutes(took)}; {some} of {every} samples disturbed")
        left = 60 * self.args.minutes - (time.monotonic() - self.begin)
        if noise > NOISY and left > took:
            say(f"{step.name}: more than {100 * NOISY:.0f} % disturbed, so once more")
            self.keep(step, *self.measure(step, 2))
        elif noise > NOISY:
            say(f"{step.name}: more than {100 * NOISY:.0f} % disturbed, but MINUTES={self.args.minutes:g} "
                "leaves no time for another try")


def trim(context, work):
    """Removes folders of this machine, which mean nothing elsewhere."""
    for key in ("executable", "emb_var_OUT"):
        context.pop(key, None)
    if "emb_var_TRACE" in context:
        context["emb_var_TRACE"] = context["emb_var_TRACE"].replace(os.path.join(work, "traces"), "TRACES")


# --- all of them
def steps_of(text, what):
    """The named steps in their fixed order; 'all' names all of them, 'usual' those of USUAL."""
    known, words = [s.name for s in STEPS], text.replace("usual", " ".join(USUAL)).replace(",", " ").split()
    for word in words:
        if word not in (*known, "all"):
            raise ResultError(f"{what}: there is no step '{word}'; there are {' '.join(known)}")
    return [s for s in STEPS if s.name in words or "all" in words]


def same_machine(args, here, forced):
    """Results of two machines never share a folder."""
    for name, step in RESULTS.items():
        path = stored(args.folder, name)
        if step in forced or not os.path.exists(path):
            continue
        context = load(path).context
        own = context.get("emb_record_machine")
        if own != here if own else other_machine(context, {"emb_record_machine": here}):
            raise ResultError(f"{path} is of another machine ({own or context.get('emb_cpu')}), this one is "
                              f"{here}: choose another NAME=")


def record(recorder, chosen, forced):
    """Measures the steps: {step: why it is missing}"""
    ended = {"skipped": {}, "FAILED": {}}
    states = {s: recorder.state(s) for s in chosen}
    todo = [s for s in chosen if s in forced or states[s] == "missing"]
    old = [s for s in chosen if s not in todo and states[s] != "whole"]
    done = [s.name for s in chosen if s not in todo]
    if done:
        say(f"there already: {' '.join(done)}")
    guess, took, expected = 1.0, 0.0, 0.0
    for i, step in enumerate(todo):
        left = sum(s.minutes for s in todo[i:]) * guess
        say(f"step {i + 1} of {len(todo)}: {step.name} ({step.what}), about "
            f"{minutes(60 * step.minutes * guess)}; all that is left, about {minutes(60 * left)}")
        begin = time.monotonic()
        try:
            recorder.step(step)
            took, expected = took + time.monotonic() - begin, expected + 60 * step.minutes
            guess = took / expected
        except (Skipped, ResultError, OSError) as e:
            title = "skipped" if isinstance(e, Skipped) else "FAILED"
            ended[title][step] = e
            say(f"{step.name}: {title}: {e}")
    for title, steps in ended.items():
        for step, why in steps.items():
            say(f"{title}: {step.name}: {why}")
    if old:
        say("measured with other code than is here: " + ", ".join(f"{s.name} {states[s]}" for s in old)
            + f"; FORCE='{' '.join(s.name for s in old)}' measures again, or take another NAME=")
    return ended["FAILED"]


def main():
    parser = Arguments(__doc__)
    parser.add_argument("folder", metavar="FOLDER", help="reports/results/NAME")
    parser.add_argument("--work", required=True, metavar="FOLDER", help="for unfinished results")
    parser.add_argument("--make", default="make")
    parser.add_argument("--compiler", default="gcc", help="the compiler that make uses")
    parser.add_argument("--kernel", required=True, metavar="NAME", help="the kernel under study")
    parser.add_argument("--below", required=True, metavar="NAME", help="the kernel to compare it with")
    parser.add_argument("--steps", default="usual", metavar="LIST")
    parser.add_argument("--force", default="", metavar="LIST", help="measure these again; or all")
    parser.add_argument("--wait", type=float, default=600, metavar="SECONDS",
                        help="longest wait for a quiet machine before a step (600); six times that in all")
    parser.add_argument("--minutes", type=float, default=120,
                        help="start no second try that would end later (120)")
    parser.add_argument("--traces", default="", metavar="FOLDER", help="recorded id streams, *.txt.gz")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="variable of make in every step")
    args = parser.parse_args()
    forced = steps_of(args.force, "FORCE")
    chosen = steps_of(f"{args.steps} {args.force}", "STEPS")
    name = os.path.basename(args.folder)
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise ResultError(f"NAME='{name}': letters, digits, '.', '-' and '_' make a name, such as zen4-2core")
    here = machine(args.compiler)
    same_machine(args, here, forced)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    for folder in (args.folder, args.work):
        os.makedirs(folder, exist_ok=True)
    with open(os.path.join(args.work, "lock"), "w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ResultError(f"{args.folder} is being recorded by another process") from None
        os.set_inheritable(lock.fileno(), True)  # processes that a killed run left behind hold it too
        recorder = Recorder(args, here, time.monotonic())
        missing = record(recorder, chosen, forced)
    wrong = [f"{name}: {kernel} on {workload}: {why}" for name in RESULTS
             if os.path.exists(recorder.path(name))
             for kernel, workload, why in load(recorder.path(name)).failures()]
    for line in wrong:
        say(f"WRONG in {line}")
    return 2 if wrong else 3 if missing else 0


if __name__ == "__main__":
    program.run(main, "interrupted; the same command continues after the finished steps")
