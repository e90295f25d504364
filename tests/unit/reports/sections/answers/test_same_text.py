"""The section that says whether each backend's text is the reference's, and the fork in the list
of answers."""

from __future__ import annotations

import re

import numpy as np

from reports.sections.answers.forks import side_by_side
from tests.support.results.report_pages import rows, section


def _text(row: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", row).split())


def test_a_row_per_backend_with_its_verdict(run_text: str) -> None:
    found = [_text(row) for row in rows(run_text, "same_text")]
    assert [line.split()[0] for line in found] == [
        "vllm",
        "vllm-early-exit",
        "vllm-early-exit",
        "adadecode",
    ]
    assert "the noise floor" in found[0]
    assert "lossy" in found[1]
    assert "token" in found[1]
    assert "lossless all 96 pairs are equal 100 [86.2, 100]" in found[3]
    assert '<a href="#same_text">Same text?</a>' in run_text


def test_without_another_backend_there_is_no_section(troubled_text: str, run_text: str) -> None:
    assert section(run_text, "same_text")
    assert "the noise floor" in section(troubled_text, "same_text")


def test_tokens_stand_side_by_side_at_the_fork() -> None:
    base, own = np.arange(10, 20), np.array([10, 11, 12, 13, 14, 77, 8])
    assert side_by_side(base, own, 5).splitlines() == [
        "    token   2   3   4  |   5   6    7    8    9",
        "reference  12  13  14  |  15  16   17   18   19",
        "     here  12  13  14  |  77   8  end  end  end",
    ]


def test_tokens_are_shown_by_their_text_where_it_is_known() -> None:
    known = {10: "␣the", 11: "␣bridge", 12: "s"}
    shown = side_by_side(np.array([10, 11]), np.array([10, 12, 99]), 1, known.get)
    assert shown.splitlines() == [
        "    token     0  |        1    2",
        "reference  ␣the  |  ␣bridge  end",
        "     here  ␣the  |        s   99",
    ]


def test_the_page_shows_the_tokens_of_a_fork(run_text: str) -> None:
    shown = section(run_text, "requests")
    assert re.search(
        r'<pre class="scroll small">\s*token .*?\|\s+\d+.*?reference.*?here', shown, re.S
    )
