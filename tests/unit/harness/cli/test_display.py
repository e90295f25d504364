"""Tables on terminals of every kind."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from harness.cli import display
from harness.cli.gate.shown import print_rows
from harness.core.nouns import REPLAYED

PROGRAM = """
from harness.cli import display
table = display._table()
for _ in range(4):
    table.add_column("column", no_wrap=True, min_width=30)
table.add_row("first", "second", "third", "123456")
display._print(table)
"""


def on_terminal(**environment: str) -> str:
    """What the program writes to a terminal that has told no size."""
    main, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
    )
    os.close(terminal)
    text = b""
    while True:
        try:
            read = os.read(main, 65536)
        except OSError:  # the other end is closed
            read = b""
        if not read:
            break
        text += read
    os.close(main)
    assert process.wait() == 0, text.decode()
    return text.decode()


@pytest.mark.parametrize(
    "environment",
    [{}, {"TERM": "dumb"}, {"TERM": "dumb", "COLUMNS": "20"}, {"TERM": "xterm", "COLUMNS": "20"}],
    ids=str,
)
def test_no_terminal_cuts_a_number_off(environment: dict[str, str]) -> None:
    assert "123456" in on_terminal(**environment)


METRICS = ("ttft_s", "tpot_s", "e2e_s")


def cell(**changes: object) -> dict[str, object]:
    """A row of results with wide numbers."""
    numbers = {f"{name}_{p}": 8377.123 for name in METRICS for p in ("p50", "p99")}
    return {
        "backend": "adadecode",
        "options": {},
        "provenance": "re-implementation",
        "lossless": True,
        "is_reference": False,
        "model": "demo",
        "workload": "gsm8k",
        "load": "closed c=1",
        "n_completed": 3,
        "repeats": 3,
        "repeats_used": 3,
        "noise_checked": True,
        "speedup_repeats": 3,
        "realised_rate_per_s": None,
        "statuses": {"ok": 1},
        "valid": False,
        "void_metrics": [],
        "speedup": 1671.46,
        "speedup_low": 1494.48,
        "speedup_high": 1846.74,
        "consistency_ratio": 1.0,
        "output_tok_per_s": 1e6,
        "goodput_req_per_s": 0.1,
        "slo_ttft_ms": 200.0,
        "exact_match": 0.333,
        "pass_at_1": None,
        "rouge_l_to_label": None,
        "invalid_reasons": ["too-few-samples: 3", "machine-noisy: 49%"],
        **numbers,
        **changes,
    }


def test_long_names_of_variants_push_no_column_out(capsys: pytest.CaptureFixture[str]) -> None:
    long = {"heads": "a/very/long/folder/of/exit/heads/somewhere", "exit_layers": [1, 2, 3, 4]}
    display.print_cells([cell(), cell(options=long)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split()[-3:] == ["goodput", "quality", "valid"]
    row = next(line for line in lines if "very/long/folder" in line)
    assert "1671.46 [1494.48, 1846.74]" in row
    assert row.count("8,377,123 / 8,377,123?") == 3
    assert "0.333   machine-noisy" in row


@pytest.mark.parametrize(("completed", "doubts"), [(99, 3), (100, 0)])
def test_a_p99_of_too_few_requests_is_in_doubt(
    capsys: pytest.CaptureFixture[str], completed: int, doubts: int
) -> None:
    display.print_cells([cell(n_completed=completed)])
    assert capsys.readouterr().out.count("8,377,123?") == doubts


def test_a_lossy_variant_is_named_so(capsys: pytest.CaptureFixture[str]) -> None:
    display.print_cells([cell(), cell(options={"verify": False}, lossless=False)])
    text = capsys.readouterr().out
    assert text.count("lossy") == 1
    assert "adadecode verify=False (re-implementation, lossy)" in text


def test_a_replay_is_named_so_and_has_no_answers(capsys: pytest.CaptureFixture[str]) -> None:
    made = {"replay": {"name": "chatty", "exits": {"0.5": 0.4}}}
    scores = dict.fromkeys(("exact_match", "exact_match_flexible"))
    alike = {"provenance": REPLAYED, "lossless": False, "consistency_ratio": None, **scores}
    display.print_cells([cell(), cell(options=made, **alike)])
    text = capsys.readouterr().out
    (row,) = [line for line in text.splitlines() if "chatty" in line]
    assert row.startswith("adadecode replay=chatty (measured cost, replayed decisions) ")
    assert "lossy" not in text
    assert row.split("1846.74]")[1].split()[0] == "–"


def test_the_realised_rate_stands_beside_the_one_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    display.print_cells([cell(load="poisson 16/s", realised_rate_per_s=13.02), cell()])
    text = capsys.readouterr().out
    assert "gsm8k, poisson 16/s (realised 13/s), demo" in text
    assert "gsm8k, closed c=1, demo" in text


@pytest.mark.parametrize(
    ("repeats", "told"),
    [
        (1, "[ ]: 95%, over the requests only"),
        (2, "[ ]: 95%, too narrow where the machine drifts"),
        (3, None),
    ],
)
def test_intervals_of_few_repeats_are_not_taken_at_their_word(
    capsys: pytest.CaptureFixture[str], repeats: int, told: str | None
) -> None:
    display.print_cells([cell(speedup_repeats=repeats)])
    out = capsys.readouterr().out
    assert ("[ ]: 95%" in out) == (told is not None)
    assert told is None or told in out


def test_a_cell_says_what_it_does_without_and_what_nobody_saw(
    capsys: pytest.CaptureFixture[str],
) -> None:
    display.print_cells([cell(valid=True, repeats=3, repeats_used=2, invalid_reasons=[])])
    assert "yes (2 of 3)" in capsys.readouterr().out
    display.print_cells([cell(valid=True, noise_checked=False, invalid_reasons=[])])
    rows = capsys.readouterr().out.splitlines()
    assert rows[3].rstrip().endswith("not checked")
    assert rows[-1].startswith("not checked: nobody can see")


def test_a_name_between_colons_is_no_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    """It looked like another one than the report's."""
    display.print_cells([cell(label=":warning:", workload=":rocket:")])
    print_rows(":rocket:", ("cell",), [(":warning:",)])
    text = capsys.readouterr().out
    assert (text.count(":warning:"), text.count(":rocket:")) == (2, 2)
