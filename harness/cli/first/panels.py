"""In which order, and under which headings, `decodebench --help` lists the commands."""

from __future__ import annotations

from collections.abc import Mapping

import typer

PANELS: Mapping[str, tuple[str, ...]] = {
    "Measure and look": ("quick", "init", "run", "show", "report"),
    "Compare versions and tools": ("compare", "history", "gate", "import", "export"),
    "Ask more of a system": ("goodput", "lossless", "trace"),
    "Models, exits and drafts": ("train", "calibrate", "profile", "plan", "simulate"),
    "What there is": ("list", "schema", "doctor", "selftest", "cache"),
}
"""By heading the names of its commands; what stands nowhere comes last, under a heading of its own.
"""


def arrange(app: typer.Typer) -> None:
    """Put the commands of `app` into the order and under the headings of `PANELS`."""
    places = {name: panel for panel, names in PANELS.items() for name in names}
    order = list(places)

    def place(name: str) -> int:
        return order.index(name) if name in order else len(order)

    for one in app.registered_commands:
        assert one.callback is not None
        one.name = one.name or one.callback.__name__
        one.rich_help_panel = places.get(one.name, one.rich_help_panel)
        # as one line, which the terminal breaks where it ends
        one.short_help = " ".join((one.callback.__doc__ or "").partition("\n\n")[0].split())
    for group in app.registered_groups:
        group.rich_help_panel = places.get(group.name or "", group.rich_help_panel)
    app.registered_commands.sort(key=lambda one: place(one.name or ""))
    app.registered_groups.sort(key=lambda group: place(group.name or ""))
