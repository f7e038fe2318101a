# SPDX-License-Identifier: MIT
"""What every report of a result says of its reliability: by what the run was cut short, and how many rows are not to be
quoted. A row may be quoted if the ratio that it states is precise (Group.quotable)."""
import math

from verdict import FEWEST, FEWEST_VISITS, few


class Doubts:
    """A part of Result."""

    def rows(self, groups=None):
        """(series, its uncertainty) of these groups, or of all, that have a time."""
        every = groups or [g for mode in dict.fromkeys(s.mode for s in self.series) for g in self.groups(mode)]
        return [(s, g.uncertainty(s)) for g in every for s in g.measured()]

    def caution(self, groups=None):
        """One line about the rows of these groups, or of all, that are not to be quoted; '' if there are none."""
        rows = self.rows(groups)
        unsure = [s for s, share in rows if share is not None and share > self.precision]
        if not unsure:
            return ""
        shares = sorted(share for _, share in rows if share is not None)
        known = [(what, shares[math.ceil(q * len(shares)) - 1])
                 for what, q in (("half of the rows are known", 0.5), ("95 %", 0.95))]
        line = ", ".join(f"{what} within {100 * share:.2g} %" for what, share in known if share < math.inf)
        line += "; " * bool(line)
        line += f"{len(unsure)} of {len(rows)} rows are not to be quoted: uncertain by more than {100 * self.precision:g} %"
        if any(few(s.beside()[0]) for s in unsure):
            line += f", or of fewer than {FEWEST} samples or {FEWEST_VISITS} visits"
        if all(len(s.visits()) == 1 for s, _ in rows):
            line += "; all were measured at one time, and another run may differ by more"
        return line

    def cut_short(self):
        """One line that says what cut the run short, a signal or a crash, and how many samples there are; or ''."""
        cut = self.context.get("emb_cut_short")
        return f"cut short: {cut}" if cut else ""

    def doubts(self, groups=None):
        """cut_short() and caution() as lines, which every report of a result prints."""
        return [line for line in (self.cut_short(), self.caution(groups)) if line]

    def doubt(self, groups=None):
        """The doubts in one line, for a picture or a cell of a table; '' if there are none."""
        return "; ".join(self.doubts(groups))

    def cautions(self, mark="", groups=None):
        """The doubts as lines to put above a text, and an empty line; mark ** makes them bold in a page."""
        lines = [f"{mark}{line}{mark}" for line in self.doubts(groups)]
        return [*lines, ""] if lines else []
