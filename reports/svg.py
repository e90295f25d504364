"""From a matplotlib figure to SVG that lives inside the page.

The page's style sheet decides the colours, so that one drawing serves light, dark and print:
figures are drawn with marker colours (`INK`, `MUTED`, `GRID`, `SURFACE`, `series_colour`) that
become CSS variables here. Text stays text and takes the page's font. Ids are prefixed per panel, so
that panels do not clash.
"""

from __future__ import annotations

import io
import re
import warnings
import xml.etree.ElementTree as ElementTree
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#01fe01"
MUTED = "#01fe02"
GRID = "#01fe03"
SURFACE = "#01fe04"
SERIES_COUNT = 8

RC = {
    "svg.fonttype": "none",
    "svg.hashsalt": "decodebench",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 8,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": GRID,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "xtick.labelcolor": MUTED,
    "ytick.color": GRID,
    "ytick.labelcolor": MUTED,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.minor.size": 0,
    "ytick.minor.size": 0,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
}

_VARIABLES = {INK: "--ink", MUTED: "--muted", GRID: "--rule", SURFACE: "--surface"}
_SVG = "{http://www.w3.org/2000/svg}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_MARKER_COLOUR = re.compile(r"#01f[de]0[0-9]")
_DECIMALS = re.compile(r"(\d+\.\d{2})\d+")


def series_colour(index: int) -> str:
    """The marker colour of a backend: `--series-0` is the reference, the others go round."""
    slot = 0 if index == 0 else 1 + (index - 1) % (SERIES_COUNT - 1)
    return f"#01fd0{slot}"


def inline_svg(figure: Figure, prefix: str, title: str) -> Markup:
    """The figure as an `<svg>` element for an HTML page; equal figures give equal text.

    `prefix` must be unique in the page. A group id ``series=NAME=NOTE`` (matplotlib's `set_gid`)
    becomes the attribute ``data-variant="NAME"``, which the page's filters use, and a tooltip. Must
    run inside ``matplotlib.rc_context(RC)``.
    """
    buffer = io.StringIO()
    metadata: dict[str, Any] = {"Date": None, "Creator": None, "Format": None, "Type": None}
    with warnings.catch_warnings():
        # the reader's font draws the text, not the one that is measured here
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    root = ElementTree.fromstring(buffer.getvalue())
    _drop(root, {f"{_SVG}metadata", f"{_SVG}style"})
    for element in list(root.iter()):
        _rewrite(element, prefix)
    _label(root, prefix, title)
    text = ElementTree.tostring(root, encoding="unicode")
    return Markup(text)


def _drop(parent: ElementTree.Element, tags: set[str]) -> None:
    for child in list(parent):
        if child.tag in tags:
            parent.remove(child)
        else:
            _drop(child, tags)


def _rewrite(element: ElementTree.Element, prefix: str) -> None:
    element.tag = element.tag.removeprefix(_SVG)
    element.tail = None
    if element.tag not in {"text", "tspan", "title"}:
        element.text = None
    attributes = element.attrib
    _rename_id(element, prefix)
    if _HREF in attributes:
        attributes["href"] = "#" + prefix + attributes.pop(_HREF)[1:]
    if "clip-path" in attributes:
        attributes["clip-path"] = attributes["clip-path"].replace("url(#", f"url(#{prefix}")
    if "style" in attributes:
        attributes["style"] = _style(attributes["style"])
    if "d" in attributes:
        attributes["d"] = _DECIMALS.sub(r"\1", " ".join(attributes["d"].split()))
    for key in ("x", "y"):
        if key in attributes:
            attributes[key] = _DECIMALS.sub(r"\1", attributes[key])
    if re.match(r"rotate\(-?0 ", attributes.get("transform", "")):
        del attributes["transform"]


def _rename_id(element: ElementTree.Element, prefix: str) -> None:
    name = element.attrib.pop("id", "")
    if name.startswith("series="):
        _, variant, note = name.split("=", 2)
        element.attrib["data-variant"] = variant
        if note:
            title = ElementTree.Element("title")
            title.text = note
            element.insert(0, title)
    elif element.tag in {"path", "clipPath"} and name:
        element.attrib["id"] = prefix + name


def _style(style: str) -> str:
    kept = [part for part in style.split("; ") if not part.startswith("font-family")]
    return _MARKER_COLOUR.sub(_variable, "; ".join(kept))


def _variable(match: re.Match[str]) -> str:
    colour = match.group()
    if colour in _VARIABLES:
        return f"var({_VARIABLES[colour]})"
    return f"var(--series-{int(colour[-1], 16)})"


def _label(root: ElementTree.Element, prefix: str, title: str) -> None:
    width, height = (
        float(root.attrib.pop(side).removesuffix("pt")) for side in ("width", "height")
    )
    root.attrib.update({"role": "img", "aria-labelledby": f"{prefix}title"})
    root.attrib["style"] = f"max-width: {width * 1.45:.0f}px; aspect-ratio: {width:g} / {height:g}"
    heading = ElementTree.Element("title", {"id": f"{prefix}title"})
    heading.text = title
    root.insert(0, heading)
