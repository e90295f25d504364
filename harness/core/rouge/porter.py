"""The Porter stemmer as rouge-score uses it, without the import of NLTK, which takes a second: it
loads all of `scipy.stats`.

The algorithm: Porter (1980), "An algorithm for suffix stripping", Program 14(3), 130-137, with
NLTK's departures from it, each of which is marked below. Steps have the paper's numbers. A word's
*shape* has a letter for each of its own: "c" for a consonant, "v" for a vowel; its *measure*, the
paper's m, is how often a vowel stands before a consonant there.
"""

from __future__ import annotations

IRREGULAR = {
    "skies": "sky",
    "dying": "die",
    "lying": "lie",
    "tying": "tie",
    "innings": "inning",
    "outings": "outing",
    "cannings": "canning",
    **{w: w for w in ("sky", "news", "inning", "outing", "canning", "howe")},
    **{w: w for w in ("proceed", "exceed", "succeed")},
}
"""NLTK's own."""
STEP_2 = (
    *(("ational", "ate"), ("tional", "tion"), ("enci", "ence"), ("anci", "ance"), ("izer", "ize")),
    *(("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("eli", "e"), ("ousli", "ous")),
    *(("ization", "ize"), ("ation", "ate"), ("ator", "ate"), ("alism", "al"), ("iveness", "ive")),
    *(("fulness", "ful"), ("ousness", "ous"), ("aliti", "al"), ("iviti", "ive")),
    *(("biliti", "ble"), ("fulli", "ful")),
)
"""The first suffix that a word has counts. Not the paper's: "bli" for "abli", and "fulli"."""
STEP_3 = (
    *(("icate", "ic"), ("ative", ""), ("alize", "al"), ("iciti", "ic"), ("ical", "ic")),
    *(("ful", ""), ("ness", "")),
)
STEP_4 = (
    *("al", "ance", "ence", "er", "ic", "able", "ible", "ant", "ement", "ment", "ent", "ion"),
    *("ou", "ism", "ate", "iti", "ous", "ive", "ize"),
)


def stem(word: str) -> str:
    """The stem of a word of lower-case ASCII letters and digits."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if len(word) <= 2:  # not the paper's: too short for any rule
        return word
    word = _step_1c(_step_1b(_step_1a(word)))
    word = _step_4(_first_of(STEP_3, _step_2(word)))
    return _step_5b(_step_5a(word))


def _shape(word: str) -> str:
    """A "y" is a vowel where it follows a consonant."""
    found, last = [], "v"
    for letter in word:
        is_vowel = letter in "aeiou" or (letter == "y" and last == "c")
        last = "v" if is_vowel else "c"
        found.append(last)
    return "".join(found)


def _measure(word: str) -> int:
    return _shape(word).count("vc")


def _ends_short(word: str) -> bool:
    """The paper's *o: consonant, vowel, consonant, the last of which is no w, x or y. Not the
    paper's: so does a word of a vowel and a consonant."""
    shape = _shape(word)
    return shape == "vc" or (shape.endswith("cvc") and word[-1] not in "wxy")


def _step_1a(word: str) -> str:
    if word.endswith("ies"):
        return word[:-1] if len(word) == 4 else word[:-2]  # not the paper's: "dies", "die"
    if word.endswith("sses"):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word


def _step_1b(word: str) -> str:
    if word.endswith("ied"):  # not the paper's
        return word[:-1] if len(word) == 4 else word[:-2]
    if word.endswith("eed"):
        return word[:-1] if _measure(word[:-3]) else word
    for suffix in ("ed", "ing"):
        if word.endswith(suffix) and "v" in _shape(word[: -len(suffix)]):
            return _mended(word[: -len(suffix)])
    return word


def _mended(word: str) -> str:
    """What is left of a word without "ed" or "ing", as it was before it took them."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if word[-1:] == word[-2:-1] and _shape(word)[-1] == "c":
        return word if word[-1] in "lsz" else word[:-1]
    return word + "e" if _measure(word) == 1 and _ends_short(word) else word


def _step_1c(word: str) -> str:
    """Not the paper's: the "y" must follow a consonant, and more than that."""
    before = word[:-1]
    turns = word.endswith("y") and len(before) > 1 and _shape(before)[-1] == "c"
    return before + "i" if turns else word


def _step_2(word: str) -> str:
    if word.endswith("alli") and _measure(word[:-4]):  # not the paper's: once more without it
        return _step_2(word[:-2])
    if word.endswith("logi"):  # not the paper's
        return word[:-1] if _measure(word[:-3]) else word
    return _first_of(STEP_2, word)


def _first_of(rules: tuple[tuple[str, str], ...], word: str) -> str:
    for suffix, instead in rules:
        if word.endswith(suffix):
            before = word[: -len(suffix)]
            return before + instead if _measure(before) else word
    return word


def _step_4(word: str) -> str:
    for suffix in STEP_4:
        if word.endswith(suffix):
            before = word[: -len(suffix)]
            goes = _measure(before) > 1 and (suffix != "ion" or before[-1] in "st")
            return before if goes else word
    return word


def _step_5a(word: str) -> str:
    before = word[:-1]
    measure = _measure(before) if word.endswith("e") else 0
    return before if measure > 1 or (measure == 1 and not _ends_short(before)) else word


def _step_5b(word: str) -> str:
    return word[:-1] if word.endswith("ll") and _measure(word[:-1]) > 1 else word
