# SPDX-License-Identifier: MIT
"""What a claim is: a function that turns records into cases. A case says whether the claim's criterion holds for it,
and judge() makes the verdict of all cases in plain words, the same way for every claim.

A function registers itself with @claim(...). It gets {name: record} of those records of a machine that the claim
reads and that exist; a record is a result, or the tables of a page, which is of no machine.
"""
from collections import namedtuple
from dataclasses import dataclass

from style import number

TRUE, FALSE, UNKNOWN = "true", "false", "not measured"
NAMED = 4     # kinds of cases that a verdict names; more of them are counted
CLEAR = 0.8   # share of the cases outside of the part between always and never, for the verdict to state them
NEARLY = 0.9  # share of the cases that makes a claim nearly always true
PAGE = ".md"  # records that are pages end with it

CLAIMS = {}  # number: Claim

Axis = namedtuple("Axis", "text noun")  # on which cases lie: text of a value, and what follows it
# What a case's value is, where the criterion begins to hold (or None), whether the axis of the figure is logarithmic.
Plot = namedtuple("Plot", "label limit log", defaults=(None, False))


# ok: whether the criterion holds, or None if the case does not count; value: what was measured; at: where the case
# lies on the axis of the claim.
Case = namedtuple("Case", "name ok value at", defaults=(None,))


@dataclass(frozen=True)
class Claim:
    number: int
    title: str
    needs: tuple      # names of records; it is measured if one of them exists
    text: str         # what is said, and what is compared
    criterion: str    # of a case
    plot: Plot
    axis: Axis
    gpu: bool         # whether it is one about GPUs, too
    find: object      # function of the records: [Case]

    @property
    def of_pages(self):
        """Whether it reads pages, which are of no machine."""
        return self.needs[0].endswith(PAGE)


def claim(nth, title, needs, criterion, plot, axis=(), gpu=True):
    """Registers the function that follows; its docstring is the text."""
    def register(find):
        assert nth not in CLAIMS, nth
        CLAIMS[nth] = Claim(nth, title, needs, " ".join(find.__doc__.split()), criterion, plot, axis, gpu, find)
        return find
    return register


# --- the verdict
def judge(cases, axis=()):
    """In plain words: true, or false, in all cases; else true from a value of the axis on if there is a clear one, or
    else the few cases that it is true for, or not true for, or how many."""
    cases = [c for c in cases if c.ok is not None]
    good, bad = ([c for c in cases if c.ok is ok] for ok in (True, False))
    if not cases:
        return UNKNOWN
    if not (good and bad):
        return TRUE if good else FALSE
    return limit(cases, axis) or named(good, bad) or counted(len(good), len(cases))


def limit(cases, axis):
    """From which value on the criterion is met: always on one side of it, never on another, and few cases between. ''
    without such a value."""
    if not axis or any(c.at is None for c in cases):
        return ""
    for sign, on, off in ((1, "down", "up"), (-1, "up", "down")):
        order = sorted(cases, key=lambda c: (sign * c.at, c.ok))
        first = next(i for i, c in enumerate(order) if not c.ok)  # before it, all are good
        last = len(order) - next(i for i, c in enumerate(reversed(order)) if c.ok)  # from it on, all are bad
        if first and last < len(order) and first + len(order) - last >= CLEAR * len(order):
            where = " ".join(filter(None, (axis.text(order[first - 1].at), axis.noun)))
            return f"{TRUE} from {where} {on}, false from {axis.text(order[last].at)} {off}"
    return ""


def named(good, bad):
    """'true but for cached and wide', or 'true only for cached', whichever names fewer; '' if these are many. What is
    of both kinds, on several machines, has its number of cases."""
    names = [dict.fromkeys(c.name for c in cases) for cases in (good, bad)]
    few, word = (names[0], "only for") if len(names[0]) <= len(names[1]) else (names[1], "but for")
    if len(few) > NAMED:
        return ""
    *others, last = few
    own = [sum(c.name in few for c in cases) for cases in (good, bad)]
    more = f", and there in {own[0]} of {sum(own)} cases" * bool(names[0].keys() & names[1].keys())
    return f"{TRUE} {word} " + ", ".join(others) + " and " * bool(others) + last + more


def counted(count, every):
    share = count / every
    word = "nearly always true, " if share >= NEARLY else "nearly never true, " if share <= 1 - NEARLY else f"{TRUE} "
    return f"{word}in {count:,} of {every:,} cases"


# --- texts of values
def percent(share, digits=2):
    return number(100 * share, digits) + " %"


def plain(value):
    return f"{value:,.0f}"
