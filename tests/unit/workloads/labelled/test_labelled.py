"""Workloads that ask for labels: their rows, their labels' names, their scores."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.core.errors import UserError
from harness.core.nouns import Workload
from workloads import LABELLED, bundled, scoring
from workloads.datasets import checksum, load_rows
from workloads.hardness import difficulty
from workloads.labelled import LABELS, images, label_name, named

NAMES = sorted(LABELLED)


@pytest.fixture(scope="module", params=NAMES)
def drawn(request: pytest.FixtureRequest) -> tuple[str, list[dict[str, str]], list[dict[str, str]]]:
    """A workload with train and test rows."""
    name = request.param
    return name, bundled.rows(name, "train", 600, 3), bundled.rows(name, "test", 120, 3)


def test_rows_have_their_fields_and_every_label(
    drawn: tuple[str, list[dict[str, str]], list[dict[str, str]]],
) -> None:
    name, train, test = drawn
    fields = {*LABELLED[name].fields, LABELLED[name].id_field}
    assert all(set(row) == fields for row in (*train, *test))
    counts = {label: sum(row["label"] == label for row in train) for label in LABELS[name]}
    assert min(counts.values()) > 0.7 * len(train) / len(counts)
    assert len({row[LABELLED[name].content] for row in (*train, *test)}) > 700


@pytest.mark.parametrize("name", NAMES)
def test_no_test_row_has_a_train_rows_form(name: str) -> None:
    """The form holds what decides the label: for a sentence the words that judge and how they are
    joined, for a drawing its shape, size, place and turn."""
    from itertools import islice

    from workloads.bundled.splits import split_of

    subjects = [subject for subject, _ in islice(bundled.iter_drawn(name, "train", 1), 1500)]
    train = {s.form for s in subjects if split_of(s) == "train"}
    test = {s.form for s in subjects if split_of(s) == "test"}
    assert 60 < len(test) < 260
    assert not train & test


@pytest.mark.parametrize("name", NAMES)
def test_mixes_are_easier_or_harder(name: str) -> None:
    def mean(mix: str) -> float:
        rows = load_rows(Workload(name, options={"mix": mix}), 0, 40)
        assert len({row.id for row in rows}) == 40
        return sum(row.difficulty for row in rows) / 40

    assert mean("80:20") < mean("20:80")


def test_opinions_say_what_their_label_says() -> None:
    """Sentences whose label a reader can check: no turn means that all words judge alike."""
    from workloads.bundled.labelled.opinion_words import BAD, GOOD

    for row in bundled.rows("sentiment", "test", 200, 1):
        words = set(row["sentence"].replace(",", " ").split())
        if difficulty("sentiment", row) < 1:
            good, bad = bool(words & {*GOOD}), bool(words & {*BAD})
            if "called" not in words:
                assert (good, bad) == (row["label"] == "positive", row["label"] == "negative")


def test_difficulty_counts_turns_first_and_pixels_that_differ() -> None:
    easy = difficulty("sentiment", {"sentence": "a long and lovely film about a long summer ."})
    hard = difficulty("sentiment", {"sentence": "not good , but"})
    assert easy < 1 < 2 < hard < 3
    plain = images.to_text([[0] * 8 + [255] * 8] * 16)
    noisy = images.to_text([[0, 255] * 8] * 16)
    # one step of two spreads in 15 across, none down; every one across, none down
    assert images.roughness(plain) == pytest.approx(2 * 16 / 480)
    assert images.roughness(noisy) == pytest.approx(2 * 240 / 480)
    assert images.roughness(images.to_text([[7] * 16] * 16)) == 0


@pytest.mark.parametrize(
    ("said", "name"),
    [
        (1, "positive"),
        ("1", "positive"),
        ("LABEL_0", "negative"),
        ("Positive", "positive"),
        (-1, None),
        (2, None),
        ("good", None),
        (None, None),
        (True, None),
    ],
)
def test_a_label_by_name_or_number(said: object, name: str | None) -> None:
    assert label_name("sentiment", said) == name


def test_accuracy_is_the_label_however_it_is_written() -> None:
    rows = [
        {"label": "positive"},
        {"label": "positive"},
        {"label": "negative"},
        {"label": "negative"},
    ]
    found = scoring.score_all("sentiment", rows, ["positive", "LABEL_0", "LABEL_0", "nonsense"])
    assert found == [{"accuracy": 1.0}, {"accuracy": 0.0}, {"accuracy": 1.0}, {"accuracy": 0.0}]


def written(path: Path, *records: dict[str, Any]) -> Workload:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    name = "shapes" if "image" in records[0] else "sentiment"
    return Workload(name, str(path))


def test_local_rows_in_the_hubs_schema(tmp_path: Path) -> None:
    """SST-2's labels are numbers."""
    records = [{"idx": n, "sentence": f"film {n}", "label": n % 2} for n in range(4)]
    rows = load_rows(written(tmp_path / "a.jsonl", *records), 0, 4)
    assert {row.id: row.data["label"] for row in rows} == {
        "0": "negative",
        "1": "positive",
        "2": "negative",
        "3": "positive",
    }
    assert len(checksum(rows)) == 64


GREY = images.to_text([[9] * 16] * 16)


@pytest.mark.parametrize(
    ("record", "told"),
    [
        (
            {"sentence": "x", "label": -1},
            "row 1|line 1: field 'label': -1 is no label of sentiment",
        ),
        ({"sentence": "x", "label": "positiv"}, "did you mean 'positive'"),
        ({"sentence": "x"}, "field 'label' is missing"),
        ({"sentence": "", "label": 1}, "field 'sentence': expected text"),
        ({"image": GREY, "label": "dics"}, "did you mean 'disc'"),
        ({"image": GREY[:-3], "label": 0}, "line 16: expected 16 pixels"),
        ({"image": GREY[48:], "label": 0}, "expected 16 lines of pixels, got 15"),
        ({"image": GREY.replace("09", "9g", 1), "label": 0}, "line 1: expected 16 pixels"),
    ],
)
def test_a_bad_row_is_one_line(tmp_path: Path, record: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told) as raised:
        load_rows(written(tmp_path / "a.jsonl", record), 0, 1)
    assert str(tmp_path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_shapes_are_nowhere_on_the_hub() -> None:
    with pytest.raises(UserError, match="workload shapes: is not on the hub; expected 'bundled'"):
        load_rows(Workload("shapes", "hub"), 0, 1)


def test_a_record_without_a_label_is_left_to_the_fields_check() -> None:
    assert list(named("sentiment", [("here", {"sentence": "x"})])) == [("here", {"sentence": "x"})]
