from __future__ import annotations

import itertools
import json
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest

from harness.core.errors import UserError
from harness.core.nouns import Workload
from workloads import TRAINING_SOURCES, WORKLOADS
from workloads.datasets import Row, checksum, difficulty, load_rows, row_options
from workloads.readers import Budget


def _problem(number: int, steps: int = 1) -> dict[str, str]:
    worked = "\n".join(f"{i} + 1 = <<{i}+1={i + 1}>>{i + 1}" for i in range(steps))
    return {"question": f"Problem {number}?", "answer": f"{worked}\n#### {steps}"}


def _write(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    return str(path)


def _gsm8k(source: str, rows: int | None = None, **options: Any) -> Workload:
    return Workload("gsm8k", source, rows, options)


def test_draw_is_the_same_for_any_file_order_and_kind(tmp_path: Path) -> None:
    records: list[dict[str, Any]] = [_problem(n) for n in range(50)]
    one = load_rows(_gsm8k(_write(tmp_path / "a.jsonl", records)), seed=3, count=20)
    (tmp_path / "b.json").write_text(json.dumps(records[::-1]))
    assert load_rows(_gsm8k(str(tmp_path / "b.json")), seed=3, count=20) == one
    assert len({row.id for row in one}) == 20
    other = load_rows(_gsm8k(str(tmp_path / "b.json")), seed=4, count=20)
    assert {row.id for row in other} != {row.id for row in one}


def test_draw_is_pinned() -> None:
    """Stored trials are reused by checksum: a change here invalidates every stored result."""
    rows = [Row("a", {"question": "q", "answer": "ä"}, 1.0), Row("b", {"question": "r"}, 2.0)]
    assert checksum(rows) == "c8a3c856b4ba06326afb8a373dff0927b4bc864fc449a020d6c160ed1f915194"


def test_larger_draw_contains_the_smaller(tmp_path: Path) -> None:
    source = _write(tmp_path / "a.jsonl", [_problem(n) for n in range(50)])
    assert load_rows(_gsm8k(source), 0, 30)[:10] == load_rows(_gsm8k(source), 0, 10)
    assert load_rows(_gsm8k("bundled"), 0, 30)[:10] == load_rows(_gsm8k("bundled"), 0, 10)


def test_every_row_is_drawn_about_equally_often(tmp_path: Path) -> None:
    source = _write(tmp_path / "a.jsonl", [_problem(n) for n in range(10)])
    drawn = Counter(r.id for s in range(300) for r in load_rows(_gsm8k(source), s, 3))
    assert len(drawn) == 10
    assert 60 <= min(drawn.values()) <= max(drawn.values()) <= 120


def test_rows_cycle_when_there_are_more_requests(tmp_path: Path) -> None:
    source = _write(tmp_path / "a.jsonl", [_problem(n) for n in range(4)])
    rows = load_rows(_gsm8k(source), 0, 10)
    assert [r.id for r in rows[:4]] == [r.id for r in rows[4:8]]
    assert len({r.id for r in rows}) == 4
    few = load_rows(_gsm8k(source, rows=3), 0, 10)
    assert len({r.id for r in few}) == 3
    with pytest.raises(UserError, match="5 distinct rows asked for, but only 4"):
        load_rows(_gsm8k(source, rows=5), 0, 10)


def test_duplicates_of_joined_files_are_dropped(tmp_path: Path) -> None:
    article = {"article": "Some words here.", "highlights": "Words ."}
    _write(tmp_path / "test_a.jsonl", [{**article, "id": str(n)} for n in range(5)])
    _write(tmp_path / "test_b.jsonl", [{**article, "id": n} for n in range(3, 8)])
    budget = Budget()
    rows = load_rows(Workload("cnn_dailymail", str(tmp_path)), 0, 100, budget=budget)
    assert budget.remarks == []
    assert sorted({row.id for row in rows}) == [str(n) for n in range(8)]


def test_rows_with_an_empty_id_are_told_apart(tmp_path: Path) -> None:
    source = _write(tmp_path / "a.jsonl", [{"id": "", **_problem(n)} for n in range(3)])
    assert len({row.id for row in load_rows(_gsm8k(source), 0, 3)} - {""}) == 3


def test_an_id_that_another_rows_repeats_have_is_refused(tmp_path: Path) -> None:
    """Answers to it would be held against the other row."""
    rows = [{"id": name, **_problem(place)} for place, name in enumerate(("q", "p#2", "q#2"))]
    source = _write(tmp_path / "a.jsonl", rows)
    with pytest.raises(UserError) as raised:
        load_rows(_gsm8k(source), 0, 2)
    assert str(raised.value) == (
        f"{source}, line 3: field 'id': 'q#2' is what a repeat of 'q' is called "
        f"({source}, line 1); expected an id without '#2'"
    )
    source = _write(tmp_path / "b.jsonl", rows[:2])
    assert {row.id for row in load_rows(_gsm8k(source), 0, 2)} == {"q", "p#2"}


def test_split_option_picks_the_file(tmp_path: Path) -> None:
    _write(tmp_path / "train.jsonl", [_problem(1)])
    _write(tmp_path / "test.jsonl", [_problem(2)])
    folder = str(tmp_path)
    assert load_rows(_gsm8k(folder), 0, 1)[0].data["question"] == "Problem 2?"
    assert load_rows(_gsm8k(folder, split="train"), 0, 1)[0].data["question"] == "Problem 1?"


GOOD = {"question": "q", "answer": "#### 1"}
BAD_ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "missing, something near": (
        {"question": "q", "answers": "a"},
        "is missing (nearest: 'answers')",
    ),
    "missing, nothing near": ({"question": "q", "x": 1}, "is missing (the row has: question, x)"),
    "no texts": ({"question": "q", "answer": [" ", 1]}, "expected text, got [' ', 1]"),
    "number": ({"question": "q", "answer": 5}, "expected text, got 5"),
    "no number": (
        {"question": "q", "answer": "She has " + "x" * 40 + " 5."},
        "expected '#### NUMBER' at its end, got 'xxx",
    ),
    "mark without a number": ({"question": "q", "answer": "#### five"}, "expected '#### NUMBER'"),
    "mark before a sign": ({"question": "q", "answer": "#### ."}, "expected '#### NUMBER'"),
    "surrogate in the id": ({"id": "\ud800", **GOOD}, "field 'id' holds"),
    "surrogate": ({"question": "q", "answer": "\ud800"}, "holds half a surrogate pair"),
}


