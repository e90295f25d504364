"""Generators of stand-in rows in the schemas of the data sets, for use without a network.

Everything is made up here by composition: no sentence is taken from a data set. A row's split is
decided by a hash of what it is about, names aside, so that no test row equals a train row up to
names (see `splits.split_of`).
"""

from collections.abc import Callable, Iterator
from itertools import count as numbers
from itertools import islice

from workloads.bundled.arithmetic import problem
from workloads.bundled.draw import Draw
from workloads.bundled.labelled.opinions import opinion
from workloads.bundled.labelled.shapes import drawing
from workloads.bundled.news import highlighted, summarized
from workloads.bundled.programs import function
from workloads.bundled.splits import Split, Subject, split_of

Row = dict[str, str]
GENERATORS: dict[str, Callable[[Draw], tuple[Subject, Row]]] = {
    "cnn_dailymail": highlighted,
    "xsum": summarized,
    "humaneval": function,
    "gsm8k": problem,
}
"""Of rows whose answers are texts."""
CLASSIFIED: dict[str, Callable[[Draw], tuple[Subject, Row]]] = {
    "sentiment": opinion,
    "shapes": drawing,
}
"""Of rows whose answers are labels."""
ALL = GENERATORS | CLASSIFIED


def iter_rows(workload: str, split: Split, seed: int = 0) -> Iterator[Row]:
    """Yield rows of a split without end; the same seed gives the same rows on every machine.

    Raises:
        KeyError: for a workload without a generator.
        ValueError: for a split other than "train" and "test".
    """
    if split not in ("train", "test"):
        raise ValueError(f"split: expected 'train' or 'test', got {split!r}")
    drawn = iter_drawn(workload, split, seed)
    return (row for subject, row in drawn if split_of(subject) == split)


def iter_drawn(workload: str, split: Split, seed: int) -> Iterator[tuple[Subject, Row]]:
    """Yield, without end, the rows that `iter_rows` takes a split's rows from, of whatever split.

    Raises:
        KeyError: for a workload without a generator.
    """
    generate = ALL[workload]
    return (generate(Draw(f"{workload}/{split}/{seed}/{number}")) for number in numbers())


def rows(workload: str, split: Split, count: int, seed: int = 0) -> list[Row]:
    """Return the first `count` rows of `iter_rows`."""
    return list(islice(iter_rows(workload, split, seed), count))
