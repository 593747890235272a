"""Erlang's portable hash `erlang:phash2/1`, and a jump through buckets with numbers of its generator `exs1024`.

RabbitMQ's plug-ins choose queues by these two, so a message with the same key goes to the same queue here. `phash2` is
the same on every machine and in every release of Erlang; it hashes with Robert Jenkins' function of 1996, "lookup2".

Terms in Python: int, float, `bytes` for binaries, `Atom` for atoms, tuples and lists.
Source: `make_hash2` of Erlang/OTP (erts/emulator/beam/utils.c); `rand:seed_s(exs1024, …)` of stdlib 4.2; Lamping and
Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm". Compared with Erlang 25, term by term.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, TypeAlias

from node.amqp.field_table import Field, type_name

Term: TypeAlias = "int | float | bytes | Atom | tuple[Term, ...] | list[Term]"

_MASK: Final = 0xFFFFFFFF
_GOLDEN: Final = 0x9E3779B9
_SMALL: Final = 1 << 27
"""Smaller numbers than this are hashed as one word; larger ones, and smaller than its negative, in words of 64 bits."""

_NIL_ALONE: Final = 3468870702
_NIL: Final = 2
"""The word for the end of a list, after other terms."""

_DOUBLE: Final = Struct(">d")
_TWO_WORDS: Final = Struct(">II")
_THREE_WORDS: Final = Struct("<III")
_RANGE: Final = 1 << 27

_MASK_64: Final = (1 << 64) - 1
_MASK_21: Final = (1 << 21) - 1
_WORDS: Final = 16
"""The words of 64 bits in the state of `exs1024`."""


class Atom(str):
    """An atom of ASCII letters."""

    __slots__ = ()


UNDEFINED: Final = Atom("undefined")


def phash2(term: Term) -> int:
    """Return the hash of a term, below 2**27."""
    return _hash(term, 0) & (_RANGE - 1)


def phash2_32(term: Term) -> int:
    """Return the hash of a term as `phash2(Term, 1 bsl 32)` has it, below 2**32."""
    return _hash(term, 0)


def term_of(field: Field) -> Term:
    """Return the term for a field of a table, as RabbitMQ has it: a tuple of type and value."""
    return (Atom(type_name(field.tag)), _value_of(field))


def jump(key: int, buckets: int) -> int:
    """Return the bucket of a key, from 0 to `buckets` - 1. About 1 + ln(buckets) steps.

    With one more bucket a key either stays or moves to the new one.
    """
    if buckets == 1:
        return 0
    numbers = _exs1024(key)
    bucket = following = 0
    while following < buckets:
        bucket = following
        drawn = next(numbers) / 18446744073709551616.0
        if drawn == 0.0:  # as rare as one in 2**64; RabbitMQ's channel would crash here
            break
        following = int((bucket + 1) / drawn)
    return bucket


# --- phash2 -----------------------------------------------------------------------------------------------


def _hash(term: Term, state: int) -> int:
    """Add a term to a hash. The depth is bounded, as a table of AMQP is within other tables."""
    if isinstance(term, Atom):
        value = _hash_of_atom(term)
        return _add(state, value, 0, 3) if state else value
    if isinstance(term, bytes):
        state = (state + 13 * _GOLDEN) & _MASK
        return _hash_block(term, state) if term else state
    if isinstance(term, int):
        return _hash_integer(term, state)
    if isinstance(term, float):
        high, low = _TWO_WORDS.unpack(_DOUBLE.pack(term or 0.0))
        return _add(state, high, low, 12)
    if isinstance(term, tuple):
        state = _add(state, len(term), 0, 9)
        for item in term:
            state = _hash(item, state)
        return state
    return _hash_list(term, state)


def _hash_list(items: list[Term], state: int) -> int:
    """Add a list. Bytes in it are added four at a time, as strings are lists of these."""
    word = count = 0
    for item in items:
        if isinstance(item, int) and 0 <= item < 256:
            word = (word << 8) | item
            count += 1
            if count < 4:
                continue
        if count:
            state = _add(state, word, 0, 4)
            word = count = 0
        if not (isinstance(item, int) and 0 <= item < 256):
            state = _hash(item, state)
    if count:
        state = _add(state, word, 0, 4)
    return _add(state, _NIL, 0, 2) if state else _NIL_ALONE


def _hash_integer(number: int, state: int) -> int:
    if -_SMALL <= number < _SMALL:
        if number < 0:
            state = _add(state, -number, 0, 1)
        return _add(state, number & _MASK, 0, 1)
    factor, rest = (10, -number) if number < 0 else (11, number)
    while rest:
        state = _add(state, rest & _MASK, (rest >> 32) & _MASK, factor)
        rest >>= 64
    return state


def _hash_of_atom(atom: str) -> int:
    """Return the hash of an atom's name: Peter Weinberger's, as compilers use it for names."""
    state = 0
    for byte in atom.encode("ascii"):
        state = ((state << 4) + byte) & _MASK
        if high := state & 0xF0000000:
            state ^= high >> 24
            state ^= high
    return state


def _add(state: int, first: int, second: int, factor: int) -> int:
    """Add two words to a hash.   factor: a number for the kind of term."""
    return _mix((factor * _GOLDEN + first) & _MASK, (factor * _GOLDEN + second) & _MASK, state)


def _hash_block(data: bytes, state: int) -> int:
    """Return Jenkins' hash of bytes, beginning with a state."""
    a = b = _GOLDEN
    end = len(data) - len(data) % 12
    for x, y, z in _THREE_WORDS.iter_unpack(data[:end]):
        a, b, state = _mixed((a + x) & _MASK, (b + y) & _MASK, (state + z) & _MASK)
    # The lowest byte of the last word is the length's.
    rest = data[end:]
    x, y, z = _THREE_WORDS.unpack((rest[:8].ljust(8, b"\0") + b"\0" + rest[8:]).ljust(12, b"\0"))
    return _mix((a + x) & _MASK, (b + y) & _MASK, (state + len(data) + z) & _MASK)


