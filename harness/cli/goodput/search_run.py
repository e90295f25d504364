"""A search on every system of an experiment file; what came of each is told and kept as it ends."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from harness.cli import run as running
from harness.cli import wiring
from harness.cli.asked.beforehand import (
    refuse_other_chats,
    refuse_unscorable,
    replayed,
    too_long,
)
from harness.cli.folders.run_folder import check_folder
from harness.cli.goodput import probing
from harness.cli.goodput.kept import KeptAnswer
from harness.cli.goodput.probe_lengths import SPANS, waited_s
from harness.cli.goodput.searching import (
    CLIENT,
    HIGHEST,
    USED_UP,
    FoundGoodput,
    SearchedGoodput,
    SearchSettings,
    SystemSearch,
)
from harness.cli.progress import SweepDisplay, warn_of_others
from harness.cli.repeats.only import Wanted, named_by, one_load
from harness.core.errors import UserError, as_argument, nearest
from harness.core.files import only_writer
from harness.core.nouns import Slo
from harness.experiment.config import Experiment, load_experiment
from harness.measure.machine.others import OthersWatch
from results.goodput.stored import ANSWER
from results.store.folder import Store

LONG_MIN = 15.0
"""A probe that lasts longer is told of beforehand."""


@dataclass(frozen=True, slots=True)
class SearchedSystems:
    """What came of all systems that were asked for."""

    folder: Path
    found: list[SearchedGoodput]
    answer: dict[str, Any]
    """As goodput.json has it, with the systems of earlier searches where `--only` left them."""

    @property
    def failed(self) -> bool:
        """Whether a probe of any system did not end well."""
        return any(one.failed for one in self.found)


def search_all(
    file: Path,
    out: Path | None,
    only: str | None,
    asked: Callable[[Slo], SearchSettings],
    *,
    quiet: bool,
) -> SearchedSystems:
    """Search on each system of the experiment in `file`, shown as it goes; its line is printed when
    it ends, unless `quiet`. A system whose probe fails costs itself alone.

    Args:
        file: the experiment.
        out: the run folder; None: one below runs/.
        only: the one backend to search on; the others stay in goodput.json as they are.
        asked: the settings, but for the experiment's objective.

    Raises `UserError` for bad input, and where an engine refuses it for every system.
    """
    watch = OthersWatch()
    experiment = _experiment(file, only)
    limits = experiment.limits
    settings = dataclasses.replace(
        asked(experiment.slo), most_requests=limits.prompts, most_bundled=limits.bundled_rows
    )
    directory = out if out is not None else running.RUNS / f"{experiment.name}-goodput"
    check_folder(directory)
    wanted = named_by(only, experiment)
    said = set[str]()
    resolved = _pinned(experiment, wanted, settings, said)
    with only_writer(directory):
        kept = KeptAnswer(directory, _about(settings), only=only)
        warn_of_others(watch.share())
        store = Store(directory)
        store.write_experiment(resolved.to_yaml())
        found = []
        with (
            SweepDisplay() as progress,
            probing.Prober(store, experiment, kept.began, progress.show, said) as prober,
        ):
            for system in probing.systems(experiment, only):
                one = SystemSearch(prober, system, settings).searched()
                kept.ended(one.plain(settings.confidence))
                found.append(one)
                if settings.least_score is not None and one.answers is None and one.first.sustained:
                    name = one.system.label()
                    typer.echo(f"warning: {name}: --least-score: no answer has a score", err=True)
                for line in () if quiet else _lines(one):
                    progress.result(line)
    if all(one.refusal and one.first.sustained is None for one in found):
        raise UserError("; ".join(dict.fromkeys(one.refusal for one in found)))
    return SearchedSystems(directory, found, kept.plain())


def tell(done: SearchedSystems, *, as_json: bool) -> None:
    """Print where the answers are, or all of them. Raises `UserError` where no system sustains any
    rate, though none failed."""
    if as_json:
        print(json.dumps(done.answer, allow_nan=False))
    else:
        print(
            f"goodput: {done.folder / ANSWER}; next: decodebench report {as_argument(done.folder)}"
        )
    if not done.failed and all(one.first.sustained is None for one in done.found):
        raise UserError(
            "; ".join(f"{one.system.label()}: {_told(one.first)}" for one in done.found)
        )


def _experiment(file: Path, only: str | None) -> Experiment:
    experiment = load_experiment(file, wiring.known())
    if experiment.slo == Slo():
        raise UserError(f"{file}: slo: is missing; expected ttft_ms, tpot_ms or e2e_ms")
    names = {choice.name for choice in experiment.backends}
    if only is not None and only not in names:
        raise UserError(f"--only: no backend '{only}'; {nearest(only, names)}")
    return experiment


def _pinned(
    experiment: Experiment, wanted: Wanted, settings: SearchSettings, said: set[str]
) -> Experiment:
    """The experiment with its content pinned; says what is odd about it, as `run` does, and where
    probes will take long. `said` takes up what they need not say again. Raises `UserError`."""
    every = one_load(experiment, wanted)
    refuse_other_chats(every)
    if settings.least_score is not None:
        refuse_unscorable(every)
    resolved = wiring.resolve(experiment, every, said)
    every = one_load(resolved, wanted)
    for warning in (*wiring.warnings(every), *too_long(every), *replayed(every)):
        typer.echo(f"warning: {warning}", err=True)
    if (minutes := waited_s(settings.slo) * SPANS / 60) > LONG_MIN:
        told = f"each probe lasts {minutes:,.0f} minutes or longer, {SPANS:g} times the longest"
        typer.echo(f"warning: slo: {told} of ttft_ms and e2e_ms", err=True)
    return resolved


def _about(settings: SearchSettings) -> dict[str, Any]:
    """What rates are searched for, without which they are not to be set beside each other."""
    return {
        "share": settings.share,
        "confidence": settings.confidence,
        "requests": settings.requests,
        "slo": dataclasses.asdict(settings.slo),
        "least_score": settings.least_score,
    }


def _lines(one: SearchedGoodput) -> Iterator[str]:
    name = one.system.label()
    yield f"{name}: {_told(one.first)}"
    if (answers := one.answers) is not None and one.first.sustained:
        right = answers.right_per_s
        beside = "" if right is None else f"; right and within the slo {right:.3g}/s"
        yield f"{name}: {answers.words()}{beside}"
    for scale, found in sorted(one.scales.items()):
        yield f"{name}, slo x {scale:g}: {_told(found)}"


def _told(one: FoundGoodput) -> str:
    if one.found is None:
        limit = f"{'limited by ' * one.limit.startswith(CLIENT)}{one.limit}"
        if one.held is None:
            return f"no rate found: {limit}"
        return f"held at {one.held:g}/s{',' if one.limit == HIGHEST else ';'} {limit}"
    rate, low, high = one.found
    beside = f" ({one.disturbed} of them disturbed)" if one.disturbed else ""
    wide = "; more --requests or --max-probes make the interval narrower" * (one.ended == USED_UP)
    found = f"{rate:.3g}/s [{low:.3g}, {high:.3g}] in {len(one.probes)} probes{beside}"
    return f"{found}; limited by {one.limit}{wide}"
