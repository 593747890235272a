"""Names that strangers chose, made harmless: in HTML, in a spreadsheet, on paper.

A queue can be called `</script>`, `=cmd()` or hold characters that turn the line around. Nothing here drops
characters silently: what cannot be shown is written as its escape, so that two names never look alike because of it.
Source: reference spark.md §3.6, §6.23.
"""

import html
import re
from typing import Final

_INVISIBLE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Controls, what has no width, what turns the direction of writing, and halves of pairs, which UTF-8 cannot hold."""

_SHORT: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
"""How a cell begins that a spreadsheet would calculate (the wide forms: Excel in Japanese and Chinese)."""


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    return _SHORT.get(character) or f"\\u{ord(character):04x}"


def visible(text: str) -> str:
    """The text with everything that cannot be seen written as an escape: `\\n`, `\\u202e`."""
    return _INVISIBLE.sub(_escaped, text)


def html_text(text: str) -> str:
    """For the inside of an element or of an attribute in double quotes."""
    return html.escape(visible(text), quote=True)


def csv_text(text: str) -> str:
    """For a cell of CSV that a spreadsheet opens: a formula becomes text by a quotation mark before it.

    Source: OWASP, CSV Injection. The quoting of commas and lines is the writer's.
    """
    shown = text.encode("utf-8", "backslashreplace").decode("utf-8").replace("\x00", "\\u0000")
    return f"'{shown}" if shown.startswith(_FORMULA) else shown


def clipped(text: str, characters_max: int) -> str:
    """At most so many characters, the last of them `…` if some are missing."""
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"
