"""Inline SVG: the page's colours and font, ids that cannot clash, the same bytes every time."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

from reports.panels import Panel, draw, drawing
from reports.svg import INK, series_colour


def _paint(axes: Any) -> None:
    line = axes.plot([1, 2, 3], [1, 3, 2], color=series_colour(2), label="a")[0]
    line.set_gid("series=v3=<b>: 2 & 3")
    axes.text(1, 1, "<script>$x^2$</script>", color=INK)


def _draw(prefix: str) -> str:
    with drawing():
        return str(draw(Panel(_paint, "A & <B>"), prefix))


def test_colours_are_variables_of_the_page() -> None:
    svg = _draw("p-")
    assert "var(--series-2)" in svg
    assert "var(--ink)" in svg
    assert "#01f" not in svg
    assert "font-family" not in svg


def test_text_is_escaped_and_never_read_as_mathematics() -> None:
    svg = _draw("p-")
    assert "&lt;script&gt;$x^2$&lt;/script&gt;" in svg
    assert "<script" not in svg
    assert '<title id="p-title">A &amp; &lt;B&gt;</title>' in svg


def test_a_name_outside_the_drawing_font_is_text_without_a_warning() -> None:
    def paint(axes: Any) -> None:
        axes.text(1, 1, "\u540d")

    with drawing():
        assert "\u540d" in str(draw(Panel(paint, "A"), "p-"))


def test_series_carry_the_filter_attribute_and_a_tooltip() -> None:
    root = ElementTree.fromstring(_draw("p-"))
    (group,) = (e for e in root.iter() if e.get("data-variant") == "v3")
    title = group.find("title")
    assert title is not None
    assert title.text == "<b>: 2 & 3"


def test_ids_are_unique_and_every_reference_finds_its_own() -> None:
    page = _draw("p-") + _draw("q-")
    ids = re.findall(r'\bid="([^"]+)"', page)
    references = re.findall(r'(?:href="#|url\(#)([^")]+)', page)
    assert len(ids) == len(set(ids))
    assert references
    assert set(references) <= set(ids)
    assert all(i.startswith(("p-", "q-")) for i in ids)


def test_equal_figures_give_equal_text() -> None:
    assert _draw("p-") == _draw("p-")


def test_nothing_in_it_could_be_fetched() -> None:
    addresses = re.findall(r'(?:href|src)="([^"]*)"|url\(([^)]*)\)', _draw("p-"))
    assert all((one or other).startswith("#") for one, other in addresses)
