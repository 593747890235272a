"""The binding key of a topic, as a pattern that routing keys are compared with one by one.

A topic exchange asks which of many patterns match a key (`node.routing.exchanges.topic`); this is for the reverse, one
pattern and many keys. Source: amqp-behaviour §3.16.
"""

from typing import Final

_ONE: Final = "*"
_ANY: Final = "#"


def _words_of(key: str) -> tuple[str, ...]:
    """Return the words of a routing key or binding key; an empty one has none."""
    return tuple(key.split(".")) if key else ()


class KeyPattern:
    """A binding key: `*` is one word, `#` any number of them.

    key: the only routing key that matches; None: there may be several.
    """

    __slots__ = ("_first", "_words", "key")

    def __init__(self, text: str) -> None:
        words = self._words = _words_of(text)
        self.key = None if _ONE in words or _ANY in words else text
        self._first = words.index(_ANY) if _ANY in words else None

    def matches(self, key: str) -> bool:
        """True if a routing key matches; a step for each of its words, and for each pair of words if `#` is inside."""
        pattern, words, first = self._words, _words_of(key), self._first
        if first is None:
            return len(pattern) == len(words) and all(
                want in (_ONE, word) for want, word in zip(pattern, words, strict=True)
            )
        if first == len(pattern) - 1:  # the only `#` that MQTT's filters have
            return len(words) >= first and all(
                want in (_ONE, word) for want, word in zip(pattern[:first], words, strict=False)
            )
        # Which lengths of the key's beginning the pattern's beginning can match.
        reached = {0}
        for want in pattern:
            if want == _ANY:
                reached = set(range(min(reached), len(words) + 1)) if reached else set()
            else:
                reached = {at + 1 for at in reached if at < len(words) and want in (_ONE, words[at])}
        return len(words) in reached
