"""Tokenizers of the bundled classifiers: words for sentences, pixels for images."""

from __future__ import annotations

import string
from collections import Counter
from itertools import islice
from pathlib import Path

from backends.classifiers.models.shapes import GREYS
from backends.training.labels.recipe import labelled_rows
from backends.training.rows.tokenizer import write_tokenizer

SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LEAST = 3
"""How often a word is seen that gets a token of its own."""


def write_words(out: Path, longest: int, rows: int = 20_000) -> int:
    """Write BERT's WordPiece with the words of the train rows, and letters for all others. Returns
    the number of tokens."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    normal, split = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    seen: Counter[str] = Counter()
    for sentence, _ in islice(labelled_rows("sentiment", 0), rows):
        seen.update(word for word, _ in split.pre_tokenize_str(normal.normalize_str(sentence)))
    signs = string.ascii_lowercase + string.digits
    parts = [*signs, *string.punctuation, *(f"##{sign}" for sign in signs)]
    often = [word for word, count in seen.items() if count >= LEAST]
    words = sorted(often, key=lambda word: (-seen[word], word))
    vocabulary = {word: n for n, word in enumerate(dict.fromkeys([*SPECIALS, *parts, *words]))}
    made = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normal, split
    made.decoder = decoders.WordPiece()
    ends = [(name, vocabulary[name]) for name in ("[CLS]", "[SEP]")]
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, ends)
    names = dict(zip(("pad", "unk", "cls", "sep", "mask"), SPECIALS, strict=True))
    write_tokenizer(made, out, {f"{key}_token": name for key, name in names.items()}, longest)
    return len(vocabulary)


def write_pixels(out: Path, longest: int) -> None:
    """Write a tokenizer whose ids 0 to 255 are pixels in hexadecimal; anything else is 256, which
    no network takes."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    vocabulary = {f"{grey:02x}": grey for grey in range(GREYS)} | {"[UNK]": GREYS}
    made = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    write_tokenizer(made, out, {"unk_token": "[UNK]"}, longest)
