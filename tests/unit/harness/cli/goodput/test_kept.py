"""What stays in goodput.json when one backend is searched anew."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli.goodput.kept import KeptAnswer
from harness.core.errors import UserError

ABOUT = {"share": 0.99, "slo": {"e2e_ms": 100.0}}


def search(folder: Path, *backends: str, only: str | None = None, rate: float = 1.0) -> None:
    kept = KeptAnswer(folder, ABOUT, only=only)
    for backend in backends:
        kept.began(f"{backend} at {rate:g}")
        kept.ended({"backend": backend, "rate_per_s": rate})


def stored(folder: Path) -> dict[str, float]:
    found = json.loads((folder / "goodput.json").read_text())
    return {one["backend"]: one["rate_per_s"] for one in found["systems"]}


def test_the_others_stay_where_one_is_searched_anew(tmp_path: Path) -> None:
    search(tmp_path, "vllm", "tetris")
    search(tmp_path, "vllm", only="vllm", rate=2.0)
    assert stored(tmp_path) == {"tetris": 1.0, "vllm": 2.0}
    trials = json.loads((tmp_path / "goodput.json").read_text())["trials"]
    assert trials == ["tetris at 1", "vllm at 1", "vllm at 2"]
    search(tmp_path, "vllm", rate=3.0)
    assert stored(tmp_path) == {"vllm": 3.0}, "a search of all begins anew"


def test_rates_at_other_objectives_do_not_come_into_one_file(tmp_path: Path) -> None:
    search(tmp_path, "vllm", "tetris")
    other = {**ABOUT, "slo": {"e2e_ms": 200.0}}
    with pytest.raises(UserError) as caught:
        KeptAnswer(tmp_path, other, only="vllm")
    assert str(caught.value) == (
        f"{tmp_path / 'goodput.json'}: others than 'vllm' were searched with slo "
        '{"e2e_ms": 100.0}; expected the same with --only, found {"e2e_ms": 200.0}'
    )
    KeptAnswer(tmp_path, other)


@pytest.mark.parametrize("only", [None, "vllm"])
def test_what_was_found_stays_until_something_is_found_anew(
    only: str | None, tmp_path: Path
) -> None:
    search(tmp_path, "vllm")
    file = tmp_path / "goodput.json"
    before = json.loads(file.read_text())
    kept = KeptAnswer(tmp_path, {**ABOUT, "share": 0.5}, only=only)
    kept.began("vllm at 2")
    assert json.loads(file.read_text()) == {**before, "trials": ["vllm at 1", "vllm at 2"]}
    kept.ended({"backend": "vllm", "rate_per_s": 2.0})
    assert json.loads(file.read_text()) == kept.plain()
    assert (stored(tmp_path), kept.plain()["share"]) == ({"vllm": 2.0}, 0.5)
