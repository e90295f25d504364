"""What passes of a text model cost outside of its layers, from what a run tells."""

from __future__ import annotations

from typing import Any, cast

import pytest

from harness.cli.planning import served_text
from harness.core.backend import Backend
from harness.core.nouns import Generation, Load, Request


class ResetOnly:
    def reset(self) -> None:
        pass


@pytest.mark.parametrize(
    ("telemetry", "outside_ms"),
    [
        # 7 passes in 64 ms, of which they ran 29: the other one began before them
        ([{"pass_us": 48_000.0}, {"pass_us": 29_000.0}], 5.0),
        # the pipeline's counts go out with any token: 40 passes, 24 ms
        ([{"stage_passes_1": 30.0, "stage_pass_us_1": 4e3}, {"stage_passes_1": 10.0,
          "stage_pass_us_1": 20e3}], 1.0),
        ([{"pass_us": 70_000.0}, {"pass_us": 70_000.0}], 0.0),
    ],
    ids=["whole", "staged", "clocks apart"],
)  # fmt: skip
def test_what_passes_took_is_taken_off(
    telemetry: list[dict[str, float]], outside_ms: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []

    def run_load(backend: Any, wanted: list[Request], load: Load) -> list[Generation]:
        asked.append((len(wanted), load.concurrency or 0))
        assert all(one.max_new_tokens == served_text.TOKENS == 8 for one in wanted)
        # the second one's first token comes 2 ms later, and before that nothing is timed
        return [
            Generation(f"{n}", 0, 0, commit_ns=[n * 2_000_000, 66_000_000], telemetry=told)
            for n, told in enumerate(telemetry)
        ]

    monkeypatch.setattr("harness.measure.load_loop.run_load", run_load)
    found = served_text._outside_ms(cast(Backend, ResetOnly()), 2)
    assert found == pytest.approx(outside_ms)
    assert asked == [(2, 2)]
