# SPDX-License-Identifier: MIT
"""Puts SVG files of gnuplot and matplotlib into a page: their ids get a prefix, so that those of two figures never
clash; their colours become CSS variables, which a dark theme can change; their texts take the font of the page.

A colour #rrggbb is var(--crrggbb,#rrggbb): a page that sets no variable shows the colours of the file.
"""
import colorsys
import re
import xml.etree.ElementTree as ET

from program import ResultError

NAMED = {"black": "#000000", "white": "#ffffff", "lightgrey": "#d3d3d3"}
COLOUR = re.compile(r"#[0-9a-fA-F]{6}\b|rgb\(\s*\d+\s*,\s*\d+\s*,\s*\d+\s*\)|\b(?:" + "|".join(NAMED) + r")\b")
PAINT = {"fill", "stroke", "color", "style", "stop-color"}
UNUSED = {"metadata", "title", "desc", "style", "filter"}  # elements that a page has no use for
SIZES = {"width", "height", "version"}
LEAST_CONTRAST = 4.5  # of a mark, on the paper of the dark theme
TINT = 0.84  # a colour at least this light fills an area behind the marks


# --- colours
def hexadecimal(colour):
    """'rgb( 86, 180, 233)' as '#56b4e9'."""
    if colour.startswith("rgb"):
        return "#" + "".join(f"{int(n):02x}" for n in re.findall(r"\d+", colour))
    return NAMED.get(colour, colour).lower()


def variable(colour):
    """The CSS text of a colour, which a theme can change."""
    colour = hexadecimal(colour)
    return f"var(--c{colour[1:]},{colour})"


def luminance(rgb):
    """Relative luminance as WCAG 2 defines it."""
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055)**2.4 for c in rgb)
    return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear))


def in_the_dark(colour):
    """The colour that replaces #rrggbb on dark paper: greys and tints change lightness about as in a negative, and
    marks keep their hue and get as light as they must to be seen."""
    red, green, blue = (int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5))
    hue, light, saturation = colorsys.rgb_to_hls(red, green, blue)
    negative = 0.93 - 0.84 * light
    if saturation < 0.05 or light >= TINT:
        rgb = colorsys.hls_to_rgb(hue, negative, saturation / 2)
    else:
        paper, rgb = luminance((0.93 - 0.84,) * 3), (red, green, blue)
        while (luminance(rgb) + 0.05) / (paper + 0.05) < LEAST_CONTRAST:
            light += 0.02
            rgb = colorsys.hls_to_rgb(hue, light, saturation)
    return "#" + "".join(f"{round(255 * c):02x}" for c in rgb)


def dark_theme(text):
    """The CSS variables of all colours that a page uses, for its dark theme."""
    colours = sorted(set(re.findall(r"var\(--c([0-9a-f]{6}),", text)))
    return "\n".join(f"--c{c}: {in_the_dark('#' + c)};" for c in colours)


# --- the file
def local(name):
    """A name without its namespace."""
    return name.rpartition("}")[2]


def repaint(name, value):
    """The value of an attribute, with its colours as variables and without a font."""
    if name == "style":
        value = re.sub(r"font: ([\d.]+px) [^;]*", r"font-size: \1", value)
        value = re.sub(r"font-family:[^;]*;?", "", value)
    return COLOUR.sub(lambda found: variable(found[0]), value) if name in PAINT else value


def rename(name, value, prefix):
    """The value of an attribute; the ids in it get the prefix."""
    if name == "id":
        return prefix + value
    if name == "href":
        return re.sub(r"^#", f"#{prefix}", value)
    return re.sub(r"url\(#", f"url(#{prefix}", value)


def clean(element, prefix):
    """Rewrites an element and all in it in place."""
    element.tag = local(element.tag)
    attributes = {local(k): v for k, v in element.attrib.items()}
    element.attrib.clear()
    for name, value in attributes.items():
        if name != "font-family":
            element.set(name, rename(name, repaint(name, value), prefix))
        elif value.endswith(":Bold"):  # as gnuplot writes it
            element.set("font-weight", "bold")
    if element.tag not in ("text", "tspan"):
        element.text = element.text.strip() if element.text else None
    for child in list(element):
        if local(child.tag) in UNUSED:
            element.remove(child)
            continue
        clean(child, prefix)
        if element.tag != "text":
            child.tail = None
        if child.tag in ("g", "defs") and not len(child):
            element.remove(child)


def drop_unused(root):
    """Removes markers that nothing draws; gnuplot defines all that it knows."""
    while True:
        used = set(re.findall(r"(?:#)([\w.-]+)", " ".join(v for e in root.iter() for k, v in e.attrib.items()
                                                         if k != "id")))
        unused = [(defs, e) for defs in root.iter("defs") for e in list(defs)
                  if not any(i.get("id") in used for i in e.iter())]
        if not unused:
            return
        for defs, element in unused:
            defs.remove(element)


def inline(text, prefix, title, name="the figure"):
    """(an SVG file as an element of a page, its width in pixels)"""
    try:
        root = ET.fromstring(text)
    except ET.ParseError as e:
        raise ResultError(f"{name}: not SVG ({e})") from None
    box = root.get("viewBox", "").split()
    if local(root.tag) != "svg" or len(box) != 4:
        raise ResultError(f"{name}: an SVG without a viewBox")
    width = float(box[2]) * (4 / 3 if root.get("width", "").endswith("pt") else 1)
    clean(root, prefix)
    drop_unused(root)
    for size in SIZES & root.attrib.keys():
        del root.attrib[size]
    # What matplotlib says in a style sheet, and the colour of texts that have none.
    root.attrib.update({"fill": variable("black"), "stroke-linejoin": "round", "stroke-linecap": "butt",
                        "role": "img", "aria-label": title})
    return ET.tostring(root, encoding="unicode"), round(width)
