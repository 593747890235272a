"""Sizes as operators write them: `512k`, `20MB`, `1.5 GiB`. Without an `i` units are of 1000, with one of 1024."""

import re
from typing import Final

_UNITS: Final = {
    "": 1,
    **{letter: 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}i": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_SIZE: Final = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([kmgt]i?|)b?", re.IGNORECASE | re.ASCII)


def size_of(text: str) -> float | None:
    """Return the bytes of a size; None: it is none."""
    found = _SIZE.fullmatch(text.strip())
    return None if found is None else float(found[1]) * _UNITS[found[2].lower()]
