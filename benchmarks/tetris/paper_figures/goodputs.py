"""The figures of goodput: 7, 9, 11, and 14 to 19."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.tetris import paper, shift
from benchmarks.tetris.paper_figures import models, runs
from benchmarks.tetris.paper_figures.figure import PaperFigure, beside, over, span
from benchmarks.tetris.paper_figures.runs import (
    MIXED,
    PLAIN,
    REGROUPED,
    RULE,
    SAME_PRICE,
    SHRINKING,
    TETRIS,
    V100,
    goodput,
)

GOODPUT = "goodput, requests a second"
ENTROPIES = (0.3, 0.35, 0.4, 0.45, 0.5)
SLOS_MS = (14, 20, 40, 70, 100, 200)
Batches = tuple[int, ...]


def _base(batches: Batches, system: str) -> list[float]:
    """BERT on 16 V100."""
    return [goodput("bert", V100, batch)[system] for batch in batches]


def homogeneous(batches: Batches) -> PaperFigure:
    """7."""
    piped, dee, bert = (_base(batches, name) for name in (TETRIS, SHRINKING, PLAIN))
    gains = over(piped, dee)
    ours = f"over DeeBERT {gains[0]:.2f} at batch {batches[0]}, up to {max(gains):.2f}"
    ours += f"; over BERT {span(over(piped, bert))}"
    series = {"TETRIS": piped, "DeeBERT": dee, "BERT": bert}
    series["regrouping in place"] = _base(batches, REGROUPED)
    return beside("Figure 7", ours, ("batch", batches), GOODPUT, series)


def unlike(batches: Batches) -> PaperFigure:
    """9."""

    def best(name: str) -> list[float]:
        return [max(goodput("bert", one, batch)[name] for one in SAME_PRICE) for batch in batches]

    piped, dee, bert = best(TETRIS), best(SHRINKING), best(PLAIN)
    bound = over(piped, _base(batches, SHRINKING))
    ours = f"over DeeBERT {span(over(piped, dee))}, over DeeBERT on 16 V100 {span(bound)}"
    ours += f"; over BERT {span(over(piped, bert))}"
    series = {"TETRIS": piped, "DeeBERT": dee, "BERT": bert}
    return beside("Figure 9", ours, ("batch", batches), GOODPUT, series)


def shifts(count: int) -> Iterator[PaperFigure]:
    """11, on both clusters."""
    for name, devices in paper.CLUSTERS.items():
        found = shift.over_plain(shift.runs(name, count)[0], count)
        del found["plain"]
        ours = "; ".join(
            f"{what} {', '.join(f'{one:.2f}' for one in ratios)}" for what, ratios in found.items()
        )
        mixes = ("mix", [f"{share:.0%} easy" for share in shift.MIXES])
        cluster = " + ".join(f"{count} {kind}" for kind, count in devices.items())
        told, facts = "goodput over BERT", {"cluster": cluster}
        yield beside("Figure 11", f"over BERT: {ours}", mixes, told, found, 2, facts=facts)


def pabee(batches: Batches) -> PaperFigure:
    """14."""
    piped = [runs.staged(models.PABEE_STAGES, V100, batch) for batch in batches]
    base = [goodput(models.PABEE, V100, batch) for batch in batches]
    shrinking, rule, bert = ([one[name] for one in base] for name in (SHRINKING, RULE, PLAIN))
    ours = f"over PABEE whose batch leaves together {span(over(piped, rule))}"
    ours += f"; whose batch shrinks {span(over(piped, shrinking))}"
    series = {"TETRIS": piped, "PABEE, together": rule, "PABEE, shrinking": shrinking, "BERT": bert}
    facts = {"patience": models.PATIENCE}
    return beside("Figure 14", ours, ("batch", batches), GOODPUT, series, facts=facts)


def entropies(batch: int) -> PaperFigure:
    """15."""
    found = [goodput(f"bert at {threshold}", V100, batch) for threshold in ENTROPIES]
    piped, dee, bert = ([one[name] for one in found] for name in (TETRIS, SHRINKING, PLAIN))
    ours = f"over DeeBERT {span(over(piped, dee))}, {over(piped, dee)[-1]:.2f} at 0.5"
    ours += f"; over BERT {span(over(piped, bert))}"
    alive = ", ".join(f"{models.at_entropy(one)[-1]:.2f}" for one in ENTROPIES)
    series = {"TETRIS": piped, "DeeBERT": dee, "BERT": bert}
    facts = {"batch": batch, "alive": alive}
    return beside("Figure 15", ours, ("entropy", ENTROPIES), GOODPUT, series, facts=facts)


def mixed(batches: Batches) -> PaperFigure:
    """16."""
    piped = _base(batches, TETRIS)
    found = [goodput("bert", MIXED, batch)[TETRIS] for batch in batches]
    gains = over(found, piped)
    best = batches[gains.index(max(gains))]
    ours = f"{span(gains)}, the most at batch {best}, {gains[-1]:.2f} at {batches[-1]}"
    series = {"mixed": found, "16 V100": piped}
    return beside("Figure 16", ours, ("batch", batches), GOODPUT, series)


def parallelism(batches: Batches) -> PaperFigure:
    """17."""
    piped, regrouped = _base(batches, TETRIS), _base(batches, REGROUPED)
    off = [runs.serial(V100, batch) for batch in batches]
    ours = f"on over off {span(over(piped, off))}"
    ours += f"; on over regrouping in place {span(over(piped, regrouped))}"
    series = {"on": piped, "off": off, "regrouping in place": regrouped}
    return beside("Figure 17", ours, ("batch", batches), GOODPUT, series)


def slos(batches: Batches) -> PaperFigure:
    """18."""
    systems = {"TETRIS": TETRIS, "DeeBERT": SHRINKING, "BERT": PLAIN}
    series: dict[str, list[float | None]] = {name: [] for name in systems}
    for slo_ms in SLOS_MS:
        found = [goodput("bert", V100, batch, float(slo_ms)) for batch in batches]
        for name, system in systems.items():
            series[name].append(max(one[system] for one in found) or None)
    piped, dee, bert = ([value or 0.0 for value in series[name]] for name in systems)
    gains = over(piped, dee)
    ours = f"over DeeBERT {gains[0]:.2f} at {SLOS_MS[0]} ms, {span(gains)}"
    ours += f"; over BERT {span(over(piped, bert))}"
    facts = {"pass_ms": sum(paper.model(1).layer_ms["V100"])}
    return beside("Figure 18", ours, ("SLO in ms", SLOS_MS), GOODPUT, series, facts=facts)


def wrapper(batches: Batches) -> PaperFigure:
    """19."""
    piped = _base(batches, TETRIS)
    off = [runs.staged(models.BLACK_BOX, V100, batch) for batch in batches]
    ours = f"on over off {span(over(piped, off))}"
    series = {"wrapper on": piped, "wrapper off": off}
    return beside("Figure 19", ours, ("batch", batches), GOODPUT, series)
