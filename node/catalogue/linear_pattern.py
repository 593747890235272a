"""Regular expressions that cannot backtrack without end.

`re` tries one way after another: a pattern such as `(a+)+$` takes it 2^n steps. Where a bound on its steps is small
`re` is used, as it is quick; else the pattern becomes a program of few instructions, and no instruction is tried twice
at the same place of the text, so a search takes at most (instructions) x (length of the text) steps (Thompson,
"Regular Expression Search Algorithm", 1968). What a pattern means is what `re` says, for octets. References to groups,
atomic groups, possessive repeats and conditions are refused, as only backtracking can tell what they match. The
judgement depends on the pattern and the text alone: every node judges alike.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

from node.catalogue.pattern_program import Automaton, Instruction, search

TEXT_MAX: Final = 255
"""The length in octets of the text for which steps are counted: a name has at most that many."""

STEPS_MAX: Final = 2 * TEXT_MAX * TEXT_MAX
"""The limit of the steps that `re` may take for a search: some 1 ms for a name that was made for it."""

INSTRUCTIONS_MAX: Final = 250
"""The limit of a program's length: an instruction costs some 0.3 us for each octet of a text."""

_FLAGS: Final = re.IGNORECASE | re.MULTILINE | re.DOTALL | re.VERBOSE
_REFUSED: Final = {
    op.GROUPREF: "references to groups",
    op.GROUPREF_EXISTS: "conditions",
    getattr(op, "POSSESSIVE_REPEAT", None): "possessive repeats",
    getattr(op, "ATOMIC_GROUP", None): "atomic groups",
}

Matcher = Callable[[bytes], bool]


class TooCostly(ValueError):
    """The pattern cannot be searched for in bounded time; the message says why."""


def matcher(pattern: bytes) -> Matcher:
    """Return a function that tells whether the pattern is found in a text.

    Raises: re.error, OverflowError; TooCostly.
    """
    compiled = re.compile(pattern)
    tree = parser.parse(pattern)
    _check(tree)
    starts = (
        1
        if len(tree) and tree[0] in ((op.AT, op.AT_BEGINNING), (op.AT, op.AT_BEGINNING_STRING))
        else TEXT_MAX
    )
    if not compiled.flags & re.MULTILINE and starts * _steps(tree) <= STEPS_MAX:
        return lambda text: compiled.search(text) is not None
    program = _Compiler(compiled.flags).program(tree)
    if any(instruction.look is not None for instruction in program):
        return lambda text: search(program, text)
    return Automaton(program).search


def _check(tree: Any) -> None:
    for code, argument in tree:
        if code in _REFUSED:
            raise TooCostly(f"{_REFUSED[code]} are not supported")
        if code is op.SUBPATTERN and (argument[1] | argument[2]) & ~int(_FLAGS):
            raise TooCostly("such flags are not supported")
        for part in _parts(code, argument):
            _check(part)


def _parts(code: Any, argument: Any) -> Iterable[Any]:
    """Return the patterns within an element of a pattern."""
    if code is op.BRANCH:
        return argument[1]  # type: ignore[no-any-return]
    if code is op.SUBPATTERN:
        return (argument[3],)
    if code in (op.MAX_REPEAT, op.MIN_REPEAT):
        return (argument[2],)
    if code in (op.ASSERT, op.ASSERT_NOT):
        return (argument[1],)
    return ()


def _steps(tree: Any) -> int:
    """Return a bound on the ways in which `re` may go through a pattern from one place of a text."""
    ways = 1
    for code, argument in tree:
        if code is op.BRANCH:
            ways *= sum(_steps(part) for part in argument[1])
        elif code in (op.MAX_REPEAT, op.MIN_REPEAT):
            least, most, part = argument
            each = _steps(part)
            if most > 1 and part.getwidth()[0] == 0:
                return STEPS_MAX + 1  # repeated without limit and without an octet
            if least == most:
                ways *= each ** min(least, TEXT_MAX)
            elif each > 1:
                return STEPS_MAX + 1  # repeats within repeats
            else:
                ways *= min(most, TEXT_MAX) - least + 1
        else:
            for part in _parts(code, argument):
                ways *= _steps(part)
        if ways > STEPS_MAX:
            return STEPS_MAX + 1
    return ways


