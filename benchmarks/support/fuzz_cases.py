"""The cases of `benchmarks.soundness.fuzz_inputs`: mutated experiment files and damaged data files.

A case is decided by seed, kind and number alone, so that each can be made again by itself.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

EXPERIMENTS = sorted(Path("experiments").resolve().glob("*.yaml"))
FILE = "case.yaml"
INTEGERS = [0, -1, 1, 2, 17, 1000, 10**4, 10**5, 10**6, 10**9, 2**63, 10**20, 10**300, -(10**30)]
FLOATS = [0.0, -0.0, 0.5, 1e-300, 1e308, float("nan"), float("inf"), -float("inf")]
TEXTS = [
    *("", " ", "auto", "none", "hub", "bundled", "demo", "demo-draft", "nobody/nothing", "80:20"),
    *("99999999999:1", "0:0", "/", ".", "..", "~", "~nobody/x", "/dev/zero", "/proc/self/mem"),
    *("\0", "\x1b[31m", "\ud800", "\u202etxt", "a\nb", "x" * 5000, "{0.__class__}", "%s%n", "é"),
    *("http://[::1", "http://127.0.0.1:0/v1", "ftp://x", "1e999", "0x1f", "2024-13-01", "=", "<<"),
]
OTHERS: list[Any] = [None, True, False, [], {}, [[]], [{}], {"a": {"a": {"a": []}}}, [1, [2, [3]]]]
PIECES = [
    *(b"\xff", b"\x00", b"\xef\xbb\xbf", b"&a ", b"*a", b"!!int ", b"!!map ", b"!!set ", b"<<: "),
    *(b"- ", b"{", b"}", b"[", b"]", b"\t", b'"', b"'", b"%", b"|", b">", b"? ", b": ", b"# "),
    *(b"\r", b"\n", b"---\n", b"...\n", b"!!timestamp ", b"!!binary ", b"!x ", b"1:1:1", b"@"),
]


def structured(rng: random.Random, folder: Path) -> None:
    """A real experiment with one to four of its values or keys changed."""
    data = yaml.safe_load(rng.choice(EXPERIMENTS).read_text())
    for _ in range(rng.randint(1, 4)):
        _mutate(rng, data)
    text = yaml.safe_dump(data, sort_keys=False, allow_unicode=rng.random() < 0.5)
    (folder / FILE).write_text(text, errors="surrogatepass")


def _mutate(rng: random.Random, data: Any) -> None:
    holders = [found for found in _collections(data) if found]
    if not holders:
        return
    holder = rng.choice(holders)
    key = rng.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    action = rng.randrange(8)
    if action == 0:
        del holder[key]
    elif action == 1 and isinstance(holder, dict):
        holder[_misspelt(rng, str(key))] = holder.pop(key)
    elif action == 2:
        holder[key] = [holder[key]] * rng.choice((1, 2, 50))
    elif action == 3:
        holder[key] = {rng.choice(("name", "kind", "x", "options")): holder[key]}
    elif action == 4:
        other = yaml.safe_load(rng.choice(EXPERIMENTS).read_text())
        found = rng.choice(list(_collections(other)))
        holder[key] = rng.choice(list(found.values()) if isinstance(found, dict) else found or [0])
    elif action == 5 and isinstance(holder, dict):
        holder[_misspelt(rng, rng.choice(("seed", "rows", "mix", "engine", "limits")))] = _odd(rng)
    else:
        holder[key] = _odd(rng)


def _collections(data: Any) -> list[Any]:
    inner = data.values() if isinstance(data, dict) else data if isinstance(data, list) else None
    return [] if inner is None else [data, *(found for v in inner for found in _collections(v))]


def _odd(rng: random.Random) -> Any:
    return rng.choice(rng.choice((INTEGERS, FLOATS, TEXTS, OTHERS)))


def _misspelt(rng: random.Random, name: str) -> str:
    place = rng.randrange(len(name) + 1)
    return rng.choice((name, name.upper(), name[:place] + name[place + 1 :], name + "s"))


def bytewise(rng: random.Random, folder: Path) -> None:
    """The bytes of a real experiment file, one to six times cut, swapped or added to."""
    content = rng.choice(EXPERIMENTS).read_bytes()
    for _ in range(rng.randint(1, 6)):
        content = _damaged(rng, content)
    (folder / FILE).write_bytes(content)


def _damaged(rng: random.Random, content: bytes) -> bytes:
    begin = rng.randrange(len(content) + 1)
    end = min(begin + rng.choice((1, 1, 2, 8, 64)), len(content))
    action = rng.randrange(5)
    if action == 0:
        return content[:begin] + content[end:]
    if action == 1:
        return content[:begin] + rng.choice(PIECES) + content[begin:]
    if action == 2:
        return content[:end] + content[begin:end] * rng.choice((1, 3)) + content[end:]
    if action == 3 and rng.random() < 0.2:
        return content[:begin]
    return content[:begin] + bytes(rng.randrange(256) for _ in range(end - begin)) + content[end:]


def _as_jsonl(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _as_csv(rows: list[Any]) -> bytes:
    out = io.StringIO(newline="")
    objects = [row for row in rows if isinstance(row, dict)]
    writer = csv.DictWriter(out, sorted({key for row in objects for key in row}))
    writer.writeheader()
    writer.writerows(objects)
    return out.getvalue().encode(errors="replace")


def _as_parquet(rows: list[Any]) -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    out = io.BytesIO()
    texts = [{key: str(own) for key, own in row.items()} for row in rows if isinstance(row, dict)]
    parquet.write_table(pa.Table.from_pylist(texts), out)
    return out.getvalue()


FORMATS: dict[str, Callable[[list[Any]], bytes]] = {
    ".jsonl": _as_jsonl,
    ".json": lambda rows: json.dumps(rows).encode(),
    ".csv": _as_csv,
    ".parquet": _as_parquet,
}


def data(rng: random.Random, folder: Path) -> None:
    """A data file or a trace with damaged rows, bytes or name, and an experiment that reads it."""
    from workloads import bundled

    workload, suffix = rng.choice(sorted(bundled.GENERATORS)), rng.choice(sorted(FORMATS))
    is_trace = rng.random() < 0.2
    rows: list[Any] = bundled.rows(workload, "test", 12, rng.randrange(3))
    if is_trace:
        rows = [{"timestamp": number / 4} for number in range(12)]
    for _ in range(rng.choice((0, 1, 2))):
        _damage_row(rng, rows)
    content = FORMATS[suffix](rows)
    packed = suffix != ".parquet" and rng.random() < 0.4
    if packed:
        content = gzip.compress(content, mtime=0)
    for _ in range(rng.choice((0, 1, 2, 4))):
        content = _damaged(rng, content)
    if rng.random() < 0.1:
        suffix = rng.choice([*FORMATS, ".txt", "", ".jsonl.gz"])
    name = "data" + suffix + (".gz" if packed else "")
    (folder / name).write_bytes(content)
    write_experiment(folder, workload, trace=name) if is_trace else write_experiment(
        folder, workload, source=name
    )


def _damage_row(rng: random.Random, rows: list[Any]) -> None:
    place = rng.randrange(len(rows))
    row = dict(rows[place]) if rows[place] and isinstance(rows[place], dict) else {"x": 1}
    key = rng.choice(sorted(row))
    action = rng.randrange(5)
    if action == 0:
        del row[key]
    elif action == 1:
        row[key] = _odd(rng)
    elif action == 2:
        row[_misspelt(rng, key)] = row.pop(key)
    rows[place] = rng.choice((_odd(rng), [row])) if action == 3 else row
    if action == 4:
        rows.insert(place, row)


def write_experiment(folder: Path, workload: str = "gsm8k", **keys: Any) -> Path:
    """A small experiment; `source` and `trace` are files in the folder, `text` is put at its end,
    other keys replace its own."""
    entry = {"name": workload}
    if "source" in keys:
        entry["source"] = str(folder / keys.pop("source"))
    load: dict[str, Any] = {"kind": "closed", "concurrency": 1}
    if "trace" in keys:
        load = {"kind": "trace", "trace": str(folder / keys.pop("trace"))}
    text = keys.pop("text", "")
    content = {
        "name": "case",
        "model": "demo",
        "backends": [{"name": "scripted"}],
        "workloads": [entry],
        "load": [load],
        "requests": 8,
    } | keys
    path = folder / FILE
    path.write_text(yaml.safe_dump(content, sort_keys=False) + text, errors="surrogatepass")
    return path
