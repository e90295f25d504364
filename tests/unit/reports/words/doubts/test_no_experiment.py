"""A run folder that was copied without its experiment says what it lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.page import write_report
from tests.support.harness.command import call
from tests.support.results.report_runs import LOADS, MadeUpBackend, write_run

MISSING = "experiment.yaml is missing"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    engines = [MadeUpBackend(name, 0.01) for name in ("vllm", "autoregressive", "adadecode")]
    run = write_run(
        tmp_path_factory.mktemp("copied"), engines=engines, workloads=["gsm8k"], loads=LOADS[:1],
        repeats=1, requests=6,
    )  # fmt: skip
    (run / "experiment.yaml").unlink()
    return run


def test_the_page_says_once_what_to_do_and_denies_no_speed_up_that_it_counts(folder: Path) -> None:
    text = write_report(folder).read_text()
    assert text.count(MISSING) == 1
    assert f"{MISSING} in the run&#39;s folder: copy it there, or no reference is known." in text
    assert "names no reference" not in text
    assert "Speed-ups over the reference cannot be computed: no reference is known." in text
    assert "Of 2 valid speed-ups over autoregressive 2 rest on 1 repeat. " in text


@pytest.mark.parametrize("form", [[], ["--json"], ["--csv"]])
def test_show_warns_of_it(
    form: list[str],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Every speed-up was a dash, without a word."""
    assert call(monkeypatch, "show", folder, *form) == 0
    told = f"warning: {folder}/{MISSING}: copy it there, or no reference is known\n"
    assert capsys.readouterr().err == told
