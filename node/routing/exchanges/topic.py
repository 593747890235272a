"""The topic exchange: a binding's routing key is a pattern of words, `*` for one word and `#` for any number.

The patterns form a trie, one node a word. A message's key is walked word by word through all nodes that it
can have reached so far, never by trying one way after another: `#.#.#.#` against `a.a.a.a.a` would take
exponentially many. A node is reached at most once per word, so a match costs at most (words of the key) x
(words of all patterns), and in practice a handful of dict look-ups per word. Patterns that were made to cost more are
bounded: a message that passes `STATES_MAX` is refused.

Source: amqp-behaviour §3.16.
"""

from collections.abc import Collection, Iterable
from typing import ClassVar

from node.amqp.field_table import Table
from node.catalogue.records import Binding
from node.routing.exchanges import STATES_MAX, Destination, Destinations, destination_of, too_many_ways


class _Node:
    """A beginning of patterns, with the words that may follow it. In a *message's* key `*` and `#` are plain words."""

    __slots__ = ("any_word", "any_words", "destinations", "words")

    def __init__(self) -> None:
        self.words: dict[str, _Node] = {}
        self.any_word: _Node | None = None
        self.any_words: _Node | None = None
        self.destinations = Destinations()

    def child(self, word: str) -> "_Node | None":
        """Return the node for the next word of a pattern."""
        if word == "*":
            return self.any_word
        if word == "#":
            return self.any_words
        return self.words.get(word)

    def set_child(self, word: str, node: "_Node | None") -> None:
        """Put a node in the place of `child(word)`, or empty that place."""
        if word == "*":
            self.any_word = node
        elif word == "#":
            self.any_words = node
        elif node is not None:
            self.words[word] = node
        else:
            del self.words[word]

    def is_unused(self) -> bool:
        return not (self.destinations or self.words or self.any_word or self.any_words)


def split_words(key: str) -> list[str]:
    """Return the words of a key or a pattern: '' has none, `.` has two empty ones."""
    return key.split(".") if key else []


class TopicIndex:
    """An index of destinations as a trie of patterns."""

    uses_routing_key: ClassVar[bool] = True
    headers_asked: ClassVar[Collection[bytes]] = ()

    def __init__(self) -> None:
        self._root = _Node()
        self.states = 0

    def bind(self, binding: Binding) -> None:
        """Count the binding at the node of its pattern; missing nodes are made."""
        node = self._root
        for word in split_words(binding.routing_key):
            following = node.child(word)
            if following is None:
                following = _Node()
                node.set_child(word, following)
            node = following
        node.destinations.add(destination_of(binding))

    def unbind(self, binding: Binding) -> None:
        """Count one binding less at the node of its pattern. Nodes that lead nowhere any more are dropped."""
        node = self._root
        path: list[tuple[_Node, str]] = []
        for word in split_words(binding.routing_key):
            path.append((node, word))
            following = node.child(word)
            if following is None:
                raise KeyError(binding.routing_key)
            node = following
        node.destinations.remove(destination_of(binding))
        for parent, word in reversed(path):
            if not node.is_unused():
                break
            parent.set_child(word, None)
            node = parent

    def match(self, routing_key: str, headers: Table | None = None) -> Iterable[Destination]:
        """Return the destinations of all patterns that match the key.

        Raises: ProtocolError 406 for a key that reaches too much.
        """
        reached = [self._root]
        # The `#` nodes reached so far. Whatever words follow, `#` takes them: a node stays here to the end.
        absorbing: dict[_Node, None] = {}
        _open_any_words(self._root, absorbing)
        states = 0
        for word in split_words(routing_key):
            states += len(reached) + len(absorbing)
            if states > STATES_MAX:
                raise too_many_ways(routing_key)
            following = []
            for node in (*reached, *absorbing) if absorbing else reached:
                if (named := node.words.get(word)) is not None:
                    following.append(named)
                if node.any_word is not None:
                    following.append(node.any_word)
            for node in following:
                if node.any_words is not None:
                    _open_any_words(node, absorbing)
            reached = following
            if not reached and not absorbing:
                break
        self.states = states
        return [destination for node in (*reached, *absorbing) for destination in node.destinations]


def _open_any_words(node: _Node, absorbing: dict[_Node, None]) -> None:
    """Add the `#` that follows `node`, and the `#` after that one: `#` also takes no word at all."""
    following = node.any_words
    while following is not None and following not in absorbing:
        absorbing[following] = None
        following = following.any_words
