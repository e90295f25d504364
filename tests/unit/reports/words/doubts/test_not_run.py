"""What a stored experiment asks for is what the experiment itself lists."""

from __future__ import annotations

import dataclasses

import yaml

from harness.core.nouns import Trial
from reports.words.doubts.not_run import _asked
from tests.support.harness.resolved import resolved

CHANGES = {
    "backends": ["scripted", {"name": "scripted", "ttft_s": 0.1, "itl_s": 0.2}],
    "workloads": ["gsm8k", {"name": "xsum", "max_new_tokens": 7}],
    "load": [{"kind": "closed", "concurrency": [1, 2]}, {"kind": "poisson", "rate": 3}],
    "sampling": {"temperature": 0.5, "top_p": 0.9, "seed": 3},
    "slo": {"ttft_ms": 100, "tpot_ms": 20, "e2e_ms": 900},
    "ignore_eos": True,
    "seed": 5,
    "duration_s": 4,
    "repeats": 2,
    "reload": True,
}


def test_trials_are_those_that_the_experiment_lists() -> None:
    """None of their fields is left at its default by all of them but for those that no file sets,
    so that a field that is forgotten would show."""
    experiment = resolved("demo", **CHANGES)
    listed = experiment.trials()
    asked = [*_asked(yaml.safe_load(experiment.to_yaml()))]
    assert len(asked) == 24
    assert {one.key("") for one in asked} == {one.key("") for one in listed}
    usual = {field.name: field.default for field in dataclasses.fields(Trial)}
    assert not [name for name in usual if all(getattr(t, name) == usual[name] for t in listed)]
