"""A resolved experiment, as a run folder keeps it, turned back into a file as a person writes it.

So ``decodebench run runs/NAME/experiment.yaml`` does the same trials again: models, rows and traces
are pinned by the checksums that were found, and whatever differs now is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from harness.experiment.loads import SWEEP
from harness.experiment.section import YamlSection

ONLY_HERE = "loads"
"""A key that a person's file does not have: there it is ``load``."""
_FORM = (("model", "dtype"), ("backends", "options"), ("workloads", "workload"))
"""Keys inside the other parts that a person's file does not have either."""


def as_written(data: Any, where: str) -> Any:
    """The file's content, back in the form that a person writes where it is a resolved experiment;
    anything else as it is. Raises `UserError` for a resolved one that is damaged."""
    if not isinstance(data, Mapping) or ONLY_HERE not in data or not _is_resolved(data):
        return data
    top = YamlSection(data, where)
    dtypes, models = zip(*_models(top, where), strict=True)
    written = {
        "dtype": dtypes[0],
        "model": list(models) if len(models) > 1 else models[0],
        "backends": list(_backends(top)),
        "workloads": list(_workloads(top)),
        "load": list(_loads(top)),
    }
    return written | top.rest()


def _is_resolved(data: Mapping[str, Any]) -> bool:
    """By two of three parts: one may be damaged, and in a person's file one may be miswritten."""
    if "load" in data:
        return False
    entries = [(key, _listed(data.get(part))) for part, key in _FORM]
    return sum(any(isinstance(e, Mapping) and key in e for e in some) for key, some in entries) > 1


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _models(top: YamlSection, where: str) -> Iterator[tuple[Any, dict[str, Any]]]:
    """Each model with its dtype, which is one for all."""
    value = top.take("model")
    several = isinstance(value, list) and len(value) > 0
    for index, item in enumerate(value if several else [value]):
        model = YamlSection(item, where, f"model[{index}]" if several else "model")
        dtype, is_shape = model.take("dtype"), model.take("shape", False)
        given = _given(model.rest())
        yield dtype, {"shape": given.pop("name", None), **given} if is_shape else given


def _backends(top: YamlSection) -> Iterator[dict[str, Any]]:
    for section in top.sections("backends"):
        name = section.text("name")
        options = section.section("options").rest()
        label = _given({"label": section.take("label", None)})
        section.finish()
        # in a list of its own a list is one value, and no axis of a grid
        axes = {key: [own] if isinstance(own, list) else own for key, own in options.items()}
        yield {"name": name} | label | axes


def _workloads(top: YamlSection) -> Iterator[dict[str, Any]]:
    for section in top.sections("workloads", name_key="workload"):
        limit = section.take("max_new_tokens")
        workload = section.section("workload")
        section.finish()
        options = workload.section("options").rest()
        yield {"max_new_tokens": limit} | options | _given(workload.rest())


def _loads(top: YamlSection) -> Iterator[dict[str, Any]]:
    sweep, loads = top.take(SWEEP, None), top.take(ONLY_HERE)
    if loads != [] or sweep is None:
        for section in YamlSection({ONLY_HERE: loads}, top.where).sections(ONLY_HERE, "kind"):
            yield _given(section.rest())
    if sweep is not None:
        yield {"kind": SWEEP} | YamlSection(sweep, top.where, SWEEP).rest()


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}
