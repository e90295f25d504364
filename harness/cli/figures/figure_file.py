"""An experiment file of simulated figures: what each is over, its series and its words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backends.tetris.drift import DRIFTS
from backends.tetris.figures.forecasts import FORECASTS, MEASURED
from backends.tetris.figures.goodput import PIPELINE, SYSTEMS
from backends.tetris.figures.point import FigurePoint
from backends.tetris.figures.shift import SHIFTED
from backends.tetris.labels.options import LEAST_WINDOW_S
from backends.tetris.survival import LEAST_WINDOWS
from harness.cli.figures.settings import SETTINGS, point_from
from harness.core.errors import UserError
from harness.experiment.config import folder_name
from harness.experiment.section import YamlSection
from harness.experiment.strict_yaml import read_yaml

GOODPUT, BY_MIX = "goodput", "goodput by mix"
DEVICES, PRICE, PLANNING = "devices", "price", "planning"
SURVIVAL, ERROR = "survival", "forecast error"
MEASURES: dict[str, tuple[str, ...]] = {
    GOODPUT: SYSTEMS,
    BY_MIX: SHIFTED,
    DEVICES: SYSTEMS[:-1],
    PRICE: SYSTEMS[:-1],
    PLANNING: SYSTEMS[:1],
    SURVIVAL: FORECASTS,
    ERROR: tuple(one for one in FORECASTS if one != MEASURED),
}
"""What a figure may be of, and for which systems."""
MIX, WINDOW, DRIFT = "mix", "window", "drift"
OWN = {BY_MIX: MIX, SURVIVAL: WINDOW, ERROR: DRIFT}
"""Measures that are over something else than a setting."""
MOST_WINDOWS = 1_000


@dataclass(frozen=True, slots=True)
class AskedSeries:
    """A line of a figure: a system and its settings at each place, none of forecasts."""

    name: str
    system: str
    points: tuple[FigurePoint, ...]


@dataclass(frozen=True, slots=True)
class AskedFigure:
    """A figure of a file, which is `where` for an error line. `window_s` is of `goodput by mix`,
    where the places are shares of easy inputs; `rate` (requests a second) is of devices and price;
    `drift`, `windows` and `inputs` (of each window) are of forecasts."""

    where: str
    name: str
    title: str
    measure: str
    paper: str
    why: str
    over: str
    places: tuple[Any, ...]
    series: tuple[AskedSeries, ...]
    ratios: tuple[tuple[str, str], ...]
    rate: float
    window_s: float
    drift: str
    windows: int
    inputs: int


@dataclass(frozen=True, slots=True)
class FigureFile:
    """The figures of a file, in order, and the file's name, which a folder can have."""

    name: str
    figures: tuple[AskedFigure, ...]


def read_figures(path: Path, requests: int | None) -> FigureFile:
    """What a file asks for; `requests` stands for the file's. Raises `UserError` naming the file
    and the key."""
    told = YamlSection(read_yaml(path), str(path))
    name = folder_name(told)
    common = _settings(told.section("settings"))
    found = [_figure(one, common, requests, path.parent) for one in told.sections("figures")]
    told.finish()
    return FigureFile(name, tuple(found))


def _settings(told: YamlSection) -> dict[str, Any]:
    """The settings that stand here, as they stand."""
    found = {key: told.take(key) for key in SETTINGS if key in told.left()}
    for key in told.left():
        raise told.error(key, "unknown setting", key, SETTINGS)
    return found


def _figure(
    told: YamlSection, common: Mapping[str, Any], requests: int | None, folder: Path
) -> AskedFigure:
    measure = told.text("measure", GOODPUT)
    if measure not in MEASURES:
        raise told.error("measure", f"unknown measure '{measure}'", measure, MEASURES)
    over, places = _over(told, measure)
    settings = {**common, **_settings(told.section("settings"))}
    if requests is not None:
        settings["requests"] = requests
    series = tuple(_each_series(told, settings, measure, (over, places), folder))
    figure = AskedFigure(
        where=told.label(),
        name=told.text("name"),
        title=told.text("title"),
        measure=measure,
        paper=told.text("paper"),
        why=told.text("why"),
        over=over,
        places=places,
        series=series,
        ratios=_ratios(told, [one.name for one in series]),
        rate=told.number("rate", above=0) if measure in (DEVICES, PRICE) else 0.0,
        window_s=told.number("window_s", least=LEAST_WINDOW_S) if measure == BY_MIX else 0.0,
        drift=_drift(told, told.text(DRIFT)) if measure == SURVIVAL else "",
        windows=_windows(told, told.take("windows")) if measure == ERROR else 0,
        inputs=told.as_integer("requests", settings.get("requests", 10_000), least=100),
    )
    told.finish()
    return figure


