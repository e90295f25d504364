"""Where stages run, as options say it."""

from __future__ import annotations

from typing import Any

import pytest

from backends import check_options, settings
from backends.checkpoints import models
from backends.tetris.workers.options import default_threads, reserved, stage_device
from harness.core.errors import UserError
from harness.core.nouns import Model
from harness.core.processes import cores

MODELS = {"tetris": "demo", "tetris-classifier": "demo-sentiment"}
CLUSTER = "10.0.0.1:6379"


@pytest.mark.parametrize("backend", MODELS)
@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"ray_resources": {"GPU": 1}}, "'ray_resources': means nothing without option 'ray'"),
        (
            {"ray": "local", "ray_resources": {"gpu": 1}},
            "'ray_resources': 'gpu': did you mean 'GPU'?",
        ),
        (
            {"ray": "local", "ray_resources": {"GPU": 1.5}},
            "'GPU': expected a part of one or a whole number, got 1.5",
        ),
        (
            {"ray": "local", "ray_resources": {"V100": -1}},
            "'V100': expected a number above 0, got -1",
        ),
        (
            {"ray": "local", "ray_resources": {"CPU": True}},
            "'CPU': expected a number above 0, got True",
        ),
        ({"ray": "local", "ray_resources": {1: 1}}, "'ray_resources': '1': expected a name"),
        ({"ray": "local", "ray_resources": [1]}, "option 'ray_resources': expected dict"),
        ({"ray": 1}, "option 'ray': expected str, got 1"),
        ({"ray": "lokal"}, "lokal: expected HOST:PORT of a Ray cluster, or local; found no port"),
        ({"ray": "127.0.0.1:9"}, "option 'ray': 127.0.0.1:9: no Ray cluster answers within 1 s"),
    ],
)
def test_what_ray_cannot_reserve_or_reach_is_one_line(
    backend: str, options: dict[str, Any], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backends.tetris.live.devices.ANSWERS_S", 1.0)
    with pytest.raises(UserError) as found:
        check_options(backend, options, models.resolve(Model(MODELS[backend])))
    assert f"backend '{backend}'" in str(found.value)
    assert told in str(found.value)
    assert len(str(found.value).splitlines()) == 1


def test_without_ray_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from backends.tetris.workers import options

    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    options._answers.cache_clear()
    with pytest.raises(UserError, match=r"option 'ray': Ray is not installed; expected"):
        check_options("tetris", {"ray": "local"}, models.resolve(Model("demo")))


def test_a_cluster_s_actors_have_a_processor_and_its_threads() -> None:
    here = settings("tetris", {})
    usable = cores.usable_cores()
    assert default_threads(here, 1) == usable
    assert default_threads(here, 2 * usable) == 1
    local = settings("tetris", {"ray": "local"})
    assert reserved(local) == {}
    assert default_threads(local, 1) == usable
    there = settings("tetris", {"ray": CLUSTER})
    assert reserved(there) == {"CPU": 1}
    assert default_threads(there, 1) == 1
    more = settings("tetris", {"ray": CLUSTER, "ray_resources": {"CPU": 8, "GPU": 0.5}})
    assert default_threads(more, 64) == 8


def test_threads_are_no_more_than_a_quota_is_worth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "own_cores", lambda: frozenset(range(16)))
    monkeypatch.setattr(cores, "cpu_quota", lambda: 3.5)
    assert default_threads(settings("tetris", {}), 1) == 4
    assert default_threads(settings("tetris", {}), 2) == 2


def test_stages_run_on_what_their_actors_have() -> None:
    """This process may have no GPU, or one that the actors do not ask for."""
    assert stage_device(settings("tetris", {}), "cuda") == "cuda"
    there = {"ray": CLUSTER, "ray_resources": {"GPU": 0.5}}
    assert stage_device(settings("tetris", there), "cpu") == "cuda"
    assert stage_device(settings("tetris", {"ray": CLUSTER}), "cuda") == "cpu"
