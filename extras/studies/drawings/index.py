# SPDX-License-Identifier: MIT
"""The page that shows all figures of a folder: index.html."""
import os
from collections import namedtuple
from html import escape

from program import write_whole

# source: of which result; command: draws it; measure: measures its data, if that is known
Entry = namedtuple("Entry", "drawing source command measure files")

STYLE = """body { font: 15px/1.5 sans-serif; max-width: 760px; margin: 2em auto; padding: 0 1em; color: #222 }
img { max-width: 100%; border: 1px solid #ddd } figure { margin: 2em 0 } code { background: #f4f4f4 }
.caution { color: #c00000; font-weight: bold } small { color: #555 }"""


def links(folder, files):
    return " ".join(f'<a href="{escape(os.path.relpath(f, folder))}">{escape(os.path.basename(f))}</a>' for f in files)


def figure(folder, entry):
    picture = next((f for f in entry.files if f.endswith(".svg")), entry.files[0])
    name, source = escape(entry.drawing.name), escape(entry.source)
    made = f"Drawn by <code>{escape(entry.command)}</code>"
    made += f", measured by <code>{escape(entry.measure)}</code>" if entry.measure else ""
    return (f'<figure id="{escape(os.path.basename(picture)[:-4])}">\n<h2>{name}: {source}</h2>\n'
            f'<img src="{escape(os.path.relpath(picture, folder))}" alt="{name}: {source}">\n'
            f"<figcaption>{escape(entry.drawing.caption)}<br>\n<small>{made}. Files: {links(folder, entry.files)}"
            "</small></figcaption>\n</figure>")


def write_index(folder, title, doubts, entries, missing):
    """Writes index.html; doubts are lines about the data, missing lines about figures without any."""
    path = os.path.join(folder, "index.html")
    lacks = "".join(f"<li>{escape(line)}</li>\n" for line in missing)
    write_whole(path, "\n".join([
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">', f"<title>{escape(title)}</title>",
        f"<style>{STYLE}</style>\n</head>\n<body>\n<h1>{escape(title)}</h1>",
        "<p>Each figure is there in the width of a page (7 in) and of a column (3.33 in).</p>",
        *(f'<p class="caution">{escape(line)}</p>' for line in doubts), *(figure(folder, e) for e in entries),
        f"<h2>Not drawn</h2>\n<ul>\n{lacks}</ul>" if missing else "", "</body>\n</html>"]) + "\n")
    return path
