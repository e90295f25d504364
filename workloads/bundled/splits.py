"""The rule that puts a row into the train or the test split: a hash of what the row is about."""

import hashlib
from typing import Literal

Split = Literal["train", "test"]
TEST_SHARE = 10
"""One row in this many belongs to the test split."""


def split_of(key: str) -> Split:
    """Return the split of the row with this key.

    The key names the row's structure and content (operations, numbers, facts), so that the same
    problem can never stand in both splits, whatever seed drew it.
    """
    digest = hashlib.sha256(key.encode()).digest()
    return "test" if int.from_bytes(digest[:8], "big") % TEST_SHARE == 0 else "train"
