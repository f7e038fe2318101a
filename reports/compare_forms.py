# SPDX-License-Identifier: MIT
"""A Comparison (compare.py) as text for a terminal, as Markdown for a pull request, and as JSON."""
import json
import statistics

from style import markdown_table, number, text_table
from verdict import fewest

HEADS = ("workload rule kernel mode", "old ms", "new ms", "new/old ± 95 %", "verdict")
ORDER = ("SLOWER", "FASTER")
FOLDED = ("UNSURE", "SAME")


def cells(row):
    name = " ".join(row.key)
    if not row.effect:
        return (name, *("-",) * 3, f"{row.word}, not compared")
    times = (f"{statistics.median(s.times):.3f}" for s in (row.old, row.new))
    e = row.effect
    return (name, *times, f"{e.ratio:.3f} ± {max(e.high - e.ratio, e.ratio - e.low):.3f}", row.word)


def change(c):
    return f"{c.word}: {' '.join(c.key)}: {number(c.old, 7)} -> {number(c.new, 7)} {c.what}"


def summary(found):
    """One line: the mean ratio, and how many rows got each verdict."""
    words = found.words()
    if not words:
        return "no row could be compared"
    mean = statistics.geometric_mean(r.effect.ratio for r in found.rows if r.effect)
    return (f"geometric mean of new/old: {mean:.3f}; " + ", ".join(f"{words.count(w)} {w}" for w in sorted(set(words)))
            + f"; changes below {100 * found.least:.3g} % do not count")


def text(found):
    lines = [*found.doubts(), *(found.notes or ["same machine and build settings"]), *found.missing,
             *text_table([HEADS, *map(cells, found.rows)], left=(0, len(HEADS) - 1)), summary(found),
             *map(change, found.changes)]
    if "UNSURE" in found.words():
        rows = len(found.words())
        lines.append(f"UNSURE: too much noise or too few samples: with {rows} rows, at least {fewest(rows)} samples on "
                     "each side can show a change of one")
    return lines + ["FAILED in new: " + ", ".join(failure) for failure in found.new.failures()]


def markdown(found, status, what):
    """What changed is open; what is unsure or the same is folded."""
    escape = lambda row: [c.replace("|", "\\|").replace("*", "\\*") for c in row]
    table = lambda rows: markdown_table(HEADS, [escape(cells(r)) for r in rows])
    rank = lambda r: ORDER.index(r.word) if r.word in ORDER else -1
    rows = sorted((r for r in found.rows if r.word not in FOLDED), key=rank)
    changed = lambda r: " (changed)" * (r.context.get("emb_dirty") == "yes")
    revision = lambda r: str(r.context.get("emb_commit", "?"))[:12] + changed(r)
    out = [f"### {what[0].upper()}{what[1:]}", "",
           f"`{revision(found.old)}` → `{revision(found.new)}`, {found.new.machine()}", "", summary(found), ""]
    out += [*table(rows), ""] if rows else []
    out += [f"- {line}" for line in (*map(change, found.changes), *found.missing, *found.doubts(), *found.notes)]
    out += [f"- FAILED in new: {', '.join(f)}" for f in found.new.failures()]
    for word in FOLDED:
        rest = [r for r in found.rows if r.word == word]
        if rest:
            out += ["", f"<details><summary>{len(rest)} {word}</summary>", "", *table(rest), "", "</details>"]
    return "\n".join([*out, "", f"status {status}: {what}"]) + "\n"


def data(found, status, what):
    rows = [dict(zip(("workload", "rule", "kernel", "mode"), r.key), verdict=r.word)
            | ({"old_ms": statistics.median(r.old.times), "new_ms": statistics.median(r.new.times)}
               | {k: getattr(r.effect, k) for k in ("ratio", "low", "high", "p")} if r.effect else {})
            for r in found.rows]
    counts = [{"row": " ".join(c.key), "what": c.what, "old": c.old, "new": c.new} for c in found.changes]
    return json.dumps({"old": found.old.path, "new": found.new.path, "least": found.least, "status": status,
                       "meaning": what, "rows": rows, "changes": counts, "missing": found.missing,
                       "notes": found.doubts() + found.notes}, indent=1) + "\n"
