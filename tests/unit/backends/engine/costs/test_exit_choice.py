from __future__ import annotations

import itertools

import numpy as np
import pytest

from backends.engine.costs import exit_choice
from backends.engine.costs.cost_model import Trace, replay
from backends.engine.costs.exit_choice import ExitChoice, LayerCosts, _tuned, choose, tune

COSTS = LayerCosts([10.0] * 8, exit_head=5.0, final_head=5.0, layers_full=[11.0] * 8)


def text(skill: float, seed: int = 0, n: int = 1500) -> Trace:
    """Positions of which a share `skill` is easy, from an early layer on."""
    draw = np.random.default_rng(seed)
    opens = np.where(draw.random(n) < skill, draw.integers(1, 6, n), 9)[:, None]
    known = np.arange(1, 8) >= opens
    confidence = np.where(known, draw.uniform(0.6, 1, (n, 7)), draw.uniform(0, 0.8, (n, 7)))
    agrees = known | (draw.random((n, 7)) < 0.2)
    starts = np.append(np.arange(0, n, 50), n)
    return Trace(tuple(range(1, 8)), confidence.astype(np.float16), agrees, starts)


def exhaustive(trace: Trace, gammas: tuple[float, ...], sizes: range) -> float:
    return max(
        replay(trace, layers, tried, COSTS.cut(layers), 5).speedup
        for size in sizes
        for layers in itertools.combinations(range(1, 8), size)
        for tried in itertools.product(gammas, repeat=size)
    )


@pytest.mark.parametrize("seed", range(3))
def test_choice_is_as_good_as_trying_all(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exit_choice, "MAX_EXITS", 2)
    monkeypatch.setattr(exit_choice, "LEAST_GAIN", 0)
    trace, gammas = text(0.7, seed, n=600), (0.5, 0.7, 0.8)
    found = choose(trace, COSTS, range(1, 8), 5, gammas=gammas)
    assert found.speedup == pytest.approx(exhaustive(trace, gammas, range(1, 3)), rel=0.003)
    again = replay(trace, found.layers, found.gammas, COSTS.cut(found.layers), 5)
    assert again.speedup == found.speedup > 1.1


def test_thresholds_are_improved_in_turn_until_none_can_be() -> None:
    """The new layer's best threshold lets the old one improve, and that the new one once more."""
    gains: dict[tuple[float, ...], float] = {(0.5, 0.5): 1.1, (0.9, 0.5): 1.2, (0.9, 0.3): 1.4}
    tried: list[tuple[float, ...]] = []

    def speedup(layers: tuple[int, ...], gammas: tuple[float, ...]) -> float:
        assert layers == (1, 2)
        tried.append(gammas)
        return gains.get(gammas, 1.0)

    found = _tuned(speedup, ExitChoice((1,), (0.5,), 1.0), 2, (0.3, 0.5, 0.9))
    assert found == ExitChoice((1, 2), (0.9, 0.3), 1.4)
    assert (0.3, 0.3) in tried, "until no layer improves"


def test_one_exit_tries_every_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exit_choice, "MAX_EXITS", 1)
    trace, gammas = text(0.6), (0.3, 0.6, 0.9)
    found = choose(trace, COSTS, (2, 3, 5), 5, gammas=gammas)
    best = max(
        (replay(trace, (layer,), (g,), COSTS.cut((layer,)), 5).speedup, (layer,), (g,))
        for layer in (2, 3, 5)
        for g in gammas
    )
    assert (found.speedup, found.layers, found.gammas) == best


def test_a_threshold_given_is_kept_and_more_exits_never_predict_less(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = []
    for most in (1, 2, 3):
        monkeypatch.setattr(exit_choice, "MAX_EXITS", most)
        found.append(choose(text(0.7), COSTS, range(1, 8), 5, gammas=(0.75,)))
    one, two, three = found
    assert one.speedup <= two.speedup <= three.speedup
    assert set(three.gammas) == {0.75}
    assert len(one.layers) == 1


def test_a_further_exit_must_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = text(0.7)
    monkeypatch.setattr(exit_choice, "LEAST_GAIN", 0)
    greedy = choose(trace, COSTS, range(1, 8), 5)
    monkeypatch.setattr(exit_choice, "LEAST_GAIN", 0.5)
    frugal = choose(trace, COSTS, range(1, 8), 5)
    assert len(frugal.layers) < len(greedy.layers)


def test_no_exit_where_none_pays() -> None:
    nothing = ExitChoice((), (), 1.0)
    assert choose(text(0.0), COSTS, range(1, 8), 5) == nothing
    dear = LayerCosts([10.0] * 8, exit_head=80.0, final_head=5.0)
    assert choose(text(0.6), dear, range(1, 8), 5) == nothing
    assert choose(text(0.6), COSTS, (), 5) == nothing


def test_given_layers_are_kept_and_only_their_thresholds_chosen() -> None:
    trace, gammas = text(0.7, n=600), (0.5, 0.7, 0.8)
    found = tune(trace, COSTS, (6, 2), 5, gammas=gammas)
    assert found.layers == (2, 6)
    best = max(
        replay(trace, (2, 6), tried, COSTS.cut((2, 6)), 5).speedup
        for tried in itertools.product(gammas, repeat=2)
    )
    assert found.speedup == pytest.approx(best, rel=0.003)
    dear = LayerCosts([10.0] * 8, exit_head=80.0, final_head=5.0)
    kept = tune(trace, dear, (2, 4, 5, 6), 5, gammas=(0.75,))
    assert (kept.layers, kept.gammas) == ((2, 4, 5, 6), (0.75,) * 4)
    assert kept.speedup == replay(trace, kept.layers, kept.gammas, dear.cut(kept.layers), 5).speedup
    assert kept.speedup < 1
    assert tune(trace, COSTS, (), 5) == ExitChoice((), (), 1.0)


def test_segments_of_the_cut() -> None:
    costs = LayerCosts([1, 2, 3, 4], 0.5, 0.7, [2, 3, 4, 5], per_pass=0.1).cut((1, 3))
    assert costs.segments == pytest.approx((1.1, 5.1, 4.1))
    assert costs.segments_full == pytest.approx((2.1, 7.1, 5.1))
    assert costs.exit_heads == (0.5, 0.5)
    assert costs.per_token() == pytest.approx(10.8)


def test_bad_candidates_are_refused() -> None:
    with pytest.raises(ValueError, match=r"exit layers \[8\]; the model has 8 layers"):
        choose(text(0.5, n=100), COSTS, (2, 8), 5)
    with pytest.raises(ValueError, match="thresholds"):
        choose(text(0.5, n=100), COSTS, (2,), 5, gammas=())
