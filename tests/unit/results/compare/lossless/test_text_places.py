"""Texts are judged apart where numbers are rounded apart."""

from __future__ import annotations

from typing import Any

import pytest

from results.compare.lossless import verdicts


@pytest.mark.parametrize("apart", ["dtype", "machine"])
def test_dtypes_and_machines_have_verdicts_of_their_own(apart: str) -> None:
    """What one rounds does not excuse the other, nor condemn it."""

    def told(own: bool, equal: int, place: str) -> dict[str, Any]:
        differing = {f"r{n}": [0, 1] for n in range(40 - equal)}
        evidence = {
            "pairs": 40, "equal": equal, "requests": 40, "differing": differing, "forks": [],
            "draws": None,
        }  # fmt: skip
        name = "vllm" if own else "fast"
        return {
            "variant": name, "backend": name, "options": {}, "label": None, "model": "demo",
            "dtype": "bfloat16", "machine": "a", "against": "vllm", "is_self": own,
            "checksum": "c", "other_draws": False, "lossless": True, "evidence": evidence,
            apart: place,
        }  # fmt: skip

    places = ("float32", "float16") if apart == "dtype" else ("a", "b")
    cells = [told(True, 37, place) for place in places]
    cells += [told(False, equal, place) for equal, place in zip((37, 4), places, strict=True)]
    found = [one for one in verdicts.text_verdicts(cells) if not one.is_reference]
    assert {getattr(one, apart): one.verdict for one in found} == dict(
        zip(places, ("within noise", "lossy"), strict=True)
    )
