"""The tokenizer of a checkpoint whose files say all about it, without transformers.

To import transformers' costs seconds of a core, most of them for torch. An engine that needs
neither (a served one, a scripted one) would wait for them at every start, and so would the command
line, which makes prompts. Checkpoints that this project trains need nothing of them: the
`tokenizers` library reads their `tokenizer.json`, as it does behind transformers, and Jinja their
chat template.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

SPECIAL = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
"""In the order in which transformers lists their ids."""
KNOWN = {*SPECIAL, "chat_template", "clean_up_tokenization_spaces", "model_max_length"}
"""What a `tokenizer_config.json` may hold beside its class; anything else is for transformers."""
CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
"""Those that take `tokenizer.json` as it is."""
FAMILIES = ("llama",)
"""Types of models for which transformers takes the class that is named, and no other."""
ELSEWHERE = (
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.json",
    "chat_template.jinja",
    "additional_chat_templates",
)
"""Files beside it that transformers reads, too."""
_TRACKED = re.compile(r"\{%[-+]?\s*generation\b")


class PlainTokenizer:
    """Answers as transformers' tokenizer does.

    Args:
        tokenizer: of the `tokenizers` library.
        special: the special tokens by name.
        chat_template: in Jinja; None: the model takes plain text.
    """

    def __init__(
        self, tokenizer: Any, special: Mapping[str, str], chat_template: str | None
    ) -> None:
        self._tokenizer, self._special = tokenizer, dict(special)
        self.chat_template = chat_template
        self._template: Any = None
        self.vocab_size: int = tokenizer.get_vocab_size(with_added_tokens=False)

    @property
    def eos_token_id(self) -> int | None:
        """Of the token that ends an answer."""
        return self._id("eos_token")

    @property
    def bos_token_id(self) -> int | None:
        """Of the token that begins a text."""
        return self._id("bos_token")

    @property
    def all_special_ids(self) -> list[int]:
        """Of the special tokens that have a name, each once."""
        named = (self._id(name) for name in SPECIAL)
        return list(dict.fromkeys(token for token in named if token is not None))

    def get_vocab(self) -> dict[str, int]:
        """The ids of all tokens, added ones included."""
        found: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        return found

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The token ids of a text."""
        found: list[int] = self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
        return found

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        """The text of token ids."""
        return str(self._tokenizer.decode(ids, skip_special_tokens=skip_special_tokens))

    def apply_chat_template(
        self,
        messages: Sequence[Mapping[str, str]],
        *,
        tokenize: bool = False,
        add_generation_prompt: bool = False,
        **variables: Any,
    ) -> str:
        """The prompt's text of a chat, which is never tokenized here. What the template raises
        passes through."""
        if tokenize:
            raise ValueError("a plain tokenizer gives the text of a chat; encode it")
        if self._template is None:
            self._template = _compiled(str(self.chat_template))
        told: dict[str, Any] = {"messages": messages, "tools": None, "documents": None}
        told |= {"add_generation_prompt": add_generation_prompt, **self._special, **variables}
        return str(self._template.render(**told))

    def _id(self, name: str) -> int | None:
        token = self._special.get(name)
        return None if token is None else self._tokenizer.token_to_id(token)


def read_plain(directory: Path) -> PlainTokenizer | None:
    """The tokenizer of a checkpoint; None where transformers would read more than is read here, or
    where a file is not what it should be, which transformers says better."""
    try:
        config = json.loads((directory / "tokenizer_config.json").read_bytes())
        model = json.loads((directory / "config.json").read_bytes())
        if not _is_plain(directory, config, model):
            return None
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
    except Exception:  # the tokenizers library raises a bare Exception
        return None
    special = {name: config[name] for name in SPECIAL if config.get(name) is not None}
    if tokenizer.truncation or tokenizer.padding or tokenizer.post_processor is not None:
        return None
    added = {
        token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special
    }
    if not added.issuperset(special.values()):
        return None
    return PlainTokenizer(tokenizer, special, config.get("chat_template"))


def _is_plain(directory: Path, config: Mapping[str, Any], model: Mapping[str, Any]) -> bool:
    template = config.get("chat_template")
    named = [config[name] for name in SPECIAL if config.get(name) is not None]
    return (
        config.get("tokenizer_class") in CLASSES
        and KNOWN.issuperset(config.keys() - {"tokenizer_class"})
        and config.get("clean_up_tokenization_spaces", False) is False
        and all(isinstance(token, str) for token in named)
        and (template is None or (isinstance(template, str) and not _TRACKED.search(template)))
        and model.get("model_type") in FAMILIES
        and "tokenizer_class" not in model
        and not any((directory / name).exists() for name in ELSEWHERE)
    )


def _compiled(template: str) -> Any:
    """Compiled as transformers does it: what a template may do and how it is laid out."""
    import jinja2.ext
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    def to_json(value: Any, ensure_ascii: bool = False, **layout: Any) -> str:
        # Jinja's own escapes for HTML
        return json.dumps(value, ensure_ascii=ensure_ascii, **layout)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
    )
    environment.filters["tojson"] = to_json
    environment.globals["raise_exception"] = refuse
    return environment.from_string(template)
