"""What the page certifies: rankings over what is sound for all, comparisons struck where void."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from harness.core.nouns import Slo
from reports.cells import Cell, overview
from reports.variants import NamedOptions as Choice
from reports.variants import Variant, variants
from reports.words.ranking.headline import headline, trust_line
from reports.words.ranking.same import consistency
from reports.words.verdict import verdicts
from results import load
from results.compare.validity import REFERENCE
from tests.support.results.made_effects import made_effects
from tests.support.results.report_pages import rows, section, written
from tests.support.results.report_runs import LOADS, MadeUpBackend, write_run

VLLM, FAST, SWIFT, LOST = variants(
    [
        Choice("vllm", {}, "official code", True),
        Choice("fast", {}, "re-implementation", False),
        Choice("swift", {}, "re-implementation", False),
        Choice("lost", {}, "re-implementation", False),
    ]
)


def measured(
    variant: Variant, workload: str, speedup: float, *, valid: bool = True, same: float = 1.0
) -> Cell:
    """A cell with a narrow interval; one that is not valid holds nothing but its own numbers."""
    numbers = {"speedup": speedup, "speedup_low": speedup - 0.1, "speedup_high": speedup + 0.1}
    void = [] if valid else [*REFERENCE.speed, *REFERENCE.answers]
    return Cell(
        variant=variant,
        workload=workload,
        load="closed c=1",
        load_kind="closed",
        load_value=1,
        order=0,
        metrics={
            **numbers,
            "consistency_ratio": same,
            "repeats": 3,
            "spread": {},
            "void_metrics": void,
        },
        keys=(),
        slo=Slo(),
        trials=3,
        failed=0,
        valid_trials=3 if valid else 2,
        partly_valid=0 if valid else 1,
        effects={"speedup": made_effects(speedup, speedup - 0.1, speedup + 0.1, workload)},
    )


def test_backends_are_ranked_where_all_of_them_are_sound() -> None:
    """Over its own cells fast would come to 2.12 and win; swift has no sound number on xsum."""
    cells = [
        measured(FAST, "gsm8k", 1.5),
        measured(FAST, "xsum", 3.0),
        measured(SWIFT, "gsm8k", 2.0),
        measured(SWIFT, "xsum", 9.0, valid=False),
    ]
    found = headline(cells, [VLLM, FAST, SWIFT], "")
    assert found.startswith(
        "swift (re-implementation) was the fastest on gsm8k under closed c=1 (one request at a "
        "time), where every ranked backend has a valid speed-up (1 of 2 pairs of workload and "
        "load): 2.00×"
    )


def under(cell: Cell, concurrency: int) -> Cell:
    """The same under another closed load."""
    return dataclasses.replace(cell, load=f"closed c={concurrency}", load_value=concurrency)


def test_the_sentence_names_the_load_that_it_speaks_of() -> None:
    """It said how many loads it speaks of, and left open which."""
    cells = [
        measured(FAST, "gsm8k", 1.5),
        under(measured(FAST, "gsm8k", 3.0, valid=False), 8),
        under(measured(FAST, "gsm8k", 3.0, valid=False), 32),
    ]
    found = headline(cells, [VLLM, FAST], "")
    assert found.startswith(
        "fast (re-implementation) was faster under closed c=1 (one request at a time), where its "
        "speed-up is valid (1 of 3 pairs of workload and load): 1.50×"
    )
    cells = [under(measured(FAST, name, 1.5), 8) for name in ("gsm8k", "xsum")]
    found = headline([*cells, measured(FAST, "gsm8k", 9.0, valid=False)], [VLLM, FAST], "")
    assert " was faster under closed c=8 (8 requests at a time), where its speed-up" in found
    assert "(2 of 3 pairs of workload and load): 1.50×" in found
    several = [cells[0], measured(FAST, "gsm8k", 1.5), measured(FAST, "xsum", 9.0, valid=False)]
    assert " was faster where its speed-up is valid (2 of 3" in headline(several, [VLLM, FAST], "")


def test_who_has_no_valid_speed_up_is_not_said_to_have_one() -> None:
    cells = [
        *(measured(FAST, "gsm8k", 1.5), measured(FAST, "xsum", 1.5)),
        *(measured(SWIFT, "gsm8k", 2.0), measured(SWIFT, "xsum", 2.0, valid=False)),
        measured(LOST, "gsm8k", 9.0, valid=False),
    ]
    found = headline(cells, [VLLM, FAST, SWIFT, LOST], "")
    assert found.startswith(
        "swift (re-implementation) was the fastest on gsm8k under closed c=1 (one request at a "
        "time), where both backends with a valid speed-up have one (1 of 2 pairs"
    )
    assert found.endswith(" No speed-up of lost is valid.")


def test_cards_pool_the_cells_that_the_sentence_does() -> None:
    cells = [
        measured(FAST, "gsm8k", 1.5),
        measured(FAST, "xsum", 3.0),
        measured(SWIFT, "gsm8k", 2.0),
        measured(SWIFT, "xsum", 9.0, valid=False),
    ]
    _, fast, swift = verdicts(cells, [VLLM, FAST, SWIFT], "")
    assert (fast.speed, swift.speed) == ("1.50×", "2.00×")
    told = "over 1 of 2 cells, elsewhere not all compared are sound"
    assert (fast.speed_caption, swift.speed_caption) == (f"1.50 {told}", f"2.00 {told}")


def test_how_many_pairs_are_ranked_is_said_where_it_is_all_of_them() -> None:
    cells = [measured(FAST, name, 1.5) for name in ("gsm8k", "xsum")]
    found = headline(cells, [VLLM, FAST], "")
    assert found.startswith(
        "fast (re-implementation) was faster on average over both workloads under closed c=1 (one "
        "request at a time): 1.50×"
    )


def test_without_a_cell_that_is_sound_for_all_nobody_is_ranked() -> None:
    cells = [
        measured(FAST, "gsm8k", 1.5),
        measured(FAST, "xsum", 3.0, valid=False),
        measured(SWIFT, "gsm8k", 2.0, valid=False),
        measured(SWIFT, "xsum", 9.0),
    ]
    found = headline(cells, [VLLM, FAST, SWIFT], "")
    assert found == (
        "No workload and load has a valid speed-up of each of fast, swift, so none of them is "
        "called the fastest."
    )


def test_who_has_no_sound_cell_is_named_and_does_not_keep_the_others_from_being_ranked() -> None:
    cells = [measured(FAST, "gsm8k", 1.5), measured(SWIFT, "gsm8k", 2.0, valid=False)]
    found = headline(cells, [VLLM, FAST, SWIFT], "")
    assert found.startswith("fast (re-implementation) was faster: 1.50×")
    assert found.endswith(" No speed-up of swift is valid.")


def test_answers_that_do_not_hold_are_left_out_of_the_share() -> None:
    sound, void = measured(FAST, "gsm8k", 1.5), measured(FAST, "xsum", 1.5, valid=False, same=0.0)
    assert consistency([sound, void]) == (1.0, None)
    assert consistency([void]) == (0.0, None)
    (found,) = verdicts([sound, void], [FAST], "")
    assert found.answers == "same"


def test_trials_that_hold_in_part_are_told_apart() -> None:
    cells = [measured(FAST, "gsm8k", 1.5), measured(FAST, "xsum", 3.0, valid=False)]
    assert trust_line(cells) == (
        "5 of 6 trials are valid; 1 valid except for comparisons (struck through below)."
    )
    (found,) = verdicts(cells, [FAST], "")
    assert (found.trust, found.speed) == ("partly valid", "1.50×")
    spared = dataclasses.replace(cells[0], trials=5, left_out=2)
    assert trust_line([spared]) == (
        "3 of 5 trials are valid; 2 disturbed and not used (other repeats are enough)."
    )


NOISY = ("machine-noisy: others used 30% of the machine",)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One sound backend against a reference that is not valid."""
    engines = (MadeUpBackend("vllm", 0.010, reasons=NOISY), MadeUpBackend("fast", 0.005))
    return written(tmp_path_factory.mktemp("noisy"), *engines, loads=LOADS[:1], repeats=2)


