"""Calibration rows are not those that heads or a classifier were trained on."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from backends.checkpoints import models
from backends.checkpoints.classifier import BUNDLED
from backends.early_exit.calibration.files import find_calibration, open_calibration
from backends.early_exit.calibration.prompts import CalibrationPrompt, prompts_checksum, read_groups
from backends.early_exit.calibration.settings import SEED, Settings, parameters, training_report
from backends.seen import joined_marks
from backends.training.exits.backbone import architecture_of
from backends.training.exits.data import prompts_checksum as checksum
from backends.training.exits.data import read_prompts
from backends.training.exits.recipe import ExitRecipe
from harness.core.errors import UserError
from tests.support.exits.calibrating import DEMO, run
from tests.support.exits.fake_exits import Opener
from workloads import workload_info
from workloads.bundled import iter_rows

POOL, TRAINED = 60, 40


def pool(path: Path, *, named: bool = True) -> Path:
    """A file of so many gsm8k rows, with ids of their own or without."""
    rows = [dict(row) for row, _ in zip(iter_rows("gsm8k", "train", 5), range(POOL), strict=False)]
    lines = [json.dumps(row | ({"id": f"row-{i}"} if named else {})) for i, row in enumerate(rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def trained(folder: Path, **recipe: Any) -> Path:
    """The bundled classifier, as if it had been trained by this recipe."""
    shutil.copytree(BUNDLED, folder)
    path = folder / "classifier.json"
    about = json.loads(path.read_text())
    about["recipe"] |= {"workloads": ["gsm8k"], "rows": TRAINED, "seed": 0} | recipe
    path.write_text(json.dumps(about))
    return path


def settings(source: Path | str, rows: int, seed: int = SEED) -> Settings:
    return Settings("demo", "classifier", ("gsm8k",), rows=rows, source=str(source), seed=seed)


def read(asked: Settings, report: Path | None = None) -> list[CalibrationPrompt]:
    groups = read_groups(asked, DEMO, models.load_tokenizer(DEMO), report)
    return [prompt for group in groups for prompt in group]


def test_rows_of_the_training_are_replaced_by_others(tmp_path: Path) -> None:
    source = pool(tmp_path / "rows.jsonl")
    report = trained(tmp_path / "classifier", source=str(source))
    fitted = {prompt.row for prompt in read(settings(source, TRAINED, seed=0))}
    plain = [prompt.row for prompt in read(settings(source, 15))]
    assert fitted & set(plain), "a draw that knows nothing of the training meets its rows"
    found = [prompt.row for prompt in read(settings(source, 15), report)]
    assert len(set(found)) == 15
    assert not fitted & set(found)
    whole = [prompt.row for prompt in read(settings(source, POOL))]
    assert found == [row for row in whole if row not in fitted][:15], "the next ones in the draw"


def test_the_same_rows_in_another_file_are_known_by_their_prompts(tmp_path: Path) -> None:
    report = trained(tmp_path / "classifier", source=str(pool(tmp_path / "rows.jsonl")))
    fitted = {p.ids for p in read(settings(tmp_path / "rows.jsonl", TRAINED, seed=0))}
    other = pool(tmp_path / "other.jsonl", named=False)
    assert fitted & {prompt.ids for prompt in read(settings(other, 15))}
    assert not fitted & {prompt.ids for prompt in read(settings(other, 15), report)}


def test_bundled_rows_of_the_training_seed_are_passed_over(tmp_path: Path) -> None:
    report = trained(tmp_path / "classifier", source="bundled")
    fitted = {prompt.ids for prompt in read(settings("bundled", TRAINED, seed=0))}
    found = {prompt.ids for prompt in read(settings("bundled", 10, seed=0), report)}
    assert len(found) == 10
    assert not fitted & found


def test_too_few_rows_beside_the_training_are_refused(engines: Opener, tmp_path: Path) -> None:
    source = pool(tmp_path / "rows.jsonl")
    report = trained(tmp_path / "classifier", source=str(source))
    assert len(read(settings(source, POOL - TRAINED), report)) == POOL - TRAINED
    asked = replace(settings(source, POOL - TRAINED + 1), classifier=str(report.parent))
    with pytest.raises(UserError, match=r"fewer than 21 rows of workload gsm8k are left") as told:
        run(tmp_path / "c.json", asked)
    assert str(report) in str(told.value)
    assert "\n" not in str(told.value)
    assert not list(tmp_path.glob("c.json*"))
    assert engines.opened == []


@pytest.mark.parametrize(
    "recipe", [{"source": "gone.jsonl"}, {"seed": "x"}, {"rows": "x"}, {"workloads": ["gsm"]}]
)
def test_a_training_whose_rows_cannot_be_read_is_refused(
    tmp_path: Path, recipe: dict[str, Any]
) -> None:
    report = trained(tmp_path / "classifier", **recipe)
    with pytest.raises(UserError, match="cannot be kept out of the calibration") as told:
        read(settings("bundled", 5), report)
    assert str(told.value).startswith(f"{report}: ")
    assert "\n" not in str(told.value)


def test_a_training_whose_source_has_moved_is_known_by_its_marks(tmp_path: Path) -> None:
    source = pool(tmp_path / "rows.jsonl")
    fitted = {prompt.ids for prompt in read(settings(source, TRAINED, seed=0))}
    report = trained(tmp_path / "classifier", source="gone.jsonl")
    about = json.loads(report.read_text()) | {"prompt_marks": joined_marks(fitted)}
    report.write_text(json.dumps(about))
    found = {prompt.ids for prompt in read(settings(source, 15), report)}
    assert len(found) == 15
    assert not fitted & found


def test_a_training_with_a_limit_of_its_own_is_read_again(tmp_path: Path) -> None:
    """Such prompts have another checksum, and others fit."""
    source = pool(tmp_path / "rows.jsonl")
    recipe = ExitRecipe("", (), ("gsm8k",), source=str(source), rows=TRAINED)
    tokenizer, positions = models.load_tokenizer(DEMO), architecture_of(DEMO).positions
    limit = positions - 60
    fitted = read_prompts(recipe, tokenizer, positions, {"gsm8k": limit})
    assert 2 < len(fitted) < TRAINED
    told = {"source": str(source), "max_new_tokens": limit, "prompts": checksum(fitted)}
    report = trained(tmp_path / "classifier", **told)
    found = {prompt.ids for prompt in read(settings(source, 15), report)}
    assert not {tuple(prompt.ids) for prompt in fitted} & found


def test_prompts_of_an_earlier_calibration_are_left_out(engines: Opener, tmp_path: Path) -> None:
    source = str(pool(tmp_path / "rows.jsonl"))
    asked = Settings(
        "demo", "state", ("gsm8k",), "consistency", 0.6, rows=20, source=source, grid=(0.95,)
    )
    run(tmp_path / "c.json", asked)
    earlier = {prompt.ids for prompt in read(asked)}
    assert earlier & {prompt.ids for prompt in read(replace(asked, seed=7))}, "the source is small"
    for name in ("c.json", "c.json.answers.jsonl"):
        other = replace(asked, without=(str(tmp_path / name),))
        for again in (other, replace(other, seed=7)):
            assert not earlier & {prompt.ids for prompt in read(again)}
    with pytest.raises(
        UserError, match=r"fewer than 41 rows of workload gsm8k are left without those of .*/c"
    ):
        read(replace(other, rows=41))
    (tmp_path / "old.json").write_text('{"statement": "With 95% ..."}')
    for name in ("old.json", "missing.json", "rows.jsonl"):
        with pytest.raises(UserError, match=f"--without: .*{name}.*does not say which prompts"):
            read(replace(asked, without=(str(tmp_path / name),)))


def test_the_option_chat_is_asked() -> None:
    plain = settings("bundled", 5)
    asked = replace(plain, workload_options={"gsm8k": {"chat": {"template": "none"}}})
    assert not {prompt.ids for prompt in read(plain)} & {prompt.ids for prompt in read(asked)}


def test_the_bundled_calibration_met_no_row_of_the_training() -> None:
    path = find_calibration("auto", "classifier", DEMO)
    assert path is not None
    made = open_calibration(path, DEMO)
    asked = replace(
        settings(made.source, made.prompts["gsm8k"], seed=made.seed), workloads=tuple(made.prompts)
    )
    groups = read_groups(asked, DEMO, models.load_tokenizer(DEMO), training_report(asked, BUNDLED))
    # it was made when calibrations let answers be no longer than the data sets' own
    as_then = [
        [replace(prompt, limit=workload_info(prompt.workload).answer_tokens) for prompt in group]
        for group in groups
    ]
    assert prompts_checksum(as_then) == made.prompts_checksum


def test_parameters_are_those_of_the_measure(tmp_path: Path) -> None:
    (tmp_path / "classifier.safetensors").write_bytes(b"classifier")
    (tmp_path / "heads.safetensors").write_bytes(b"heads")
    assert parameters(tmp_path, "softmax") != parameters(tmp_path, "classifier")
    (tmp_path / "heads.safetensors").unlink()
    with pytest.raises(UserError, match=r"heads\.safetensors: No such file"):
        parameters(tmp_path, "softmax")
