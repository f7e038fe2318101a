# SPDX-License-Identifier: MIT
"""Claims about what weights and models become. Their records are pages of studies, which depend on no machine: the
tables are read from the pages themselves."""
import math
import re
from pathlib import Path

from claim import Case, Plot, claim
from program import ResultError

OF_THE_WAY = 0.01  # drift that counts: of the way that the weights have moved
DRIFT, TRAINING = "extras/studies/study/drift.md", "extras/library/study/training.md"
LEAST = Plot("difference / the least that counts", 1)
MADE_BY = {DRIFT: "drift", TRAINING: "train-example"}  # targets of make


def bad(where, what, name):
    return ResultError(f"{where}: {what}; make {MADE_BY[name]} writes this page")


def tables(path, name):
    """The tables of a page, each {first cell of a line: {head: cell}}."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise bad(path, getattr(e, "strerror", None) or "not UTF-8", name) from None
    found = []
    for block in re.findall(r"(?m)(?:^\|.*\n)+", text + "\n"):
        rows = [[c.strip() for c in line.strip().strip("|").split("|")] for line in block.splitlines()]
        found.append({row[0]: dict(zip(rows[0], row)) for row in rows[2:]})
    return found


def table_with(page, name, *heads):
    """The table of a page that has these heads in every line."""
    for table in page:
        if table and all(head in line for head in heads for line in table.values()):
            return table
    raise bad(name, f"no table with {' and '.join(map(repr, heads))}", name)


def value(text, name):
    """(number, ±) of '0.7585 ± 0.0055'; None of '-'."""
    words = text.replace(",", "").split("±")
    if text == "-":
        return None
    try:
        numbers = [float(w) for w in words]
    except ValueError:
        numbers = [math.nan]
    if not all(map(math.isfinite, numbers)):
        raise bad(name, f"'{text}' is no number", name)
    return (*numbers, 0.0)[:2]


def drift(page, way, rules):
    """[(rule, [(steps, drift)])] of a way, by rising steps."""
    for table in page:
        own = {rule: [(head.partition(", ")[2], value(text, DRIFT)) for head, text in table[rule].items()
                      if head.startswith(f"{way}, ")] for rule in rules if rule in table}
        if any(own.values()):
            return [(rule, [(steps, v[0]) for steps, v in known if v]) for rule, known in own.items()
                    if any(v for _, v in known)]
    raise bad(DRIFT, f"no table with '{way}'", DRIFT)


def drift_case(name, known, counts=True):
    """The drift after the most steps."""
    return Case(name, known[-1][1] > OF_THE_WAY if counts else None, known[-1][1] / OF_THE_WAY)


@claim(9, "Duplicates applied one by one give wrong Adagrad and Adam", (DRIFT,),
       f"After the most steps the drift is more than {OF_THE_WAY:g} of the way.", LEAST)
def one_by_one_is_wrong(records):
    """A step for each lookup instead of one for the sum of a row's gradients. Drift is the distance of the weights
    from the weights of the right step, over the way that the latter have moved. A linear rule, sgd, is the control:
    there it is rounding alone."""
    known = drift(records[DRIFT], "one by one", ("sgd", "adagrad", "rowwise_adagrad", "adam"))
    return [drift_case(rule, numbers, rule != "sgd") for rule, numbers in known]


@claim(10, "Lazy Adam differs from dense Adam", (DRIFT, TRAINING),
       f"After the most steps the drift is more than {OF_THE_WAY:g} of the way. The AUC differs by more than "
       "its ±.", LEAST)
def lazy_is_not_dense(records):
    """A lazy step leaves rows without lookups alone; a dense one decays their moments and moves them on. What
    counts is the drift of the weights, and what the dense step adds to the AUC of a small model on a test log
    of planted clicks, beside the seeds' spread."""
    cases = []
    if DRIFT in records:
        known = drift(records[DRIFT], "dense", ("adam",))
        cases += [drift_case(f"weights of {rule}", numbers) for rule, numbers in known]
    if TRAINING in records:
        for name, line in table_with(records[TRAINING], TRAINING, "variant", "AUC, end").items():
            if name.endswith(", dense") and (auc := value(line["AUC, end"], TRAINING)):
                cases.append(Case(f"test AUC of {line['against']}", abs(auc[0]) > auc[1],
                                  abs(auc[0]) / auc[1] if auc[1] else None))
    return cases


@claim(12, "Row-wise Adagrad loses nothing against element-wise", (TRAINING,),
       "The metric gets worse by no more than the larger ±.", Plot("loss / larger ±", 1))
def rowwise_is_as_good(records):
    """Row-wise Adagrad keeps one number a row instead of one an element. What is compared is a small model on a
    test log of planted clicks, beside the seeds' spread. It is one task, with narrow rows; the
    [page](../../library/study/training.md) has its size."""
    table, cases = table_with(records[TRAINING], TRAINING, "rule", "AUC", "log loss"), []
    for metric, sign in (("AUC", 1), ("log loss", -1), ("normalised entropy", -1)):
        pair = [value(table[rule][metric], TRAINING) for rule in ("adagrad", "rowwise_adagrad")
                if rule in table and metric in table[rule]]
        if len(pair) == 2 and all(pair):
            (own, spread), (its, other) = pair
            loss, larger = sign * (own - its), max(spread, other)
            cases.append(Case(metric, loss <= larger, loss / larger if larger else None))
    return cases
