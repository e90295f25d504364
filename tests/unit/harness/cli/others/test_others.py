"""The commands that take other tools' results in and write ours for them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import results
from harness.cli.others import imports
from harness.cli.others.exports import export
from harness.cli.others.imports import import_results
from harness.core.errors import UserError
from harness.experiment.choices import MAX_LABEL
from reports.page import write_report
from results.compare.gate.extraction import check_whole
from results.rows import cells
from results.store.folder import Store
from tests.support.harness.command import call


def bench(path: Path, *, faster: float = 1.0, lens: int = 20, **changed: Any) -> Path:
    """A file of 24 requests, one after the other, of which each token takes 10 ms over `faster`."""
    gap = 0.01 / faster
    requests = 24
    told: dict[str, Any] = {
        "date": "20261101-120000",
        "backend": "openai",
        "model_id": "some/model",
        "request_rate": "inf",
        "max_concurrency": 1,
        "input_lens": [lens + i for i in range(requests)],
        "output_lens": [10] * requests,
        "ttfts": [0.05 + 0.001 * i for i in range(requests)],
        "itls": [[gap * (1 + 0.01 * (i % 3))] * 9 for i in range(requests)],
        "start_times": [float(i) for i in range(requests)],
        "generated_texts": ["x"] * requests,
        "errors": [""] * requests,
    }
    path.write_text(json.dumps(told | changed))
    return path


def imported(folder: Path, files: list[Path], labels: list[str], **more: Any) -> Path:
    out = folder / "run"
    options = {"ttft_ms": None, "tpot_ms": None, "e2e_ms": None, "cold": True, **more}
    import_results(files, out, labels, "chat", **options)
    return out


def break_off(patched: pytest.MonkeyPatch, at: int) -> None:
    """Ctrl-C once so many files and folders have been put into place."""
    replace, left = Path.replace, at

    def replaced(self: Path, target: Path) -> Path:
        nonlocal left
        if target.parent.name != "cache":
            if left == 0:
                raise KeyboardInterrupt
            left -= 1
        return replace(self, target)

    patched.setattr(Path, "replace", replaced)


def test_two_loads_of_the_same_prompts_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [bench(tmp_path / "a.json"), bench(tmp_path / "b.json", faster=2.0)]
    out = imported(tmp_path, [*files, *files], ["old", "new", "old", "new"], tpot_ms=8.0)
    told = capsys.readouterr().out
    assert "imported: 4 loads of old, new" in told
    assert "decodebench report" in told
    run = results.load(out)
    found = {cell["options"]["run"]: cell for cell in cells(run)}
    assert found["new"]["speedup"] == pytest.approx(2.0, rel=0.01)
    assert (found["old"]["goodput_req_per_s"], found["new"]["speedup_repeats"]) == (0.0, 2)
    assert found["new"]["consistency_ratio"] is None
    page = write_report(out).read_text()
    assert "imported" in page
    assert "answers that could not be compared" in page
    assert "bundled" not in page.lower().replace("bundled model", "")


def test_other_prompts_are_another_workload(tmp_path: Path) -> None:
    files = [bench(tmp_path / "a.json"), bench(tmp_path / "b.json", lens=30)]
    out = imported(tmp_path, files, ["old", "new"])
    assert all(cell["speedup"] in (None, 1.0) for cell in cells(results.load(out)))


def test_repeats_are_those_of_a_cell(tmp_path: Path) -> None:
    """Of a model, of prompts and of a load, however long the answers were; none is missing."""
    files = [
        bench(tmp_path / "a.json"),
        bench(tmp_path / "b.json", model_id="another/model"),
        bench(tmp_path / "c.json", lens=30),
        bench(tmp_path / "d.json", output_lens=[9] * 24),
    ]
    run = results.load(imported(tmp_path, files, ["same"] * 4))
    trials = [stored.record.trial for stored in run.stored]
    told = {(t.model.name, t.workload.checksum, t.repeat) for t in trials}
    assert sorted(repeat for *_, repeat in told) == [0, 0, 0, 1]
    assert [cell["repeats"] for cell in cells(run)] == [2, 1, 1]
    assert [model["name"] for model in run.experiment["model"]] == ["some/model", "another/model"]
    check_whole(run)


def test_a_run_comes_back_as_it_was_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = imported(tmp_path, [bench(tmp_path / "a.json")], ["a"])
    export(out, tmp_path / "there" / "deep")
    assert "exported: 1 trials" in capsys.readouterr().out
    (file,) = (tmp_path / "there" / "deep").glob("*.json")
    again = json.loads(file.read_text())
    before = json.loads((tmp_path / "a.json").read_text())
    for name in ("output_lens", "errors", "generated_texts", "model_id", "max_concurrency"):
        assert again[name] == before[name], name
    assert again["ttfts"] == pytest.approx(before["ttfts"])
    assert again["completed"] == 24
    assert again["input_lens"] == before["input_lens"]
    assert again["total_input_tokens"] == sum(before["input_lens"])
    assert again["request_goodput"] is None
    assert again["decodebench"]["workload"] == "chat"
    assert (again["decodebench"]["label"], again["decodebench"]["valid"]) == ("a", True)
    twice = imported(tmp_path / "twice", [file], ["a"])
    first, second = (results.load(folder).requests for folder in (out, twice))
    for name in ("ttft_s", "tpot_s", "e2e_s"):
        assert second[name].to_numpy() == pytest.approx(first[name].to_numpy()), name


def test_a_length_that_nobody_told_is_not_0(tmp_path: Path) -> None:
    told = json.loads(bench(tmp_path / "a.json").read_text())
    told["input_lens"] = [0] * 24
    (tmp_path / "a.json").write_text(json.dumps(told))
    export(imported(tmp_path, [tmp_path / "a.json"], ["a"]), tmp_path / "there")
    (file,) = (tmp_path / "there").glob("*.json")
    again = json.loads(file.read_text())
    assert (again["input_lens"], again["total_input_tokens"]) == (None, None)


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([], "two are named 'a'; expected a --label for each file"),
        (["x"], "--label: 1 for 2 files; expected one for each"),
        (["x", ""], "--label: is empty"),
    ],
)
def test_names_are_told_apart(labels: list[str], words: str, tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    files = [bench(tmp_path / "a.json"), bench(tmp_path / "deep" / "a.json")]
    with pytest.raises(UserError, match=words):
        imported(tmp_path, files, labels)
    assert not (tmp_path / "run").exists()


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    out = imported(tmp_path, [bench(tmp_path / "a.json")], ["a"])
    before = sorted(path.name for path in out.rglob("*"))
    with pytest.raises(UserError, match="is there already; expected the name of a new folder"):
        imported(tmp_path, [bench(tmp_path / "a.json")], ["a"])
    assert sorted(path.name for path in out.rglob("*")) == before


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("at", range(10))
def test_an_import_that_is_broken_off_leaves_nothing_and_goes_through_again(
    at: int, exists: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps 7 to 9 put what is written into place."""
    files = [bench(tmp_path / "a.json"), bench(tmp_path / "b.json")]
    if exists:
        (tmp_path / "run").mkdir()
    with monkeypatch.context() as patched:
        break_off(patched, at)
        with pytest.raises(KeyboardInterrupt):
            imported(tmp_path, files, ["a", "b"])
    assert (tmp_path / "run").exists() == exists
    assert list(tmp_path.glob("run/*")) == []
    out = imported(tmp_path, files, ["a", "b"])
    assert ".unfinished" not in {path.name for path in out.iterdir()}
    assert len(results.load(out).stored) == 2


