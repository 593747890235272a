"""This module escapes names that clients chose, for HTML and for spreadsheets.

A queue's name can be `</script>` or `=cmd()`, or have characters that reverse the direction of the text. No character
is dropped: an invisible one is written as its escape, so that two different names never look alike.
Source: spark §3.6, §6.23.
"""

import html
import re
from typing import Final

_INVISIBLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Controls, characters without width or that change the direction of text, and surrogates, which UTF-8 cannot hold."""

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""The beginnings of cells that a spreadsheet would calculate (the wide forms: Excel in Japanese and Chinese)."""


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT.get(character) or f"\\u{ord(character):04x}"


def visible(text: str) -> str:
    """Return the text with each invisible character written as an escape: `\\n`, `\\u202e`."""
    return _INVISIBLE.sub(_escaped, text)


def html_text(text: str) -> str:
    """Return text for the inside of an element or of an attribute in double quotes."""
    return html.escape(visible(text), quote=True)


def csv_text(text: str) -> str:
    """Return text for a cell of CSV that a spreadsheet opens: a quotation mark in front makes a formula a text.

    Source: OWASP, CSV Injection. The CSV writer quotes commas and line ends.
    """
    shown = text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\u0000")
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def clipped(text: str, characters_max: int) -> str:
    """Return at most so many characters, the last of them `…` if some are missing."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"