def _over(told: YamlSection, measure: str) -> tuple[str, tuple[Any, ...]]:
    """The setting that a figure is over, and its values."""
    over = told.take("over")
    if not isinstance(over, Mapping) or len(over) != 1:
        raise told.wrong("over", "one setting with a list of values", over)
    ((key, places),) = over.items()
    known = [OWN[measure]] if measure in OWN else [one for one in SETTINGS if one != "requests"]
    if key not in known:
        raise told.error("over", f"'{key}' is no setting that a figure is over", str(key), known)
    if not isinstance(places, list) or not places:
        raise told.wrong(f"over.{key}", "a list with at least one value", places)
    if key == MIX:
        places = [told.as_number(f"over.{key}", one, least=0, most=1) for one in places]
    elif key == DRIFT:
        places = [_drift(told, one) for one in places]
    elif key == WINDOW:
        places = [_windows(told, one) for one in places]
        if places != sorted(set(places)):
            raise told.wrong(f"over.{key}", "ascending windows", places)
    return str(key), tuple(places)


def _windows(told: YamlSection, value: Any) -> int:
    return told.as_integer("windows", value, least=LEAST_WINDOWS + 1, most=MOST_WINDOWS)


def _drift(told: YamlSection, value: Any) -> str:
    if value not in DRIFTS:
        raise told.error(DRIFT, f"unknown drift '{value}'", str(value), DRIFTS)
    return str(value)


def _each_series(
    told: YamlSection,
    settings: Mapping[str, Any],
    measure: str,
    over: tuple[str, tuple[Any, ...]],
    folder: Path,
) -> Iterator[AskedSeries]:
    key, places = over
    names = set[str]()
    for one in told.sections("series"):
        name, system = one.text("name"), one.text("system")
        if name in names:
            raise UserError(f"{one.label('name')}: '{name}' stands twice")
        names.add(name)
        if system not in MEASURES[measure]:
            what = f"'{system}' is no system of {measure}"
            raise one.error("system", what, system, MEASURES[measure])
        own = {**settings, **_settings(one)}
        points = []
        for place in places if measure not in (SURVIVAL, ERROR) else ():
            here = own if key == MIX else {**own, key: place}
            section = YamlSection(here, told.where, one.path)
            point = _checked(point_from(section, folder), section, measure)
            most = max(count for cluster in point.clusters for _, count in cluster)
            if system == PIPELINE and min(point.copies) > most:
                what = f"{min(point.copies)} pipelines on at most {most} devices of a kind"
                raise UserError(f"{section.label('copies')}: {what}; expected at most {most}")
            points.append(point)
        yield AskedSeries(name, system, tuple(points))


def _checked(point: FigurePoint, told: YamlSection, measure: str) -> FigurePoint:
    """Raise `UserError` where the best of several is asked of what cannot tell."""
    if measure != GOODPUT and max(map(len, (point.clusters, point.batches, point.copies))) > 1:
        raise UserError(f"{told.label()}: several clusters, batches or copies: only of {GOODPUT}")
    if measure == DEVICES and len(point.clusters[0]) > 1:
        raise UserError(f"{told.label('cluster')}: expected one kind of device for {DEVICES}")
    return point


def _ratios(told: YamlSection, names: list[str]) -> tuple[tuple[str, str], ...]:
    """Pairs of series, the first over the second."""
    found = []
    pairs = told.take("ratios", [])
    if not isinstance(pairs, list):
        raise told.wrong("ratios", "a list of pairs of series", pairs)
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise told.wrong("ratios", "a list of pairs of series", pair)
        for name in pair:
            if name not in names:
                raise told.error("ratios", f"unknown series '{name}'", str(name), names)
        found.append((pair[0], pair[1]))
    return tuple(found)
