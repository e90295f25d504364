"""The option `chat` of a workload: what of a model's chat template its prompts use, and how."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from harness.core.errors import UserError, nearest
from harness.core.nouns import Workload
from workloads.fields import encodable

OPTION = "chat"
KEYS = ("template", "template_kwargs", "system")
TEMPLATES = ("auto", "none")
NAME = r"^[A-Za-z_][A-Za-z_0-9]*$"
"""Of a variable of a template."""
OURS = {
    *("tokenize", "add_generation_prompt", "strftime_now", "messages", "conversation", "tools"),
    *("documents", "chat_template", "continue_final_message", "padding", "truncation"),
    *("max_length", "return_tensors", "return_dict", "return_assistant_tokens_mask"),
    *("tokenizer_kwargs",),
}
"""Arguments of transformers' call of a template that are no user's."""


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """How a prompt is written for a model with a chat template."""

    template: bool = True
    """False: as for a model without one."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """What the template is given beside the messages."""
    system: str | None = None
    """The system's message, of chats that have none."""

    @property
    def needs_template(self) -> bool:
        """Whether it says nothing of a model without a template."""
        return bool(self.arguments) or self.system is not None


NO_CHAT = ChatOptions()


def chat_of(workload: Workload) -> ChatOptions:
    """What a workload's options say. Raises `UserError` for what they cannot."""
    if OPTION not in workload.options:
        return NO_CHAT
    where = f"workload {workload.name}: option '{OPTION}'"
    return _checked(workload.options[OPTION], where)


def _checked(value: Any, where: str) -> ChatOptions:
    if not isinstance(value, Mapping) or not value:
        raise UserError(f"{where}: expected a mapping of {', '.join(KEYS)}, got {value!r}")
    for key in value:
        if key not in KEYS:
            raise UserError(f"{where}: unknown key {key!r}; {nearest(str(key), KEYS)}")
    template = value.get("template", "auto")
    if not isinstance(template, str) or template not in TEMPLATES:
        raise UserError(f"{where}: key 'template': expected auto or none, got {template!r}")
    arguments = value.get("template_kwargs", {})
    if not isinstance(arguments, Mapping):
        raise UserError(f"{where}: key 'template_kwargs': expected a mapping, got {arguments!r}")
    for name, one in arguments.items():
        _check_argument(name, one, f"{where}: key 'template_kwargs'")
    system = value.get("system")
    if "system" in value:
        if not isinstance(system, str) or not system.strip():
            raise UserError(f"{where}: key 'system': expected a text, got {system!r}")
        encodable(system, "system", where)
    found = ChatOptions(template == "auto", dict(arguments), system)
    if found.needs_template and not found.template:
        other = "template_kwargs" if arguments else "system"
        raise UserError(f"{where}: key '{other}' is for the template, which 'none' leaves out")
    return found


def _check_argument(name: Any, value: Any, where: str) -> None:
    if not isinstance(name, str) or not re.fullmatch(NAME, name):
        raise UserError(f"{where}: expected names of the template's variables, got {name!r}")
    if name in OURS:
        raise UserError(f"{where}: '{name}' is set by decodebench")
    plain = isinstance(value, bool | int | str) or (
        isinstance(value, float) and math.isfinite(value)
    )
    if not plain:
        raise UserError(
            f"{where}: '{name}': expected a text, a number, true or false, got {value!r}"
        )


def refuse_unfit(chat: ChatOptions, template: str, workload: str) -> None:
    """Raise `UserError` for options that a model's chat template (empty: it has none) does not
    know."""
    where = f"workload {workload}: option '{OPTION}'"
    if chat.needs_template and not template:
        raise UserError(f"{where}: the model's tokenizer has no chat template; leave it out")
    words = set(re.findall(r"[A-Za-z_]\w*", template)) if chat.arguments else set()
    for name in chat.arguments:
        if name not in words:
            close = get_close_matches(name, words, n=1)
            near = f"; did you mean '{close[0]}'?" if close else ""
            raise UserError(
                f"{where}: key 'template_kwargs': the model's chat template does not read '{name}'"
                f"{near}"
            )
