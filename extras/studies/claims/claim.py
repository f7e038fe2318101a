# SPDX-License-Identifier: MIT
"""What a claim is: a function that turns records into cases. A case says whether the claim's criterion holds for it,
and judge() makes the verdict of all cases, the same way for every claim.

A function registers itself with @claim(...). It gets {name: record} of those records of a machine that the claim
reads and that exist; a record is a result, or the tables of a page, which is of no machine.
"""
from dataclasses import dataclass

from style import number

HOLDS, ONLY, NOT, UNKNOWN = "holds", "only when", "does not hold", "not measured"
NAMED = 4  # cases that a verdict names; it counts the rest
CLEAR = 0.8  # share of the cases outside of the part between always and never, for the verdict to state them
MOST = 0.5   # share of the cases on the side of always, for the verdict to state it alone
PAGE = ".md"  # records that are pages end with it

CLAIMS = {}  # number: Claim


@dataclass(frozen=True)
class Case:
    name: str
    figure: str        # what was measured
    ok: bool | None    # whether the criterion holds; None: does not count, for information or undecided
    at: float | None = None  # where the case lies on the axis of the claim


@dataclass(frozen=True)
class Found:
    cases: list          # of the table
    points: list = None  # of the verdict, if these are more
    note: str = ""       # sentences that follow from the data

    def verdict(self, axis):
        return judge(self.cases if self.points is None else self.points, axis)


@dataclass(frozen=True)
class Verdict:
    word: str
    when: str = ""

    def __str__(self):
        return f"{self.word} {self.when}".strip()


@dataclass(frozen=True)
class Claim:
    number: int
    title: str
    needs: tuple      # names of records; it is measured if one of them exists
    text: str         # what is said, what is compared, and what a figure of the table is
    criterion: str    # of a case
    axis: tuple       # (name, text of a value) on which cases lie, or ()
    picture: str      # of the page of a machine that has these records, or ''
    find: object      # function of the records: Found

    @property
    def of_pages(self):
        """Whether it reads pages, which are of no machine."""
        return self.needs[0].endswith(PAGE)


def claim(nth, title, needs, criterion, axis=(), picture=""):
    """Registers the function that follows; its docstring is the text."""
    def register(find):
        assert nth not in CLAIMS, nth
        CLAIMS[nth] = Claim(nth, title, needs, " ".join(find.__doc__.split()), criterion, axis, picture, find)
        return find
    return register


# --- the verdict
def judge(cases, axis=()):
    """holds: in all cases; does not hold: in none; otherwise only when: with a limit on the axis if there is a clear
    one, or else with the names of the fewer cases, or of some of them."""
    cases = [c for c in cases if c.ok is not None]
    good, bad = ([c for c in cases if c.ok is ok] for ok in (True, False))
    if not cases:
        return Verdict(UNKNOWN)
    if not bad:
        return Verdict(HOLDS)
    if not good:
        return Verdict(NOT)
    clear, one_sided = limits(cases, axis)
    few = min(len(good), len(bad)) <= NAMED
    return Verdict(ONLY, clear or (one_sided if one_sided and not few else named(good, bad)))


def limits(cases, axis):
    """(clear, one-sided): what the axis says of where the criterion is met, or ''. Clear: always on one side, never
    on the other, and few cases between them. One-sided: always on a side that has most of the cases."""
    clear = one_sided = ""
    if not axis or any(c.at is None for c in cases):
        return clear, one_sided
    name, text = axis
    for sign, most, not_any_more in ((1, "at most", "from {} on"), (-1, "at least", "up to {}")):
        order = sorted(cases, key=lambda c: (sign * c.at, c.ok))
        first = next(i for i, c in enumerate(order) if not c.ok)  # before it, all are good
        last = len(order) - next(i for i, c in enumerate(reversed(order)) if c.ok)  # from it on, all are bad
        where = f"{name} is {most} {text(order[first - 1].at)}"
        if first and last < len(order) and first + len(order) - last >= CLEAR * len(order):
            clear = f"{where} (not {not_any_more.format(text(order[last].at))})"
        elif first >= MOST * len(order):
            rest = order[first:]
            one_sided = f"{where} (elsewhere in {sum(c.ok for c in rest)} of {len(rest)} cases)"
    return clear, one_sided


def named(good, bad):
    """'it is one of: a; b (2 of 9 cases)', or 'it is none of: c (8 of 9 cases)', whichever names fewer."""
    few, word = (good, "one") if len(good) <= len(bad) else (bad, "none")
    more = f" and {len(few) - NAMED} more" * (len(few) > NAMED)
    return (f"it is {word} of: {'; '.join(c.name for c in few[:NAMED])}{more} "
            f"({len(good)} of {len(good) + len(bad)} cases)")


# --- texts of values
def percent(share, digits=2):
    return number(100 * share, digits) + " %"


def plain(value):
    return f"{value:,.0f}"


def times(ratio):
    return number(ratio) + "x"
