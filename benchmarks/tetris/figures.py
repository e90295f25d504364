"""The TETRIS paper's figures 7 to 19 and table 1 beside ours, as one page.

    python -m benchmarks.tetris.figures [--quick] [--out runs/tetris_figures.html]

All but table 1 is simulated, on the cluster of `paper.py`; the page says what was assumed. Figures
8 and 10, of vision models, are not on it.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.tetris.paper_figures import costs, goodputs, runs
from benchmarks.tetris.paper_figures.figure import PaperFigure
from benchmarks.tetris.paper_figures.page import write_page

BATCHES = (1, 2, 4, 8, 16, 32)


def figures(quick: bool) -> Iterator[PaperFigure]:
    """Each of them, as it is ready."""
    batches = (1, 8) if quick else BATCHES
    yield goodputs.homogeneous(batches)
    yield goodputs.unlike(batches)
    yield from goodputs.shifts(5_000 if quick else 60_000)
    yield costs.devices_needed(batches)
    yield costs.least_cost(batches[1:] if quick else batches[2:])
    yield goodputs.pabee(batches)
    yield goodputs.entropies(8)
    yield goodputs.mixed(batches)
    yield goodputs.parallelism(batches)
    yield goodputs.slos(batches if quick else (*BATCHES, 64))
    yield goodputs.wrapper(batches)
    yield costs.overhead(1 if quick else 3)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--quick", action="store_true", help="two batches, fewer requests")
    asked.add_argument("--out", type=Path, default=Path("runs/tetris_figures.html"))
    given = asked.parse_args()
    if given.quick:
        runs.SIZE.requests = 2_000
    begin, made = time.monotonic(), list[PaperFigure]()
    for one in figures(given.quick):
        made.append(one)
        print(f"{one.name} ({one.provenance}): {one.title}")
        print(f"  the paper: {one.theirs}\n  here: {one.ours}", flush=True)
    write_page(made, given.out)
    print(f"{given.out} in {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
