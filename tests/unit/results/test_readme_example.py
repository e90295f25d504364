"""The pandas example of the documentation, run as it stands there."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import results
from tests.support.results.make_trials import generation, record, trial
from tests.support.results.report_runs import ENGINES, LOADS, MadeUpBackend, write_run

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"```python\n((?:import [^\n]*\n)*import results\n.*?)```", re.DOTALL)


def example() -> str:
    found = BLOCK.search((ROOT / "docs" / "pandas.md").read_text())
    assert found is not None
    return found.group(1)


def test_the_example_runs_and_answers_its_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """ "fast" takes half the time per token on answers of more than 16 tokens, and no less on the
    others; a one-token answer has no speed-up and must not spoil the mean."""
    monkeypatch.chdir(tmp_path)
    store = results.Store(Path("runs/demo"))
    store.write_experiment(yaml.safe_dump({"name": "demo", "reference": "vllm"}))
    for backend, long_step in (("vllm", 10), ("fast", 5)):
        generations = [
            generation(f"r{n}", [10 + i * (long_step if n > 16 else 10) for i in range(n)])
            for n in (1, 4, 16, 17, 30)
        ]
        store.write(record(trial(backend), generations))
    names: dict[str, Any] = {}
    exec(compile(example(), "docs/pandas.md", "exec"), names)
    table = names["table"]
    assert table.loc[("gsm8k", "fast")].to_dict() == pytest.approx({"<=16": 1.0, "<=64": 2.0})
    assert table.loc[("gsm8k", "vllm")].to_dict() == pytest.approx({"<=16": 1.0, "<=64": 1.0})
    assert "fast" in capsys.readouterr().out


def test_the_readme_shows_the_same_example() -> None:
    shown = BLOCK.search((ROOT / "README.md").read_text())
    assert shown is not None, "README.md does not show the pandas example"
    assert shown.group(1) == example()


NOISY = MadeUpBackend("noisy", 0.009, reasons=("machine-noisy: others used 30%",))


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What every name of the page's examples is, run one after the other as they stand there."""
    folder = tmp_path_factory.mktemp("pandas")
    write_run(
        folder / "runs/demo", engines=(*ENGINES, NOISY), workloads=["gsm8k"], loads=LOADS[1:],
        repeats=2, requests=40,
    )  # fmt: skip
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/pandas.md").read_text(), re.DOTALL)
    assert len(blocks) == 7
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()):
        patch.chdir(folder)
        for block in blocks:
            exec(compile(block, "docs/pandas.md", "exec"), names)
        assert len(names["run"].vllm_bench) == 20, "read before the folder is left"
    return names


LABELS = [
    "adadecode gamma=0.75",
    "noisy",
    "vllm",
    "vllm-early-exit measure=softmax threshold=0.8",
    "vllm-early-exit measure=softmax threshold=0.9",
]


def test_each_frame_names_the_variant_and_its_validity(answered: dict[str, Any]) -> None:
    run = answered["run"]
    for frame in (run.trials, run.requests, run.commits, run.vllm_bench):
        assert sorted(frame["variant"].unique()) == sorted(frame["label"].unique()) == LABELS
        assert frame["valid"].dtype == bool
        assert frame.groupby(["variant", "label"], observed=True)["key"].nunique().tolist() == (
            [4, 4, 4, 4, 4]
        )
    assert run.trials["options"].nunique() == 4, "texts, so that they can be grouped by"


def test_the_other_questions_are_answered(answered: dict[str, Any]) -> None:
    assert answered["why"].loc["noisy", "machine-noisy"] == 4
    assert list(answered["why"].index) == ["noisy"]
    cost = answered["cost"]["size"]
    lossless = ("gsm8k", "adadecode gamma=0.75")
    assert cost.loc[(*lossless, 1.0)] == 160
    assert (*lossless, 0.0) not in cost.index
    assert 0 < cost.loc[("gsm8k", LABELS[3], 0.0)] < cost.loc[("gsm8k", LABELS[3], 1.0)]
    same = answered["cost"].xs(1.0, level="equal_to_reference")
    assert same["score"].tolist() == pytest.approx(same["reference"].tolist())
    queue = answered["queue"]
    assert list(queue.columns) == [1, 2, 3, 4]
    assert queue.notna().all(axis=None)
    assert (answered["drift"] >= 1).all()
    assert len(answered["drift"]) == 8, "of what is valid alone"
    tail = answered["tail"].unstack()
    assert (tail[("e2e_s", "slowest")] >= tail[("e2e_s", "others")]).all()
    along = answered["along"]
    assert along.loc[LABELS[0], "first 4"] == pytest.approx(2, abs=0.2)
    assert along.loc["vllm"].dropna().unique().tolist() == [1.0]
