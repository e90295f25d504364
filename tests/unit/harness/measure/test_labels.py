"""Answers that are labels: what a backend may say, what is stored, and what is measured of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from harness.core.nouns import Commit, Generation, Label, Request
from harness.measure.load_loop import run_load
from harness.measure.protocol import TrialProtocolError
from results.compare import agreement
from results.metrics import latency
from results.metrics.arrays import from_record
from results.store.columns import from_table, to_parquet, to_table
from results.store.folder import Store
from tests.support.harness.puppet import CLOSED, Puppet
from tests.support.results.make_trials import record, trial

YES, NO = Label("yes", 0.9), Label("no", 0.6)


def ask(*names: str) -> list[Request]:
    return [Request(name, (1,), 1, answer="label") for name in names]


def answered(**labels: Label) -> list[Generation]:
    commits = [[Commit(name, (), "stop", label=label)] for name, label in labels.items()]
    return run_load(Puppet([[], *commits]), ask(*labels), CLOSED)


def test_a_label_is_the_whole_answer() -> None:
    found = answered(a=YES, b=NO)
    assert [(g.label, g.token_ids, g.commit_tokens) for g in found] == [
        (YES, [], [0]),
        (NO, [], [0]),
    ]
    assert all(g.commit_ns[0] >= g.submitted_ns and g.finished == "stop" for g in found)


@pytest.mark.parametrize(
    ("commit", "told"),
    [
        (Commit("a", (7,), "stop"), "asks for a label: .* this one has None, 1 tokens"),
        (Commit("a", (), "stop"), "this one has None, 0 tokens and ends with stop"),
        (Commit("a", (), None, label=YES), "ends with None"),
        (Commit("a", (7,), "stop", label=YES), "1 tokens and ends with stop"),
    ],
    ids=str,
)
def test_nothing_else_answers_a_request_for_a_label(commit: Commit, told: str) -> None:
    with pytest.raises(TrialProtocolError, match=told):
        run_load(Puppet([[commit]]), ask("a"), CLOSED)


def test_a_label_is_no_text() -> None:
    text = [Request("a", (1,), 4)]
    with pytest.raises(TrialProtocolError, match="asks for tokens and was given a label"):
        run_load(Puppet([[Commit("a", (), "stop", label=YES)]]), text, CLOSED)


def test_a_request_for_a_label_may_fail() -> None:
    (found,) = run_load(Puppet([[Commit("a", (), "error", error="too long")]]), ask("a"), CLOSED)
    assert (found.finished, found.error, found.label) == ("error", "too long", None)


def test_labels_are_stored_beside_what_has_none(tmp_path: Path) -> None:
    failed = Generation("c", 0, 0, finished="error", error="too long")
    made = record(trial(), [*answered(a=YES, b=NO), failed])
    generations, _, _ = from_table(to_table(made))
    assert generations == list(made.generations)
    store = Store(tmp_path)
    store.write(made)
    assert [g.label for g in store.read(made.key).generations] == [YES, NO, None]


def test_without_labels_nothing_more_is_stored() -> None:
    text = record(trial(), [Generation("a", 0, 0, finished="stop")])
    assert not {"label", "confidence"} & set(to_table(text).column_names)
    assert to_parquet(to_table(text))


def test_a_label_is_a_sample_of_latency_and_no_output_token() -> None:
    requests = from_record(record(trial(), answered(a=YES, b=NO)))
    assert requests.sampled.all()
    assert (latency.ttft_s(requests) == latency.e2e_s(requests)).all()
    assert np.isnan(latency.tpot_s(requests)).all()
    assert len(latency.itl_s(requests)) == 0
    assert latency.output_tokens(requests) == 0


def test_same_answers_are_same_labels() -> None:
    this = from_record(record(trial(), answered(a=YES, b=NO)))
    sure = dataclasses.replace(NO, confidence=0.99)
    other = from_record(record(trial(), answered(a=NO, b=sure)))
    found = agreement.compare(this, other)
    assert found.equal().tolist() == [False, True]
    assert agreement.consistency_ratio(found) == 0.5