def test_only_the_comparison_with_an_unsound_reference_is_struck(page: str) -> None:
    (reference, fast) = rows(page, "results")
    assert "invalid" in re.findall(r'<tr class="([^"]*)"', reference)[0]
    assert "invalid" not in re.findall(r'<tr class="([^"]*)"', fast)[0]
    struck = re.findall(r'<td class="[^"]*struck[^"]*" data-sort="([^"]*)"', fast)
    assert len(struck) == 1
    assert float(struck[0]) > 1.5
    assert "✕ in part" in fast
    assert 'data-valid="not valid"' in fast


def test_the_page_says_why_and_does_not_rank(page: str) -> None:
    assert "reference-not-valid: vllm, repeat 0, is not valid (machine-noisy" in section(
        page, "validity"
    )
    verdict = section(page, "verdict")
    assert "Who is faster than vllm cannot be said. No speed-up of fast is valid." in verdict
    assert "was the fastest" not in page
    assert "was faster" not in page


def test_the_interval_of_a_cell_is_no_reason_of_its_own(tmp_path: Path) -> None:
    """Repeat 1's remark that the interval pools repeat 0 repeats what the cell says already."""
    run = write_run(
        tmp_path,
        engines=(MadeUpBackend("vllm", 0.010), MadeUpBackend("fast", 0.005)),
        workloads=["gsm8k"],
        loads=LOADS[:1],
        repeats=2,
    )
    stored = load(run)
    key = next(
        s.record.key for s in stored.stored
        if s.record.trial.backend == "vllm" and s.record.trial.repeat == 0
    )  # fmt: skip
    record = stored.store.read(key)
    object.__setattr__(record.validity, "valid", False)
    object.__setattr__(record.validity, "reasons", NOISY)
    stored.store.write(record)
    (_, fast) = overview(load(run)).cells
    assert list(fast.reasons) == ["too-few-samples", "reference-not-valid"] or list(
        fast.reasons
    ) == ["reference-not-valid"]
    assert (fast.valid_trials, fast.partly_valid) == (1, 1)
    assert not fast.holds("speedup")
    assert fast.holds("ttft_s_p50")