class _Compiler:
    """Translates parsed patterns to programs, from the last instruction to the first."""

    def __init__(self, flags: int) -> None:
        self._flags = flags
        self._left = INSTRUCTIONS_MAX

    def program(self, tree: Any) -> list[Instruction]:
        """Return the program of a pattern. It starts with its last instruction; at instruction 0 it has matched."""
        program = [Instruction(())]
        first = self._sequence(program, tree, 0, self._flags)
        program.append(Instruction((first,)))
        return program

    def _add(self, program: list[Instruction], instruction: Instruction) -> int:
        self._left -= 1
        if self._left < 0:
            raise TooCostly("the pattern may take too long to match and is too long to be made quick")
        program.append(instruction)
        return len(program) - 1

    def _sequence(self, program: list[Instruction], tree: Any, after: int, flags: int) -> int:
        for code, argument in reversed(list(tree)):
            after = self._element(program, code, argument, after, flags)
        return after

    def _element(self, program: list[Instruction], code: Any, argument: Any, after: int, flags: int) -> int:
        if code is op.BRANCH:
            ways = tuple(self._sequence(program, part, after, flags) for part in argument[1])
            return self._add(program, Instruction(ways))
        if code is op.SUBPATTERN:
            _, added, removed, part = argument
            return self._sequence(program, part, after, (flags | added) & ~removed)
        if code in (op.MAX_REPEAT, op.MIN_REPEAT):
            return self._repeat(program, argument, after, flags)
        if code in (op.ASSERT, op.ASSERT_NOT):
            direction, part = argument
            behind = part.getwidth()[0] if direction < 0 else 0
            inner = [Instruction(())]
            first = self._sequence(inner, part, 0, flags)
            inner.append(Instruction((first,)))
            look = Instruction((after,), look=inner, behind=behind, is_negated=code is op.ASSERT_NOT)
            return self._add(program, look)
        if code is op.AT:
            return self._add(program, Instruction((after,), at=_place(argument, flags)))
        return self._add(program, Instruction((after,), octets=_octets(code, argument, flags)))

    def _repeat(self, program: list[Instruction], argument: Any, after: int, flags: int) -> int:
        least, most, part = argument
        if most is op.MAXREPEAT:
            again = self._add(program, Instruction(()))
            first = self._sequence(program, part, again, flags)
            program[again] = Instruction((first, after))
            after = again
        else:
            for _ in range(most - least):
                first = self._sequence(program, part, after, flags)
                after = self._add(program, Instruction((first, after)))
        for _ in range(least):
            before, after = after, self._sequence(program, part, after, flags)
            if after == before:
                break  # nothing is repeated
        return after


def _place(code: Any, flags: int) -> Callable[[bytes, int], bool]:
    """Return the predicate for an anchor such as `^`, `$` or `\\b`."""
    if code is op.AT_BEGINNING and flags & re.MULTILINE:
        return lambda text, at: at == 0 or text[at - 1] == 10
    if code in (op.AT_BEGINNING, op.AT_BEGINNING_STRING):
        return lambda text, at: at == 0
    if code is op.AT_END and flags & re.MULTILINE:
        return lambda text, at: at == len(text) or text[at] == 10
    if code is op.AT_END:
        return lambda text, at: at == len(text) or (at == len(text) - 1 and text[at] == 10)
    if code is op.AT_END_STRING:
        return lambda text, at: at == len(text)
    is_boundary = code is op.AT_BOUNDARY
    assert is_boundary or code is op.AT_NON_BOUNDARY, code
    word = _category(op.CATEGORY_WORD)

    def at_boundary(text: bytes, at: int) -> bool:
        before, here = at > 0 and text[at - 1] in word, at < len(text) and text[at] in word
        # `\B` does not match in an empty text, as in `re` up to Python 3.13.
        return bool(text) and (before != here) is is_boundary

    return at_boundary


_CATEGORIES: Final = {
    op.CATEGORY_DIGIT: rb"\d",
    op.CATEGORY_NOT_DIGIT: rb"\D",
    op.CATEGORY_SPACE: rb"\s",
    op.CATEGORY_NOT_SPACE: rb"\S",
    op.CATEGORY_WORD: rb"\w",
    op.CATEGORY_NOT_WORD: rb"\W",
}


@cache
def _category(code: Any) -> frozenset[int]:
    one = re.compile(_CATEGORIES[code])
    return frozenset(octet for octet in range(256) if one.match(bytes([octet])))


def _octets(code: Any, argument: Any, flags: int) -> frozenset[int]:
    """Return the octets that an element of one octet matches."""
    if code is op.ANY:
        return frozenset(range(256)) - (frozenset() if flags & re.DOTALL else {10})
    items = argument if code is op.IN else [(op.LITERAL, argument)]
    is_negated = code is op.NOT_LITERAL or items[0][0] is op.NEGATE
    found: set[int] = set()
    for kind, value in items:
        if kind is op.LITERAL:
            found.add(value)
        elif kind is op.RANGE:
            found.update(range(value[0], value[1] + 1))
        elif kind is op.CATEGORY:
            found |= _category(value)
        else:
            assert kind is op.NEGATE, kind
    if flags & re.IGNORECASE:
        found = {
            octet
            for octet in range(256)
            if found.intersection(bytes([octet]).lower() + bytes([octet]).upper())
        }
    return frozenset(range(256)) - found if is_negated else frozenset(found)