def _mix(a: int, b: int, c: int) -> int:
    return _mixed(a, b, c)[2]


def _mixed(a: int, b: int, c: int) -> tuple[int, int, int]:
    """Mix three words of 32 bits reversibly."""
    a = ((a - b - c) ^ (c >> 13)) & _MASK
    b = ((b - c - a) ^ (a << 8)) & _MASK
    c = ((c - a - b) ^ (b >> 13)) & _MASK
    a = ((a - b - c) ^ (c >> 12)) & _MASK
    b = ((b - c - a) ^ (a << 16)) & _MASK
    c = ((c - a - b) ^ (b >> 5)) & _MASK
    a = ((a - b - c) ^ (c >> 3)) & _MASK
    b = ((b - c - a) ^ (a << 10)) & _MASK
    c = ((c - a - b) ^ (b >> 15)) & _MASK
    return a, b, c


def _value_of(field: Field) -> Term:
    value = field.value
    if value is None:
        return UNDEFINED
    if isinstance(value, bool):
        return Atom("true" if value else "false")
    if isinstance(value, dict):
        return [(key.encode("utf-8", "surrogateescape"), *_typed(inner)) for key, inner in value.items()]
    if isinstance(value, list):
        return [_typed(inner) for inner in value]
    return value


def _typed(field: Field) -> tuple[Term, Term]:
    return Atom(type_name(field.tag)), _value_of(field)


# --- exs1024 ----------------------------------------------------------------------------------------------


def _exs1024(key: int) -> Iterator[int]:
    """Yield numbers of 64 bits that depend on the key alone: xorshift1024*, seeded with {Key, Key, Key}."""
    mask = _MASK_64  # a local name is found faster, and this loop is the cost of a jump
    low = (key & _MASK_21) + 1
    seed = (
        (low * 2097131 & _MASK_21) << 43
        | (low * 2097133 & _MASK_21) << 22
        | (low * 2097143 & _MASK_21) << 1
        | 1
    )
    words: list[int] = []
    for _ in range(_WORDS):
        seed ^= seed >> 12
        seed ^= seed << 25 & mask
        seed ^= seed >> 27
        words.append(seed * 2685821657736338717 & mask)
    words.reverse()  # a state begins with the last one
    at = 0
    while True:
        first, at = words[at], (at + 1) % _WORDS
        second = words[at]
        second ^= second << 31 & mask
        words[at] = first ^ first >> 30 ^ second ^ second >> 11
        yield words[at] * 1181783497276652981 & mask