@pytest.mark.parametrize(("row", "message"), BAD_ROWS.values(), ids=BAD_ROWS.keys())
def test_bad_row_names_file_line_and_field(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    source = _write(tmp_path / "a.jsonl", [GOOD, row])
    with pytest.raises(UserError) as raised:
        load_rows(_gsm8k(source), 0, 1)
    text = str(raised.value)
    assert text.startswith(f"{source}, line 2: field '")
    assert message in text
    assert "\n" not in text


BAD_WORKLOADS = {
    "name": (Workload("gsm8"), "unknown workload 'gsm8'; did you mean 'gsm8k'?"),
    "option": (_gsm8k("bundled", mixx="80:20"), "unknown option 'mixx'; did you mean 'mix'?"),
    "home of nobody": (_gsm8k("~nobody-here/x.jsonl"), "is no usable path"),
    "long path": (_gsm8k("x" * 5000), "is no usable path: File name too long"),
    "a workload's own key": (_gsm8k("bundled", sorce="x"), "'sorce'; did you mean 'source'?"),
    "mix read as a number": (_gsm8k("bundled", mix=4820), 'write "80:20", in quotes'),
    "mix words": (
        _gsm8k("bundled", mix="easy"),
        "expected easy:hard such as \"80:20\", got 'easy'",
    ),
    "empty mix": (_gsm8k("bundled", mix="0:0"), "expected easy:hard"),
    "article option": (_gsm8k("bundled", article_limit=9), "is for cnn_dailymail and xsum only"),
    "article limit": (
        Workload("xsum", options={"article_limit": "1024"}),
        "option 'article_limit': expected a positive whole number, got '1024'",
    ),
    "true is no number": (
        Workload("xsum", options={"max_article_tokens": True}),
        "expected a positive whole number, got True",
    ),
    "split": (_gsm8k("bundled", split=3), "option 'split': expected text, got 3"),
    "bundled split": (_gsm8k("bundled", split="dev"), "splits train and test, not 'dev'"),
    "revision": (_gsm8k("bundled", revision="main"), "needs 'source: hub', got source 'bundled'"),
    "source": (_gsm8k("bundle"), "source 'bundle' does not exist; did you mean 'bundled'?"),
    "path": (_gsm8k("no/such.jsonl"), "does not exist; expected bundled, hub or a path"),
    "no generator": (Workload("mbpp"), "no bundled rows"),
}


@pytest.mark.parametrize(("workload", "message"), BAD_WORKLOADS.values(), ids=BAD_WORKLOADS.keys())
def test_bad_workload_is_one_line(workload: Workload, message: str) -> None:
    with pytest.raises(UserError) as raised:
        load_rows(workload, 0, 1)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", WORKLOADS)
def test_bundled_rows_have_easy_and_hard_ones(name: str) -> None:
    def mean(mix: str) -> float:
        rows = load_rows(Workload(name, options={"mix": mix}), 0, 60)
        assert len({row.id for row in rows}) == 60
        assert all(set(WORKLOADS[name].fields) <= set(row.data) for row in rows)
        return sum(row.difficulty for row in rows) / 60

    assert mean("80:20") < mean("50:50") < mean("20:80")


def test_difficulty_measures() -> None:
    assert difficulty("gsm8k", {"answer": "2*3=<<2*3=6>>6\n6+1=<<6+1=7>>7\n#### 7"}) == 2
    summary = {"document": "A fox ran home.", "summary": "The fox Ran."}
    assert difficulty("xsum", summary) == pytest.approx(1 / 3)
    assert difficulty("humaneval", {"canonical_solution": "    return a+1\n"}) == 4


def test_early_exit_papers_rule_keeps_short_articles_only(tmp_path: Path) -> None:
    records = [
        {"article": "word " * n, "highlights": "h", "id": str(n)} for n in (1, 10, 100, 1000)
    ]
    source = _write(tmp_path / "a.jsonl", list(records))
    options = {"article_limit": 100, "max_article_tokens": 50}
    workload = Workload("cnn_dailymail", source, options=options)
    rows = load_rows(workload, 0, 10, count_tokens=lambda text: len(text.split()))
    assert {row.id for row in rows} == {"1", "10"}
    assert row_options(workload).max_article_tokens == 50
    with pytest.raises(ValueError, match="count_tokens"):
        load_rows(workload, 0, 10)
    nothing = Workload("cnn_dailymail", source, options={"article_limit": 1})
    with pytest.raises(UserError, match="1 distinct rows asked for, but only 0"):
        load_rows(nothing, 0, 10, count_tokens=lambda text: len(text.split()))


def test_enough_bundled_rows_are_made_to_find_the_short_ones() -> None:
    """Every second article is too long: as many rows as are asked for would not do."""
    lengths = itertools.cycle([100, 99])
    workload = Workload("xsum", "bundled", 8, {"article_limit": 100})
    rows = load_rows(workload, 0, 8, count_tokens=lambda text: next(lengths))
    assert len({row.id for row in rows}) == 8


def test_checksum_covers_order_ids_and_text() -> None:
    a, b = Row("a", {"question": "q"}, 1.0), Row("b", {"question": "q"}, 1.0)
    changed = Row("a", {"question": "Q"}, 1.0)
    assert len({checksum(rows) for rows in ([a, b], [b, a], [a], [changed, b], [a, b, a])}) == 5
    assert checksum([a, b]) == checksum([Row("a", {"question": "q"}, 9.0), b])


def _fake_hub(monkeypatch: pytest.MonkeyPatch, answer: object) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []

    def load_dataset(hub: str, config: str | None, *, split: str, revision: str) -> object:
        calls.append((hub, config, split, revision))
        if isinstance(answer, Exception):
            raise answer
        return answer

    module = types.ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    module.config = types.SimpleNamespace(HF_HUB_OFFLINE=False)  # type: ignore[attr-defined]
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: None)
    monkeypatch.setitem(sys.modules, "datasets", module)
    return calls


