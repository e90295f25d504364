"""The forms that the bundled weights, and what was fitted to them, drew: no test rows.

`python -m backends.training.rows.seen` writes `workloads/bundled/seen.bin` anew: sorted marks of
those that the split's rule would else make test. It is to be run when weights trained on other rows
are bundled, and before that `splits.py`'s rule for keys may not change.
"""

from collections.abc import Iterator
from itertools import islice

from backends.training.rows.batches import POOL, pool_seed
from backends.training.small_models.draft import RECIPE as DRAFT
from backends.training.small_models.recipe import Recipe
from workloads.bundled import GENERATORS, iter_drawn
from workloads.bundled.splits import SEEN, Subject, chosen, mark

FITTED = {0: 4000, 10_000: 1000}
"""Rows of each workload by seed, rounded up: tokenizer, exit heads and classifier had up to 3,000
of seed 0, the calibrations 100 of seed 10,000 that lie behind none of those."""


def streams(workload: str) -> Iterator[tuple[int, int]]:
    """Yield the seed and the number of train rows of every stream that was drawn from.

    The late mix has fewer rows of every workload than the first, which is counted throughout.
    """
    yield from FITTED.items()
    for recipe in (Recipe(), DRAFT):
        rows = recipe.rows * POOL * recipe.mix[workload] // sum(recipe.mix.values())
        for number in range(-(-recipe.steps // POOL)):
            yield pool_seed(recipe.seed, number), rows


def drawn(workload: str, seed: int, rows: int) -> Iterator[Subject]:
    """Yield the subjects of a stream's first train rows, by the rule that chose them: the key's."""
    subjects = (subject for subject, _ in iter_drawn(workload, "train", seed))
    return islice((subject for subject in subjects if not chosen(subject.key)), rows)


def marks() -> Iterator[bytes]:
    """Yield the mark of every form drawn that would else be test."""
    for workload in GENERATORS:
        for seed, rows in streams(workload):
            for subject in drawn(workload, seed, rows):
                if chosen(subject.form):
                    yield mark(subject.form)


if __name__ == "__main__":
    SEEN.write_bytes(b"".join(sorted(set(marks()))))
