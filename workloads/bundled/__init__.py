"""Generators of stand-in rows in the schemas of the four data sets, for use without a network.

Everything is made up here by composition: no sentence is taken from a data set. A row's split is
decided by a hash of what it is about, so that train and test rows never overlap.
"""

from collections.abc import Callable, Iterator
from itertools import islice

from workloads.bundled.arithmetic import problem
from workloads.bundled.draw import Draw
from workloads.bundled.news import highlighted, summarized
from workloads.bundled.programs import function
from workloads.bundled.splits import Split, split_of

Row = dict[str, str]
GENERATORS: dict[str, Callable[[Draw], tuple[str, Row]]] = {
    "cnn_dailymail": highlighted,
    "xsum": summarized,
    "humaneval": function,
    "gsm8k": problem,
}


def iter_rows(workload: str, split: Split, seed: int = 0) -> Iterator[Row]:
    """Yield rows of a split without end; the same seed gives the same rows on every machine.

    Raises:
        KeyError: for a workload without a generator.
        ValueError: for a split other than "train" and "test".
    """
    if split not in ("train", "test"):
        raise ValueError(f"split: expected 'train' or 'test', got {split!r}")
    generate = GENERATORS[workload]
    return _rows(generate, f"{workload}/{split}/{seed}", split)


def _rows(generate: Callable[[Draw], tuple[str, Row]], stream: str, split: Split) -> Iterator[Row]:
    number = 0
    while True:
        key, row = generate(Draw(f"{stream}/{number}"))
        number += 1
        if split_of(key) == split:
            yield row


def rows(workload: str, split: Split, count: int, seed: int = 0) -> list[Row]:
    """Return the first `count` rows of `iter_rows`."""
    return list(islice(iter_rows(workload, split, seed), count))
