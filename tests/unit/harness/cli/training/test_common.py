"""What `--workload-option` gives to which workload, and which seeds a training takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.checkpoints.draft_heads.files import KINDS
from backends.own.drafting.methods import METHODS as OWN_METHODS
from backends.vllm.drafting import METHODS as VLLM_METHODS
from backends.vllm.drafting import NAME as VLLM
from harness.cli.train import train_app
from harness.cli.training.common import MOST_SEED, workload_options
from harness.core.errors import UserError
from tests.support.harness.command import refused

BOTH = ("xsum", "gsm8k")


def test_a_key_goes_to_all_workloads_or_to_the_one_before_the_dot() -> None:
    assert workload_options(None, BOTH) is None
    assert workload_options(["split=train"], BOTH) == {name: {"split": "train"} for name in BOTH}
    assert workload_options(["xsum.max_article_tokens=512", 'mix="80:20"'], BOTH) == {
        "xsum": {"max_article_tokens": 512, "mix": "80:20"},
        "gsm8k": {"mix": "80:20"},
    }


@pytest.mark.parametrize("text", ["mix", "=3", "mix=[", "mix={"])
def test_what_is_no_option_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UserError, match="--workload-option: ") as refused:
        workload_options([text], BOTH)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "command", ["heads", "classifier", "sublayers", "eagle", "medusa", "sentiment", "shapes"]
)
def test_a_seed_that_no_generator_takes_is_refused_before_anything(
    command: str, tmp_path: Path
) -> None:
    said = () if command in ("sentiment", "shapes") else ("--model", "demo", "--workload", "xsum")
    asked = ("train", command, *said, "--out", tmp_path / "out", "--seed", MOST_SEED + 1)
    (line,) = refused(*asked, cwd=tmp_path).splitlines()
    assert line.endswith(f"'--seed': Input should be less than or equal to {MOST_SEED}")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["heads", "classifier", "sublayers", "eagle", "medusa"])
def test_every_training_on_answers_takes_options_of_its_workloads(
    command: str, tmp_path: Path
) -> None:
    asked = ("--model", "demo", "--workload", "xsum", "--out", "out")
    line = refused("train", command, *asked, "--workload-option", "xsun.split=x", cwd=tmp_path)
    assert "--workload-option: no workload 'xsun' here; did you mean 'xsum'?" in line


@pytest.mark.parametrize("kind", KINDS)
def test_a_draft_head_s_training_names_every_backend_that_takes_it(kind: str) -> None:
    command = {"eagle3": "eagle"}.get(kind, kind)
    found = {one.name: str(one.callback.__doc__) for one in train_app.registered_commands}
    takers = {VLLM: VLLM_METHODS, "speculative": OWN_METHODS}
    named = {name for name in takers if f" {name} " in found[command]}
    assert named == {name for name, methods in takers.items() if kind in methods}
