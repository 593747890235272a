"""Programs of patterns, and two ways of searching a text with them.

    program ─► has it looks ahead or behind? ─ yes ─► `search`: step by step
                                             └ no ──► `Automaton`: one lookup for each octet, once it is known

`node.catalogue.linear_pattern` makes the programs. A program begins with its last instruction; at instruction 0 it has
matched.
Source: K. Thompson, "Regular Expression Search Algorithm", 1968; R. Cox, "Regular Expression Matching Can Be Simple
And Fast", 2007, for the states that are made when they are needed.
"""

from collections.abc import Callable
from itertools import count
from typing import Final, NamedTuple

WAYS_MAX: Final = 500
"""The most ways between states that an automaton remembers, some 75 kB. Patterns for names need less than a hundred."""

SEARCH_STEPS_MAX: Final = 20_000
"""The most steps of a search that looks ahead or behind, some 10 ms. A look may be tried at every place and go to the
end of the text each time. PCRE, which RabbitMQ uses, gives up in the same way: what is not found by then is not there.
"""

_END: Final = 256
_LAST_LINE_FEED: Final = 257
"""What stands for the next octet at the end of a text, and where it is the text's last and a line feed."""

_NOTHING: Final = -1
"""What stands for the octet before at the beginning of a text."""


class Instruction(NamedTuple):
    """An instruction of a program: it matches if all its conditions hold.

    octets: the next octet must be one of these.   at: a predicate of the text and the place.
    look: a program that must match from here, or (behind octets back) to here; is_negated: must not match.
    ways: the instructions that follow; instruction 0 is the end of the program: it has matched.
    """

    ways: tuple[int, ...]
    octets: frozenset[int] | None = None
    at: "Callable[[bytes, int], bool] | None" = None
    look: "list[Instruction] | None" = None
    behind: int = 0
    is_negated: bool = False


def search(program: list[Instruction], text: bytes) -> bool:
    """True if the program matches anywhere in the text, and that shows within `SEARCH_STEPS_MAX` steps.

    An instruction that failed at a place is not tried there again.
    """
    failed = bytearray(len(program) * (len(text) + 1))
    steps = count()
    try:
        return any(_matches(program, text, start, failed, steps) for start in range(len(text) + 1))
    except _TooManySteps:
        return False


class _TooManySteps(Exception):
    """A search has taken `SEARCH_STEPS_MAX` steps."""


def _matches(
    program: list[Instruction], text: bytes, start: int, failed: bytearray, steps: "count[int]"
) -> bool:
    """True if the program matches from `start` on.

    failed: by place and instruction; added to.   steps: counts those of the whole search. Raises _TooManySteps.
    """
    length, size = len(program), len(text)
    pending = [(length - 1, start)]
    while pending:
        number, position = pending.pop()
        if not number:
            return True
        index = position * length + number
        if failed[index]:
            continue
        if next(steps) >= SEARCH_STEPS_MAX:
            raise _TooManySteps
        failed[index] = 1
        instruction = program[number]
        if instruction.octets is not None:
            if position == size or text[position] not in instruction.octets:
                continue
            position += 1
        elif instruction.at is not None:
            if not instruction.at(text, position):
                continue
        elif instruction.look is not None and not _looks(instruction, text, position, steps):
            continue
        pending += [(way, position) for way in instruction.ways]
    return False


def _looks(instruction: Instruction, text: bytes, position: int, steps: "count[int]") -> bool:
    inner, start = instruction.look, position - instruction.behind
    assert inner is not None
    if start < 0:
        return instruction.is_negated
    # What is looked for behind us has one length, so any match of it ends here.
    failed = bytearray(len(inner) * (len(text) + 1))
    return _matches(inner, text, start, failed, steps) is not instruction.is_negated


class _State(NamedTuple):
    """A place in a text, as far as the rest of the search depends on it.

    pending: the instructions to be tried, as bits.   before: the octet before, if any instruction asks for it.
    ways: the state that follows, by what comes next: an octet, `_END` or `_LAST_LINE_FEED`.
    """

    pending: int
    before: int
    ways: "dict[int, _State]"


_MATCHED: Final = _State(0, _NOTHING, {})


class Automaton:
    """Searches with a program that has no looks. All ways through it are followed at once, octet by octet.

    A state and its ways are made when a text first leads there, which costs as much as a step of `search` does for each
    instruction. At `WAYS_MAX` all are forgotten.
    """

    def __init__(self, program: list[Instruction]) -> None:
        assert all(instruction.look is None for instruction in program)
        self._program = program
        self._begin = 1 << (len(program) - 1)
        self._asks_before = any(instruction.at is not None for instruction in program)
        self._states: dict[tuple[int, int], _State] = {}
        self._ways = 0

    def search(self, text: bytes) -> bool:
        """True if the program matches anywhere in the text."""
        state = self._state(self._begin, _NOTHING)
        ends_in_line = text[-1:] == b"\n"
        for octet in text[:-1] if ends_in_line else text:
            following = state.ways.get(octet)
            state = self._follow(state, octet) if following is None else following
            if state is _MATCHED:
                return True
        for symbol in (_LAST_LINE_FEED, _END) if ends_in_line else (_END,):
            following = state.ways.get(symbol)
            state = self._follow(state, symbol) if following is None else following
            if state is _MATCHED:
                return True
        return False

    def _state(self, pending: int, before: int) -> _State:
        key = (pending, before)
        found = self._states.get(key)
        if found is None:
            found = self._states[key] = _State(pending, before, {})
        return found

    def _follow(self, state: _State, symbol: int) -> _State:
        """Return the state behind the symbol, and remember it."""
        if self._ways >= WAYS_MAX:
            for each in self._states.values():
                each.ways.clear()
            self._states = {(state.pending, state.before): state}
            self._ways = 0
        self._ways += 1
        pending = self._after(state, symbol)
        if pending is None:
            following = _MATCHED
        else:
            octet = ord("\n") if symbol == _LAST_LINE_FEED else symbol
            following = self._state(pending | self._begin, octet if self._asks_before else _NOTHING)
        state.ways[symbol] = following
        return following

    def _after(self, state: _State, symbol: int) -> int | None:
        """Return the instructions that wait behind the symbol, as bits, or None if the program has matched."""
        octet = ord("\n") if symbol == _LAST_LINE_FEED else symbol
        # A text that looks from the place as the whole one does: one octet before it, two behind it.
        behind = b"" if symbol == _END else b"\n" if symbol == _LAST_LINE_FEED else bytes((octet, 0))
        around = behind if state.before == _NOTHING else bytes((state.before,)) + behind
        place = len(around) - len(behind)
        after, seen = 0, state.pending
        trying = [number for number in range(len(self._program)) if seen >> number & 1]
        while trying:
            number = trying.pop()
            if not number:
                return None
            instruction = self._program[number]
            if instruction.octets is not None:
                if octet in instruction.octets:
                    for way in instruction.ways:
                        after |= 1 << way
                continue
            if instruction.at is not None and not instruction.at(around, place):
                continue
            for way in instruction.ways:
                if not seen >> way & 1:
                    seen |= 1 << way
                    trying.append(way)
        return after
