"""How much an experiment may ask for before it is taken for a slip of the finger.

Each bound is a key of the section ``limits``, so that whoever means it can raise it.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from harness.core.errors import UserError
from harness.experiment.section import YamlSection

HIGHEST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Limits:
    """The section ``limits`` of an experiment file."""

    trials: int = 10_000
    """Cells of model x backend x options x workload x load x repeat."""
    engines: int = 200
    """Models x backends and their options: each is checked, and loaded by itself."""
    prompts: int = 20_000
    """Requests x workloads: each prompt is made, and cut into tokens, before anything runs."""
    bundled_rows: int = 2_000
    """Rows that the bundled generators make for all workloads together, at some ms each."""
    data_rows: int = 500_000
    """Rows read from data files and traces, all together: they are held in memory."""
    data_mib: int = 256
    """Read from data files and traces, all together, unpacked."""
    cache_gib: int = 40
    """The folder of generated shapes, in the user's cache."""

    def refuse(self, where: str, name: str, what: str, count: int) -> None:
        """Raise `UserError` for more than the limit `name` allows; `what` is counted."""
        most = getattr(self, name)
        if count > most:
            shown = f"{count:,}" if count < 10**15 else f"over {10**15:,}"
            raise UserError(
                f"{where}: {shown} {what}, more than {most:,}; 'limits: {{{name}: N}}' allows more"
            )


def take_limits(top: YamlSection) -> Limits:
    """The section ``limits`` of an experiment file, taken out. Raises `UserError`."""
    section = top.section("limits")
    limits = Limits(
        **{
            field.name: section.integer(field.name, field.default, least=1, most=HIGHEST)
            for field in fields(Limits)
        }
    )
    section.finish()
    return limits
