"""The filters of a session's subscriptions as a tree, by their levels: a topic looks at those alone that may match it.

    a/+/c, a/#     root ─ a ─ + ─ c
                          └ #
Source: MQTT 3.1.1 and 5.0, chapter 4.7.
"""

from typing import Final

_ONE: Final = "+"
_REST: Final = "#"


class _Level:
    """A level of filters.   names: of the filters that end here.   below: the levels that follow."""

    __slots__ = ("below", "names")

    def __init__(self) -> None:
        self.names: tuple[str, ...] = ()
        self.below: dict[str, _Level] = {}


class FilterTree:
    """The filters of one session, each under a name of its own.

    A topic costs a step for each level that it reaches, and one for each filter that matches it. The exchange has the
    same filters as bindings, and refuses a message that reaches more than 20,000 words of them (`STATES_MAX`).
    """

    def __init__(self) -> None:
        self._root = _Level()

    def put(self, name: str, filter_: str) -> None:
        """Add a valid filter, which is not of a shared subscription. Several names may have one filter."""
        level = self._root
        for word in filter_.split("/"):
            found = level.below.get(word)
            if found is None:
                found = level.below[word] = _Level()
            level = found
        if name not in level.names:
            level.names += (name,)

    def remove(self, name: str, filter_: str) -> None:
        """Remove a filter that was added under this name."""
        words, path = filter_.split("/"), [self._root]
        for word in words:
            path.append(path[-1].below[word])
        path[-1].names = tuple(each for each in path[-1].names if each != name)
        for word, above, level in zip(reversed(words), path[-2::-1], path[:0:-1], strict=True):
            if level.names or level.below:
                break
            del above.below[word]

    def match(self, topic: str) -> list[str]:
        """Return the names of the filters that match a topic.

        A wildcard in front does not match topics that begin with `$` [MQTT-4.7.2-1]. `a/#` matches `a`, too.
        """
        found: list[str] = []
        takes_wildcards = not topic.startswith("$")
        reached = [self._root]
        for word in topic.split("/"):
            following: list[_Level] = []
            for level in reached:
                below = level.below
                if (same := below.get(word)) is not None and word not in (_ONE, _REST):
                    following.append(same)
                if takes_wildcards:
                    if (one := below.get(_ONE)) is not None:
                        following.append(one)
                    if (rest := below.get(_REST)) is not None:
                        found += rest.names
            takes_wildcards = True
            reached = following
            if not reached:
                return found
        for level in reached:
            found += level.names
            if (rest := level.below.get(_REST)) is not None:
                found += rest.names
        return found
