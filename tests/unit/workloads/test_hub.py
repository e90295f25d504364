"""A hub that does not answer: the caches are looked into, and nobody waits for minutes."""

from __future__ import annotations

from typing import Any

import datasets
import huggingface_hub
import pytest
from huggingface_hub import constants

from backends.checkpoints import models
from harness.core.errors import UserError
from harness.core.nouns import Model, Workload
from workloads.datasets import load_rows
from workloads.hub import HUB_TIMEOUT_S


class TimedOutError(Exception):
    """As the client library's own: it is no OSError."""


def silent(calls: list[dict[str, Any]]) -> Any:
    def ask(*_: object, **options: Any) -> None:
        calls.append(options)
        raise TimedOutError("timed out")

    return ask


def test_rows_come_from_the_cache_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    offline: list[tuple[bool, bool]] = []

    def load_dataset(*_: object, **__: object) -> list[dict[str, str]]:
        offline.append((datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE))
        return [{"question": "q", "answer": "#### 1"}]

    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", silent(asked))
    assert len(load_rows(Workload("gsm8k", "hub"), 0, 1)) == 1
    assert [call["timeout"] for call in asked] == [HUB_TIMEOUT_S]
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: None)
    load_rows(Workload("gsm8k", "hub"), 0, 1)
    assert offline == [(True, True), (False, False)]
    assert (datasets.config.HF_HUB_OFFLINE, constants.HF_HUB_OFFLINE) == (False, False)


def test_a_model_comes_from_the_cache_only(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    local: list[bool] = []

    def download(*_: object, local_files_only: bool, **__: object) -> str:
        local.append(local_files_only)
        raise huggingface_hub.errors.LocalEntryNotFoundError("nothing here")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", silent(asked))
    with pytest.raises(UserError, match=r"the hub cannot be reached \(timed out\)"):
        models.resolve(Model("nobody/nothing", revision="abc"))
    assert [call["revision"] for call in asked] == ["abc"]
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: None)
    with pytest.raises(UserError, match=r"the hub cannot be reached \(nothing here\)"):
        models.resolve(Model("nobody/nothing"))
    assert local == [True, False]


@pytest.mark.parametrize(
    ("variable", "limit"), [(None, "4"), ("30", "30"), ("soon", "4"), ("0", "4")]
)
def test_a_hub_that_is_slow_is_told_from_one_that_lacks_the_data(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, limit: str
) -> None:
    asked: list[dict[str, Any]] = []

    def load_dataset(*_: object, **__: object) -> None:
        raise ConnectionError("not in the cache")

    monkeypatch.delenv("HF_HUB_ETAG_TIMEOUT", raising=False)
    if variable is not None:
        monkeypatch.setenv("HF_HUB_ETAG_TIMEOUT", variable)
    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", silent(asked))
    told = (
        f"not in the cache; it gave no answer within {limit} s (HF_HUB_ETAG_TIMEOUT waits longer), "
        "so that the cache alone was looked into; without a network"
    )
    with pytest.raises(UserError) as raised:
        load_rows(Workload("gsm8k", "hub"), 0, 1)
    assert told in str(raised.value)
    assert [call["timeout"] for call in asked] == [float(limit)]
    monkeypatch.setattr(huggingface_hub.HfApi, "dataset_info", lambda *_, **__: None)
    with pytest.raises(UserError, match="from the hub: not in the cache; without a network"):
        load_rows(Workload("gsm8k", "hub"), 0, 1)
