"""No test row equals a train row up to names, distractors and wording, by the rows' own text."""

from __future__ import annotations

from itertools import islice

import pytest

from backends.training.rows import seen
from tests.support.answers.equal_rows import EQUAL
from workloads import bundled
from workloads.bundled.draw import Draw
from workloads.bundled.splits import SEEN, TEST_SHARE, Subject, chosen, mark, split_of

WORKLOADS = sorted(EQUAL)
TESTED = 500


def weights_streams(workload: str) -> list[tuple[int, int]]:
    """All that was fitted to the model drew from, and every twelfth pool of its own training."""
    fitted, pools = list(seen.FITTED.items()), list(seen.streams(workload))[len(seen.FITTED) :]
    return fitted + pools[::12]


@pytest.mark.parametrize("workload", WORKLOADS)
def test_no_test_row_equals_a_row_that_the_weights_saw_or_that_train_gives(workload: str) -> None:
    equal = EQUAL[workload]
    train = {equal(row) for row in bundled.rows(workload, "train", 4000, seed=5)}
    for seed, count in weights_streams(workload):
        train |= {equal(row) for row in bundled.rows(workload, "train", count, seed)}
    test = [equal(row) for row in bundled.rows(workload, "test", TESTED)]
    assert len(set(test)) > 0.95 * TESTED
    assert not train & set(test)


@pytest.mark.parametrize(("workload", "least"), [("humaneval", 0.15), ("gsm8k", 0.004)])
def test_the_measure_finds_what_a_split_by_keys_alone_shares(workload: str, least: float) -> None:
    """The rule that was: names in the key put equal rows into both splits."""
    equal = EQUAL[workload]
    drawn = list(islice(bundled.iter_drawn(workload, "train", 1), 8000))
    train = {equal(row) for subject, row in drawn if not chosen(subject.key)}
    test = [equal(row) for subject, row in drawn if chosen(subject.key)]
    assert sum(row in train for row in test) / len(test) > least


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_forms_that_the_weights_saw_are_marked(workload: str) -> None:
    """A tenth of the streams: `backends.training.rows.seen` makes the file from them all."""
    content = SEEN.read_bytes()
    known = {content[start : start + 4] for start in range(0, len(content), 4)}
    found = 0
    for seed, count in weights_streams(workload):
        for subject in seen.drawn(workload, seed, count):
            if chosen(subject.form):
                assert mark(subject.form) in known
                found += 1
    assert found > 100


@pytest.mark.parametrize("workload", WORKLOADS)
def test_the_weights_own_seeds_give_the_rows_that_they_were_trained_on(workload: str) -> None:
    """None of a stream's rows is left out of train, by the rule that chose them then."""
    for seed, count in weights_streams(workload)[1::4]:
        subjects = list(seen.drawn(workload, seed, count))
        assert len(subjects) == count
        assert {split_of(subject) for subject in subjects} == {"train"}


def test_the_streams_are_those_of_the_recipes() -> None:
    """Seeds of a pool's rows are one past its number; the draft's recipe has the seed 1."""
    streams = list(seen.streams("gsm8k"))
    pools = [seed for seed, _ in streams[len(seen.FITTED) :]]
    assert pools == [*range(1, 283), *range(1_000_004, 1_000_067)]
    assert {count for _, count in streams[len(seen.FITTED) :]} == {160}


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_form_decides_test_and_the_key_only_between_train_and_neither(workload: str) -> None:
    splits: dict[str, set[str | None]] = {}
    for number in range(3000):
        subject, _ = bundled.GENERATORS[workload](Draw(f"{workload}/{number}"))
        splits.setdefault(subject.form, set()).add(split_of(subject))
    tests = [s for s in splits.values() if "test" in s]
    assert all(s == {"test"} for s in tests)
    assert 0.04 < len(tests) / len(splits) < 0.13
    assert sum("train" in s for s in splits.values()) / len(splits) > 0.8


def test_a_test_form_is_test_under_every_key_and_a_seen_one_never() -> None:
    form = next(f"f{n}" for n in range(100) if chosen(f"f{n}"))
    keys = [f"k{n}" for n in range(50)]
    assert {split_of(Subject(key, form)) for key in keys} == {"test"}
    subjects = seen.drawn("gsm8k", 0, 500)
    marked = next(subject.form for subject in subjects if chosen(subject.form))
    assert {split_of(Subject(key, marked)) for key in keys} == {"train", None}
    assert TEST_SHARE == 10


def test_programs_with_other_names_have_one_form_and_other_programs_another() -> None:
    forms: dict[str, set[str]] = {}
    measured: dict[str, set[str]] = {}
    for number in range(2000):
        subject, row = bundled.GENERATORS["humaneval"](Draw(f"forms/{number}"))
        forms.setdefault(subject.form, set()).add(EQUAL["humaneval"](row))
        measured.setdefault(EQUAL["humaneval"](row), set()).add(subject.form)
    assert all(len(trees) == 1 for trees in forms.values())
    assert all(len(own) == 1 for own in measured.values())
    assert len(forms) < 1900