def test_the_realised_rate_stands_beside_the_one_asked_for(tmp_path: Path) -> None:
    text = written(tmp_path, MadeUpBackend("vllm", 0.010), loads=(LOADS[0], LOADS[2]))
    closed, opened = rows(text, "results")
    assert "realised" not in closed
    assert re.search(r"poisson 4/s <span class=\"interval\">realised \d+(\.\d+)?/s</span>", opened)


@pytest.mark.parametrize(
    ("repeats", "words"),
    [(1, "one case of five"), (2, "nine cases of ten"), (3, None)],
)
def test_what_few_repeats_miss_is_said_where_the_intervals_are(
    tmp_path: Path, repeats: int, words: str | None
) -> None:
    engines = (MadeUpBackend("vllm", 0.010), MadeUpBackend("fast", 0.005))
    text = written(tmp_path, *engines, loads=LOADS[:1], repeats=repeats)
    told = re.search(r"holds? the truth (<[^>]*>)?in about", text)
    assert (told is not None) == (words is not None)
    assert words is None or words in text


def test_points_over_the_load_that_are_not_valid_are_marked(tmp_path: Path) -> None:
    engines = (MadeUpBackend("vllm", 0.010), MadeUpBackend("noisy", 0.005, reasons=NOISY))
    drawn = section(written(tmp_path, *engines, loads=LOADS[:2]), "load")
    assert "Hollow: not valid." in drawn
    titles = re.findall(r"<title>(\w+): [^<]*? tokens/s((?:, not valid at .*?)?)</title>", drawn)
    assert dict(titles) == {"vllm": "", "noisy": ", not valid at 1, 8"}
