"""Erlang terms as RabbitMQ prints them in error texts, which clients and their tests match on.

Erlang's `~w` prints every octet as a number. Its `~p` prints text as text, and breaks a term that would pass
column 80 of the text in which it stands; then there really is a newline in the error text.
Texts are str with surrogate escapes: Erlang writes the octets of a binary as they are, UTF-8 or not.
Source: amqp-behaviour §1.7, §4.1; RabbitMQ 3.10.8 on Erlang 25.
"""

from typing import Final

LINE_LENGTH: Final = 80

SNIPPET_BYTES: Final = 16
"""The octets of a bad frame that RabbitMQ shows."""

_ESCAPES: Final = {
    ord("\n"): b"\\n",
    ord("\r"): b"\\r",
    ord("\t"): b"\\t",
    ord("\v"): b"\\v",
    ord("\b"): b"\\b",
    ord("\f"): b"\\f",
    0x1B: b"\\e",
    ord('"'): b'\\"',
    ord("\\"): b"\\\\",
}
# Printable by the rules of Latin-1, in which Erlang sees a binary.
_PRINTED: Final = {octet: bytes((octet,)) for octet in (*range(32, 127), *range(160, 256))} | _ESCAPES


def octet_list(data: bytes) -> str:
    """Return a binary as `~w` prints it, e.g. <<1,2,3>>."""
    return f"<<{_numbers(data)}>>"


def binary_literal(data: bytes, after: str = "") -> str:
    """Return a binary as `~p` prints it: <<"abc">>, or <<1,2,3>> if an octet can't be printed, or <<>>.

    after: the text before it in the same message, which decides where a long binary is broken.
    """
    quoted = _quoted(data)
    if quoted is not None and data:
        return f"<<{quoted}>>"
    whole = octet_list(data)
    column = _column(after)
    if len(whole) < LINE_LENGTH - column:
        return whole
    width = max(8, min(LINE_LENGTH - column - 2, len(whole) - 4))
    return f"<<{_broken(_numbers(data).split(','), width, indent=column + 1)}>>"


def string_literal(text: str | bytes) -> str:
    """Return a list of octets as `~p` prints it: "abc", or [1,2,3] if one can't be printed, or [].

    It is never broken: only a list of more than a dozen unprintable characters would be.
    """
    data = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    quoted = _quoted(data)
    return quoted if quoted is not None and data else f"[{_numbers(data)}]"


def tagged_tuple(tag: str, *elements: object, after: str = "") -> str:
    """Return a tuple with an atom in front as `~p` prints it, e.g. {value_too_large,315360000001}.

    elements: their own renderings, or numbers.   after: the text before it in the same message.
    """
    rendered = [str(element) for element in elements]
    whole = f"{{{','.join([tag, *rendered])}}}"
    column = _column(after)
    if _width(whole) < LINE_LENGTH - column:
        return whole
    text = "{" + tag
    at = column + len(tag) + 2
    for element in rendered:
        if _width(element) + 2 < LINE_LENGTH - at:
            text += f",{element}"
            at += _width(element) + 1
        else:
            text += f",\n{' ' * column}{element}"
            at = column + 1 + _width(element)
    return text + "}"


def octets(frame_type: int, payload: bytes) -> str:
    """Return the description of a frame in frame errors, e.g. 'type 1, all octets = <<0,20,0,10>>'."""
    which = "all" if len(payload) <= SNIPPET_BYTES else f"first {SNIPPET_BYTES}"
    text = f"type {frame_type}, {which} octets = "
    return text + binary_literal(payload[:SNIPPET_BYTES], after=text)


def _numbers(data: bytes) -> str:
    return ",".join(map(str, data))


def _quoted(data: bytes) -> str | None:
    """Return the octets between quotation marks; None if one of them can't be printed."""
    if any(octet not in _PRINTED for octet in data):
        return None
    inner = b"".join(_PRINTED[octet] for octet in data)
    return f'"{inner.decode("utf-8", "surrogateescape")}"'


def _broken(numbers: list[str], width: int, indent: int) -> str:
    """Return the numbers with commas, in lines of at most `width` characters, commas included."""
    text = ""
    left = width
    for index, number in enumerate(numbers):
        piece = number if index == len(numbers) - 1 else f"{number},"
        if len(piece) > left:
            text += "\n" + " " * indent
            left = width
        text += piece
        left -= len(piece)
    return text


def _width(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def _column(after: str) -> int:
    """Return the column, from 1, at which a term starts that follows this text."""
    return _width(after.rpartition("\n")[2]) + 1
