"""A paper's table in an experiment file: kept as it is, or refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from harness.cli import wiring
from harness.core.errors import UserError
from harness.experiment.config import Experiment, load_experiment, parse_experiment

TABLE: dict[str, Any] = {
    "source": "a paper, table 2",
    "metric": "speedup",
    "settings": ["8B", "13B"],
    "note": "measured elsewhere.",
    "rows": [
        {"backend": "vllm", "values": {"gsm8k": [1, 1.5]}},
        {
            "backend": "adadecode",
            "options": {"gamma": 0.75},
            "values": {"gsm8k": [None, 1.57], "xsum": [1.14, 1.37]},
        },
    ],
}


def parse(published: Any) -> Experiment:
    content = {
        "name": "table",
        "model": "demo",
        "backends": ["vllm", {"name": "adadecode", "gamma": [0.5, 0.75]}],
        "workloads": ["gsm8k", "xsum"],
        "load": [{"kind": "closed", "concurrency": 1}],
        "published": published,
    }
    return parse_experiment(content, "f.yaml", wiring.known())


def row(**changes: Any) -> dict[str, Any]:
    return {**TABLE, "rows": [{**TABLE["rows"][1], **changes}]}


def test_it_is_kept_and_changes_no_trial(tmp_path: Path) -> None:
    with_table, without = parse(TABLE), parse(None)
    assert with_table.published is not None
    assert with_table.published.rows[1].values == {"gsm8k": [None, 1.57], "xsum": [1.14, 1.37]}
    assert without.published is None
    keys = [[trial.key("machine") for trial in e.trials()] for e in (with_table, without)]
    assert keys[0] == keys[1]
    (tmp_path / "experiment.yaml").write_text(with_table.to_yaml())
    assert load_experiment(tmp_path / "experiment.yaml", wiring.known()) == with_table


@pytest.mark.parametrize(
    ("published", "said"),
    [
        (7, "published: expected a mapping of keys, got 7"),
        ({**TABLE, "metric": "speedups"}, "published.metric: unknown metric 'speedups'; did you"),
        ({**TABLE, "settings": []}, "published.settings: expected a list of texts, each once"),
        ({**TABLE, "settings": ["8B"] * 2}, "published.settings: expected a list of texts"),
        ({**TABLE, "rows": []}, "published.rows: expected a list with at least one entry"),
        ({**TABLE, "from": 1}, "published.from: unknown key"),
        ({k: v for k, v in TABLE.items() if k != "note"}, "published: the key 'note' is missing"),
        (row(backend="vlm"), "published.rows[0].backend: 'vlm' is not among the backends"),
        (row(options={"gamma": 0.9}), "rows[0].options: expected those of a 'adadecode' of this"),
        (row(values={"gsm": [1, 2]}), "rows[0].values.gsm: 'gsm' is not among the workloads"),
        (row(values={"xsum": [1]}), "rows[0].values.xsum: expected a list of 2, one for each"),
        (row(values={"xsum": 1.5}), "rows[0].values.xsum: expected a list of 2, one for each"),
        (row(values={"xsum": [1, "2"]}), "rows[0].values.xsum: expected a number, got '2'"),
        (row(paper=1), "rows[0].paper: unknown key"),
    ],
)
def test_what_is_wrong_is_one_line(published: Any, said: str) -> None:
    with pytest.raises(UserError) as error:
        parse(published)
    assert str(error.value).startswith("f.yaml: published")
    assert said in str(error.value)
    assert "\n" not in str(error.value)
