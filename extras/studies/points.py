#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A study of many points: prints what a result says, and writes OUTDIR/NAME.md and a picture; --bench measures the
result first, in parts, and continues a measurement that was cut short.

Usage: points.py NAME RESULT.json OUTDIR --kernel=NAME. The module of each study in STUDIES has its points (parts), what
came out (read), its text and its picture.
"""
import os
import sys
from collections import namedtuple

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "reports"))
import crossover
import ladder
import parts
import program
import scaling
import sweep
from paper import PAGE, save, set_up
from program import Arguments, write_whole

# reps: samples of a kernel, 0 if `make NAME` measures it in one run; options: {name: (default, help)};
# few: what text() takes for the lines that are printed, if these are not all
Study = namedtuple("Study", "module title reps options few", defaults=(0, {}, ()))

STUDIES = {
    "ladder": Study(ladder, "What each technique of {kernel} is worth"),
    "sweep": Study(sweep, "Every point, the worst first", 3,
                   {"gib": (4.0, "limit of the weights of a point")}, few=(10,)),
    "crossover": Study(crossover, "Dense or sparse gradient", 5,
                       {"mib": (128, "weights of the table"), "rules": (crossover.RULES, "update rules")}),
    "scaling": Study(scaling, "Time against lookups, rows and threads", 5,
                     {"most": (1e8, "limit of lookups, and of rows")})}


def report(name, result, outdir, kernel, below):
    """(pictures, summary)"""
    study = STUDIES[name]
    found = study.module.read(result, kernel, below)
    text = lambda *few: "\n".join([*result.cautions("**"), *study.module.text(result, found, kernel, *few)])
    title, stem = study.title.format(kernel=kernel), os.path.join(os.path.abspath(outdir), name)
    os.makedirs(outdir, exist_ok=True)
    write_whole(f"{stem}.md", f"# {title}\n\n![{title}]({name}.svg)\n\n{text()}\n")
    set_up()
    return list(save(study.module.drawn(PAGE, result, found, kernel), stem, ["svg"])), text(*study.few)


def main():
    name = sys.argv[0].removesuffix(".py")
    if name not in STUDIES:
        sys.exit(f"usage: points.py {'|'.join(STUDIES)} RESULT.json OUTDIR --kernel=NAME")
    study, parser = STUDIES[name], Arguments(STUDIES[name].module.__doc__)
    if study.reps:
        parts.add_arguments(parser, study.reps)
    else:
        parts.report_arguments(parser)
        parser.set_defaults(bench=None)
    parser.add_argument("--below", required=not study.reps, metavar="NAME", help="a kernel without the techniques")
    for option, (default, text) in study.options.items():
        parser.add_argument(f"--{option}", type=type(default), default=default, help=f"{text} ({default})")
    args = parser.parse_args()
    return parts.study(args, study.module.parts(args) if study.reps else [],
                       lambda *what: report(name, *what, args.below))


if __name__ == "__main__":
    if {*sys.argv[1:2]} & STUDIES.keys():
        sys.argv[:2] = [f"{sys.argv[1]}.py"]  # results, usage and errors name the study
    program.run(main, "interrupted; the same command continues after the finished parts")
