"""Regular expressions of permissions and policies.

RabbitMQ runs PCRE over the octets of a name, so we run `re` over its UTF-8 octets: `.` is one octet, `\\w` is
ASCII. Where Python's syntax is not PCRE's, most patterns are refused when they are set rather than understood
otherwise: `(?<name>…)`, `\\h`, `\\z`, `\\Q…\\E`, `\\K`, `\\p{…}`, recursion, `(?i)` within the pattern,
look-behind of varying length, and `[[:alpha:]]`, which `re` would misread and we refuse ourselves. What
differs in silence: `{,3}` is a repetition here and literal text there, `\\Z` does not match before a final
line feed here, and letters above 127 in ISO 8859-1 are not `\\w` here. PCRE gives up on a pattern that backtracks
without end; here such a pattern is matched without backtracking, see `node.catalogue.linear_pattern`, or refused.

Source: amqp-behaviour §6.1, §6.7, §6.8.
"""

import re
import warnings
from functools import lru_cache
from typing import Final

from node.catalogue.linear_pattern import Matcher, TooCostly, matcher

_NESTING_MAX: Final = 100
"""The limit of nested groups: deeper ones could exhaust Python's stack, on one node and not on the other."""


class PatternInvalid(ValueError):
    """The pattern is no regular expression. `reason` and `position` say why and at which octet."""

    def __init__(self, reason: str, position: int) -> None:
        super().__init__(reason, position)
        self.reason = reason
        self.position = position


def compile_pattern(pattern: str) -> Matcher:
    """Return a function that tells whether the pattern is found in an encoded name. Raises PatternInvalid."""
    compiled = _compile(pattern)
    if isinstance(compiled, PatternInvalid):
        raise PatternInvalid(compiled.reason, compiled.position)
    return compiled


def matches(pattern: str, text: str) -> bool:
    """True if the pattern is found anywhere in `text`; an invalid one never is."""
    compiled = _compile(pattern)
    return not isinstance(compiled, PatternInvalid) and compiled(encode_name(text))


def encode_name(name: str) -> bytes:
    """The octets that patterns are searched in."""
    return name.encode("utf-8", "surrogateescape")


@lru_cache(maxsize=4096)
def _compile(pattern: str) -> Matcher | PatternInvalid:
    posix_class = pattern.find("[:")
    if posix_class >= 0:
        return PatternInvalid("POSIX named classes are not supported", posix_class)
    depth = 0
    for position, character in enumerate(pattern):
        depth += (character == "(") - (character == ")")
        if depth > _NESTING_MAX:
            return PatternInvalid("groups are nested too deep", position)
    try:
        with warnings.catch_warnings():
            # A later Python may see a set operation in `[a--b]`; today it reads that as PCRE does.
            warnings.simplefilter("ignore", FutureWarning)
            return matcher(encode_name(pattern))
    except re.error as error:
        return PatternInvalid(error.msg, error.pos or 0)
    except (OverflowError, TooCostly) as error:
        return PatternInvalid(str(error), 0)
