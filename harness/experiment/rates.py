"""The section ``rates`` of an experiment file: made-up decisions by name, for `replay`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

from harness.core.errors import UserError
from harness.core.files import user_path
from harness.core.nouns import to_json
from harness.experiment.section import YamlSection

REPLAY = "replay"
"""The option of a backend that may name rates."""
TAKEN = "demo"
"""What that option calls the bundled traces."""


def take_rates(
    top: YamlSection, check: Callable[[Mapping[str, Any], str], object]
) -> dict[str, Any]:
    """The rates by name, taken out, each checked by `check` with the words that name it. Raises
    `UserError`."""
    section = top.section("rates")
    found = section.rest()
    for name, rates in found.items():
        where = section.label(name)
        if name == TAKEN:
            raise UserError(f"{where}: the bundled traces are called so; give another name")
        if not isinstance(rates, Mapping):
            raise section.wrong(
                name, "a mapping of exits, acceptance, found, length, correlation", rates
            )
        section.plain(name, rates)
        check(rates, where)
    return {name: to_json({"name": name, **rates}) for name, rates in found.items()}


def with_rates(
    options: Mapping[str, Any], rates: Mapping[str, Any], section: YamlSection
) -> dict[str, Any]:
    """A backend's options, with what its `replay` names among the rates in the place of the name:
    a trial holds all that decides its numbers. Raises `UserError` for a name that is nearly theirs,
    where no file is called so."""
    found, replay, known = dict(options), options.get(REPLAY), [*rates, TAKEN]
    if isinstance(replay, str) and replay in rates:
        found[REPLAY] = rates[replay]
    elif isinstance(replay, str) and replay not in known and get_close_matches(replay, known):
        if not user_path(replay, section.label(REPLAY)).exists():
            raise section.error(REPLAY, f"no rates or trace '{replay}'", replay, known)
    elif isinstance(replay, Mapping):
        found[REPLAY] = to_json(replay)
    return found
