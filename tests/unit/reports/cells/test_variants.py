"""One colour per backend, one line style per set of options, the reference first."""

from __future__ import annotations

from typing import Any

import pytest

from harness.core.nouns import REPLAYED
from reports.variants import MARKERS, NamedOptions, named_engines, variants


def test_the_reference_is_first_and_alone_in_colour_zero() -> None:
    found = variants(
        [
            NamedOptions("adadecode", {"gamma": 0.6}, "re-implementation", False),
            NamedOptions("vllm", {}, "official code", True),
            NamedOptions("adadecode", {"gamma": 0.9}, "re-implementation", False),
            NamedOptions("tetris", {}, "simulation", False),
        ]
    )
    assert [(v.backend, v.slot, v.style) for v in found] == [
        ("vllm", 0, 0),
        ("adadecode", 1, 0),
        ("adadecode", 1, 1),
        ("tetris", 2, 0),
    ]
    assert [v.is_reference for v in found] == [True, False, False, False]


def test_labels_hold_only_the_options_that_differ() -> None:
    found = variants(
        [
            NamedOptions(
                "ee", {"threshold": 0.8, "measure": "softmax"}, "re-implementation", False
            ),
            NamedOptions(
                "ee", {"threshold": 0.95, "measure": "softmax"}, "re-implementation", False
            ),
        ]
    )
    assert [v.label for v in found] == ["ee threshold=0.8", "ee threshold=0.95"]
    assert [v.short_label for v in found] == ["ee 0.8", "ee 0.95"]
    assert found[0].all_options == "threshold=0.8, measure=softmax"


def test_what_most_variants_have_is_not_told() -> None:
    """An ablation's rows are named after what each of them changes."""
    usual = {"gamma": 0.75, "exits": [2, 4, 6], "heads": "mixed"}
    options: list[dict[str, Any]] = [
        usual,
        {**usual, "heads": "gsm8k"},
        {**usual, "heads": "original"},
        {**usual, "verify": False},
        {**usual, "exits": [4]},
        {"gamma": "auto", "exits": "auto"},
    ]
    found = variants([NamedOptions("ada", one, "re-implementation", False) for one in options])
    assert [v.short_label for v in found] == [
        "ada", "ada gsm8k", "ada original", "ada verify=no", "ada [4]", "ada auto auto",
    ]  # fmt: skip
    assert found[3].label == "ada verify=no"
    assert found[0].all_options == "gamma=0.75, exits=[2, 4, 6], heads=mixed"


def test_each_value_of_a_sweep_is_told() -> None:
    options = [{"gamma": 0.3}, {"gamma": 0.6}, {"gamma": 0.9}, {"gamma": 0.3, "verify": False}]
    found = variants([NamedOptions("ada", one, "re-implementation", False) for one in options])
    assert [v.short_label for v in found] == ["ada 0.3", "ada 0.6", "ada 0.9", "ada 0.3 verify=no"]


def test_variants_that_would_be_named_alike_are_told_in_full() -> None:
    options = [{"k": 1}, {"k": 1, "n": 2}, {"n": 2, "k": 3}, {"n": 2, "k": 3, "m": 1}, {}]
    found = variants([NamedOptions("ada", one, "re-implementation", False) for one in options])
    assert len({v.label for v in found}) == len(options)
    assert found[1].label == "ada k=1, n=2"


def test_kinds_of_a_backend_are_told_first_and_have_colours_of_their_own() -> None:
    options: list[dict[str, Any]] = [
        {"drafts": 12, "method": "draft_model"},
        {"method": "draft_model"},
        {"drafts": 4, "method": "lookahead"},
        {"drafts": "auto", "method": "lookahead"},
        {"method": "swift"},
    ]
    found = variants([NamedOptions("spec", one, "re-implementation", False) for one in options])
    assert [v.label for v in found] == [
        "spec draft_model, drafts=12", "spec draft_model", "spec lookahead, drafts=4",
        "spec lookahead, drafts=auto", "spec swift",
    ]  # fmt: skip
    assert found[2].short_label == "spec lookahead 4"
    assert [(v.slot, v.style) for v in found] == [(1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]


def test_more_kinds_than_colours_share_the_colour_of_their_backend() -> None:
    options = [{"method": f"m{n}"} for n in range(8)]
    found = variants([NamedOptions("spec", one, "re-implementation", False) for one in options])
    assert {v.slot for v in found} == {1}
    assert [v.style for v in found] == [*range(8)]


def test_lossy_variants_are_marked() -> None:
    (lossy,) = variants([NamedOptions("ada", {}, "re-implementation", False, lossy=True)])
    assert lossy.provenance == "re-implementation, lossy†"
    assert lossy.short_label == "ada†"
    assert lossy.label == "ada"


@pytest.mark.parametrize(("exit_layer", "marked"), [(3.5, "†"), (None, "")])
def test_a_replay_is_lossy_where_its_tokens_leave_for_good(
    exit_layer: float | None, marked: str
) -> None:
    """No replay promises a text: what its weights say is chance."""
    cell = {
        "backend": "ada", "options": {}, "provenance": REPLAYED, "lossless": False,
        "is_reference": False, "mean_exit_layer": exit_layer,
    }  # fmt: skip
    (replay,) = variants(list(named_engines([cell], {})))
    assert replay.short_label == f"ada{marked}"
    assert replay.provenance == REPLAYED + ", lossy†" * bool(marked)


def test_more_backends_than_colours_go_round_without_taking_the_reference_colour() -> None:
    engines = [NamedOptions(f"b{i}", {}, "simulation", False) for i in range(9)]
    slots = [v.slot for v in variants([NamedOptions("ref", {}, "official code", True), *engines])]
    assert slots == [0, 1, 2, 3, 4, 5, 6, 7, 1, 2]


def test_option_values_are_shown_safely() -> None:
    (only,) = variants([NamedOptions("x\u202e", {"k": {"a": [1.5, True]}}, "simulation", False)])
    assert only.name == "x⟨U+202E⟩"
    assert only.all_options == "k={a=[1.5, yes]}"


def test_the_legend_has_a_mark_for_every_marker_of_the_plots() -> None:
    found = variants(
        [NamedOptions("fast", {"n": n}, "simulation", False) for n in range(len(MARKERS))]
    )
    assert len({variant.mark for variant in found}) == len(MARKERS)


def test_rates_are_told_by_their_name() -> None:
    made = {"name": "chatty", "exits": {"0.5": 0.4}}
    found = variants(
        [NamedOptions("vllm", {"replay": value}, REPLAYED, False) for value in (made, "demo")]
    )
    assert [v.label for v in found] == ["vllm replay=chatty", "vllm replay=demo"]
    assert found[0].provenance == REPLAYED
    assert found[0].is_replay


def test_what_the_experiment_calls_a_backend_is_its_name_everywhere() -> None:
    found = variants(
        [
            NamedOptions("vllm", {}, "official code", True),
            NamedOptions("http", {"a": 1}, "official code", False, unverified=True, label="ours"),
            NamedOptions("http", {"a": 2}, "official code", False, lossy=True, label="a\u202eb"),
        ]
    )
    assert [v.label for v in found] == ["vllm", "ours", "a⟨U+202E⟩b"]
    assert [v.short_label for v in found] == ["vllm", "ours", "a⟨U+202E⟩b†"]
    assert [v.provenance for v in found] == [
        "official code", "official code, unverified", "official code, lossy†",
    ]  # fmt: skip
