"""Labels of backends in an experiment file."""

from __future__ import annotations

from typing import Any

import pytest

from harness.cli import wiring
from harness.core.errors import UserError
from harness.experiment.config import Experiment, parse_experiment


def parse(*backends: Any) -> Experiment:
    content = {
        "name": "x",
        "model": "demo",
        "backends": list(backends),
        "workloads": ["gsm8k"],
        "load": [{"kind": "closed", "concurrency": 1}],
    }
    return parse_experiment(content, "f.yaml", wiring.known())


def scripted(**options: Any) -> dict[str, Any]:
    return {"name": "scripted", **options}


def test_a_label_is_no_part_of_a_trial() -> None:
    plain, named = parse("scripted"), parse(scripted(label="our server"))
    assert named.backends[0].label == "our server"
    assert plain.backends[0].label is None
    assert [t.key("m") for t in plain.trials()] == [t.key("m") for t in named.trials()]


def test_a_grid_fills_its_values_in() -> None:
    grid = parse(scripted(label="every {itl_s} s", itl_s=[0.01, 0.02]))
    assert [choice.label for choice in grid.backends] == ["every 0.01 s", "every 0.02 s"]


@pytest.mark.parametrize(
    ("backends", "message"),
    [
        ([scripted(label=3)], "backends[0].label: expected a text, got 3"),
        ([scripted(label="")], "backends[0].label: expected a text, got ''"),
        ([scripted(label="x" * 61)], "label: expected a text of up to 60 printable characters"),
        ([scripted(label="a\nb")], "label: expected a text of up to 60 printable characters"),
        (
            [scripted(label="{itl}", itl_s=1)],
            "label: 'itl' is no option that this entry sets; did you mean 'itl_s'?",
        ),
        (
            [scripted(label="x", itl_s=[0.1, 0.2])],
            "backends[0].label: 'x' stands twice; in a grid {OPTION} stands for an option's value",
        ),
        (
            [scripted(label="x"), scripted(label="x", itl_s=1)],
            "backends[1].label: 'x' stands twice",
        ),
        ([scripted(label="x"), scripted(label="y")], "f.yaml: backends: stands twice"),
    ],
)
def test_a_label_that_tells_nothing_apart_is_one_line(backends: list[Any], message: str) -> None:
    with pytest.raises(UserError) as raised:
        parse(*backends)
    assert message in str(raised.value)


def test_a_label_elsewhere_is_pointed_home() -> None:
    with pytest.raises(UserError, match="label: unknown key; it belongs to an entry of 'backends'"):
        parse_experiment(
            {"name": "x", "model": "demo", "label": "y", "backends": ["scripted"],
             "workloads": ["gsm8k"], "load": [{"kind": "closed", "concurrency": 1}]},
            "f.yaml", wiring.known(),
        )  # fmt: skip