def test_hub_rows_come_from_the_pinned_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = _fake_hub(monkeypatch, [_problem(n) for n in range(5)])
    assert len(load_rows(_gsm8k("hub"), 0, 5)) == 5
    load_rows(_gsm8k("hub", split="train", revision="main"), 0, 5)
    pinned = WORKLOADS["gsm8k"].revision
    assert calls == [
        ("openai/gsm8k", "main", "test", pinned),
        ("openai/gsm8k", "main", "train", "main"),
    ]


def test_every_data_set_is_pinned_to_a_whole_commit() -> None:
    for info in (WORKLOADS | TRAINING_SOURCES).values():
        assert len(info.revision) == 40
        assert set(info.revision) <= set("0123456789abcdef")


def test_unreachable_hub_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_hub(monkeypatch, ConnectionError("Couldn't reach 'openai/gsm8k'\nTraceback ..."))
    with pytest.raises(UserError) as raised:
        load_rows(_gsm8k("hub"), 0, 5)
    assert "cannot load openai/gsm8k (split test, revision" in str(raised.value)
    assert "Couldn't reach 'openai/gsm8k'; without a network" in str(raised.value)
    assert "\n" not in str(raised.value)


def test_bad_hub_row_names_where(monkeypatch: pytest.MonkeyPatch) -> None:
    _fake_hub(monkeypatch, [{"question": "q"}])
    with pytest.raises(UserError, match="openai/gsm8k, split test, row 1: field 'answer'"):
        load_rows(_gsm8k("hub"), 0, 1)


REAL = {"cnn_dailymail": 693, "xsum": 1463, "humaneval": 164, "gsm8k": 1319, "mbpp": 974}


@pytest.mark.parametrize("name", REAL)
def test_real_rows_load_whole(shared_data: Path, name: str) -> None:
    """Counts as the samples' README states them, less the ids that two files share."""
    rows = load_rows(Workload(name, str(shared_data / name)), 0, REAL[name])
    assert len({row.id for row in rows}) == REAL[name]


@pytest.mark.parametrize("name", WORKLOADS)
def test_real_rows_have_easy_and_hard_ones(shared_data: Path, name: str) -> None:
    source = str(shared_data / name)
    means = []
    for mix in ("80:20", "50:50", "20:80"):
        rows = load_rows(Workload(name, source, options={"mix": mix}), 0, 60)
        means.append(sum(row.difficulty for row in rows) / 60)
    assert means[0] < means[1] < means[2]
