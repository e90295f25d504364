"""What is printed of a trained classifier."""

from __future__ import annotations

from typing import Any


def report_lines(report: dict[str, Any]) -> list[str]:
    """Two tables in Markdown, as the model card has them."""
    test = report["test"]
    lines = [
        f"{test['rows']} test rows; trained in {report['seconds']} s",
        "",
        "| layer | all rows | easier half | harder half |",
        "| ---: | ---: | ---: | ---: |",
    ]
    for layer, right in test["layers"].items():
        numbers = " | ".join(f"{right[part]:.3f}" for part in ("all", "easier", "harder"))
        lines.append(f"| {layer} | {numbers} |")
    lines += ["", "| rule | accuracy | layers run | as without |", "| --- | ---: | ---: | ---: |"]
    for name, found in test["exits"].items():
        lines.append(
            f"| {name} | {found['accuracy']:.3f} | {found['layers_run']:.2f} | "
            f"{found['as_without']:.3f} |"
        )
    return lines
