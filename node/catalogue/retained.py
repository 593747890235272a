"""Retaining exchanges: type `x-retained`, which keeps the last message of each routing key.

A new binding from the exchange gets the messages that it keeps and whose routing keys match the binding's, as a topic
exchange matches; an empty message ends what is kept for its key. The exchange routes nothing: MQTT's retained messages
are published to it beside the exchange of the subscriptions. The plug-in for MQTT declares it.
Source: MQTT 5.0, chapter 3.3.1.3; docs/mqtt.md.
"""

from typing import Final

from node.catalogue.kept_length import KeptLength

RETAINED_TYPE: Final = "x-retained"

DEFAULT_LENGTH: Final = 1_000_000

KEPT: Final = KeptLength("x-max-length", DEFAULT_LENGTH)
"""For how many routing keys a message is kept."""


def words_of(key: str) -> tuple[str, ...]:
    """Return the words of a routing key or binding key; an empty one has none."""
    return tuple(key.split(".")) if key else ()


def matches(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    """True if the words of a routing key match those of a binding key: `*` is one word, `#` any number of them."""
    if "#" not in pattern:
        return len(pattern) == len(words) and all(
            want in ("*", word) for want, word in zip(pattern, words, strict=True)
        )
    first = pattern.index("#")
    if first == len(pattern) - 1:  # the only `#` that MQTT's filters have
        return len(words) >= first and all(
            want in ("*", word) for want, word in zip(pattern[:first], words, strict=False)
        )
    # Which lengths of the key's beginning the pattern's beginning can match; a step for each of its words.
    reached = {0}
    for want in pattern:
        if want == "#":
            reached = set(range(min(reached), len(words) + 1)) if reached else set()
        else:
            reached = {at + 1 for at in reached if at < len(words) and want in ("*", words[at])}
    return len(words) in reached
