"""Options of the `http` backend that cannot be right, found without asking anybody."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from harness.core.errors import UserError

OWN_FIELDS = ("model", "prompt", "messages", "stream", "n", "echo", "stop_token_ids")


def check_options(options: Mapping[str, Any]) -> None:
    """Raise `UserError` for an address, a field or a key variable that cannot be right."""
    check_base_url(options["base_url"])
    for name in options["extra_body"]:
        if name in OWN_FIELDS:
            raise UserError(f"backend 'http': extra_body: '{name}' is set by decodebench")
    variable = options["api_key_env"]
    if variable is None:
        return
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", variable):
        # The value is not repeated: it may be the key itself.
        raise UserError("backend 'http': api_key_env: expected the NAME of a variable")
    key = os.environ.get(variable)
    if not key:
        raise UserError(f"backend 'http': api_key_env: ${variable} is not set")
    if any(map(_is_control, key)):
        raise UserError(
            f"backend 'http': api_key_env: ${variable} holds a line end or the like; "
            "expected the key alone"
        )


def check_base_url(url: str) -> str:
    """`url` without a trailing slash, ``/v1`` added when it has no path. Raises `UserError`."""
    try:
        parts = urlsplit(url)
        bad = not url.isascii() or " " in url or any(map(_is_control, url))
        bad = bad or parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0
        (parts.hostname or "").encode("idna")  # as it is looked up: no part of it empty or too long
    except ValueError:
        bad = True
    if bad:
        raise UserError(
            f"backend 'http': base_url {url!r}: expected http(s)://HOST[:PORT][/v1]"
        ) from None
    if parts.username or parts.password or parts.query or parts.fragment:
        raise UserError(
            "backend 'http': base_url holds more than an address; "
            "name the variable with the key in api_key_env"
        )
    return url.rstrip("/") if parts.path.strip("/") else url.rstrip("/") + "/v1"


def _is_control(character: str) -> bool:
    return character < " " or character == "\x7f"