def test_an_import_that_is_killed_is_no_run_and_is_imported_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a kill between the last two renames leaves: nothing cleans up."""
    with monkeypatch.context() as patched:
        break_off(patched, 6)
        patched.setattr(imports, "_clear", lambda out: None)
        patched.setattr(shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            imported(tmp_path, [bench(tmp_path / "a.json")], ["a"])
    out = tmp_path / "run"
    assert {path.name for path in out.iterdir()} == {"experiment.yaml", "prompts", ".unfinished"}
    assert Store(out).keys() == []
    imported(tmp_path, [bench(tmp_path / "a.json")], ["a"])
    assert len(results.load(out).stored) == 1


@pytest.mark.parametrize("at", range(4))
def test_an_export_that_is_broken_off_leaves_nothing(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [bench(tmp_path / "a.json"), bench(tmp_path / "b.json")]
    out, there = imported(tmp_path, files, ["a", "b"]), tmp_path / "there"
    results.load(out)
    with monkeypatch.context() as patched:
        break_off(patched, at)
        with pytest.raises(KeyboardInterrupt):
            export(out, there)
    assert not there.exists()
    there.mkdir()
    (there / "mine").touch()
    with monkeypatch.context() as patched:
        break_off(patched, at)
        with pytest.raises(KeyboardInterrupt):
            export(out, there)
    assert [path.name for path in there.iterdir()] == ["mine"]
    export(out, there)
    assert len(list(there.glob("*.json"))) == 2


@pytest.mark.parametrize("broken", ["trials/*.json", "trials/*.parquet", "prompts/*.parquet"])
def test_what_is_broken_of_an_imported_run_is_imported_again(broken: str, tmp_path: Path) -> None:
    """There is no experiment that could be run again."""
    out = imported(tmp_path, [bench(tmp_path / "a.json")], ["a"])
    (path,) = out.glob(broken)
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(UserError, match=r"; import the files again into a new folder$"):
        export(out, tmp_path / "there")


def test_answers_that_are_gone_are_imported_again(tmp_path: Path) -> None:
    out = imported(tmp_path, [bench(tmp_path / "a.json")], ["a"])
    (path,) = out.glob("trials/*.parquet")
    path.unlink()
    with pytest.raises(UserError, match=r"json is there; import the files again into a new folder"):
        export(out, tmp_path / "there")


def test_an_empty_run_is_not_exported(tmp_path: Path) -> None:
    told = json.loads(bench(tmp_path / "a.json").read_text())
    told["errors"] = ["lost"] * 24
    (tmp_path / "a.json").write_text(json.dumps(told))
    out = imported(tmp_path, [tmp_path / "a.json"], ["a"])
    with pytest.raises(UserError, match="no trial in it that ended well"):
        export(out, tmp_path / "there")


def test_an_export_goes_over_nothing(tmp_path: Path) -> None:
    out = imported(tmp_path, [bench(tmp_path / "a.json")], ["mine"])
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for inside in (out, out / "trials", out / "trials" / ".." / "new"):
        with pytest.raises(UserError, match=r"is in the run's own folder; expected another place"):
            export(out, inside)
    export(out, tmp_path / "theirs")
    with pytest.raises(UserError, match=r"theirs: holds .*\.json already; expected a new folder"):
        export(out, tmp_path / "theirs")
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_a_folder_is_called_by_its_whole_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness.cli.others.imports import _names

    for name in ("Llama-3.1-8B-concurrency4", "Llama-3.2-1B-concurrency4"):
        (tmp_path / name).mkdir()
    folders = sorted(tmp_path.iterdir())
    assert _names(folders, ()) == [folder.name for folder in folders]
    monkeypatch.chdir(folders[0])
    assert _names([Path()], ()) == ["Llama-3.1-8B-concurrency4"]


@pytest.mark.parametrize("label", ["a\rb", "a\nb", "\x1b[2J", "x" * (MAX_LABEL + 1)])
def test_a_label_is_one_that_an_experiment_could_have(
    label: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file, out = bench(tmp_path / "a.json"), tmp_path / "run"
    assert call(monkeypatch, "import", file, "--out", out, f"--label={label}") == 2
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith("decodebench: --label: is '")
    assert told.endswith("'; expected a text of up to 60 printable characters")
    assert not out.exists()
    assert call(monkeypatch, "import", file, "--out", out, f"--label={'ü' * MAX_LABEL}") == 0
