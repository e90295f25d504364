"""The command ``lossless``: is each backend's text the reference's?"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING

import typer

from harness.cli.cells.show import AsJson, RunDir
from harness.cli.cells.table import setting_text
from harness.core.errors import UserError

if TYPE_CHECKING:
    from results.compare.lossless.verdicts import BackendText
    from results.run import Run

EXIT_CODES = {"lossy": 1, "unknown": 3}
"""By verdict on a backend that promises to be lossless."""
HEADINGS = (
    "backend", "against", "verdict", "equal", "95%", "floor", "first fork", "margin", "why",
)  # fmt: skip
NONE = "–"


def lossless(directory: RunDir, as_json: AsJson = False) -> None:
    """Say of each backend whether its text is the reference's: lossless, within the noise, or
    lossy. Of those that promise to be lossless: exit 1 when one is lossy, else 3 when it cannot
    be told of one."""
    import results
    from results.rows import text_verdicts

    stored = results.load(directory)
    found = text_verdicts(stored)
    if all(one.is_reference for one in found):
        raise UserError(f"{directory}: {_why_none(stored)}")
    if as_json:
        for one in found:
            print(json.dumps(dataclasses.asdict(one), allow_nan=False))
    else:
        from harness.cli.gate.shown import print_rows

        several = any(one.setting for one in found)
        print_rows(
            "text against the reference's",
            ("setting",) * several + HEADINGS,
            [(setting_text(one.setting),) * several + _cells(one) for one in found],
        )
    promised = {one.verdict for one in found if one.promised is True and not one.is_reference}
    if code := next((code for verdict, code in EXIT_CODES.items() if verdict in promised), 0):
        raise typer.Exit(code)


def _why_none(run: Run) -> str:
    """Why no text is compared with another."""
    from results.compare.pairing import variant

    ended = [one.record for one in run.stored if one.record.status == "ok"]
    real = [r.trial for r in ended if not r.is_replay]
    alone = len({variant(t.backend, t.options) for t in real}) < 2
    alone = alone and all(t.backend == run.experiment.get("reference") for t in real)
    if alone and any(record.is_replay for record in ended):
        return "decisions were replayed: answers are chance, there is no text to compare"
    return "nothing to compare: no two backends that ended well, or no reference"


def _cells(one: BackendText) -> tuple[str, ...]:
    options = f" {json.dumps(dict(one.options))}" if one.options else ""
    fork = one.fork
    margin = None if fork is None else fork["margin"]
    return (
        one.label or one.backend + options,
        one.against,
        "itself" if one.is_reference else one.verdict,
        _share(one.consistency),
        NONE if one.low is None else f"{_share(one.low)} to {_share(one.high)}",
        _share(one.noise_floor),
        NONE if fork is None else f"token {fork['token']} of {fork['request']}",
        NONE if margin is None else f"{margin:.3g}",
        one.why,
    )


def _share(value: float | None) -> str:
    return NONE if value is None else f"{value:.2%}"
