"""Coverage-guided fuzzing of decoders and frame reader: any bytes give a value or a ProtocolError, nothing else.

    pip install atheris && python tests/fuzz/atheris_amqp.py -max_total_time=60 [corpus folder]

The first octet of the input chooses the decoder. atheris is optional, and pytest doesn't collect this file.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["node.amqp"]):
    from node.amqp.errors import ProtocolError
    from node.amqp.field_table import check_table, decode_table, encode_table
    from node.amqp.method_codec import decode_method, encode_method
    from node.amqp.properties import decode_properties, encode_properties, read_traits
    from tests.kit.recorder import Event, Recorder


def fuzz_table(data: bytes) -> None:
    """Both readers accept or refuse; what is accepted is written back the same."""
    accepted = _accepts(lambda: check_table(data))
    assert accepted == _accepts(lambda: decode_table(data))
    if accepted:
        value, _ = decode_table(data)
        assert decode_table(encode_table(value))[0] == value


def fuzz_method(data: bytes) -> None:
    """A method that is accepted is written back the same."""
    if _accepts(lambda: decode_method(data)):
        value = decode_method(data)
        assert decode_method(encode_method(value)) == value


def fuzz_properties(data: bytes) -> None:
    """As for tables."""
    accepted = _accepts(lambda: read_traits(data, 0, len(data)))
    assert accepted == _accepts(lambda: decode_properties(data, 0, len(data)))
    if accepted:
        value = decode_properties(data, 0, len(data))
        again = encode_properties(value)
        assert decode_properties(again, 0, len(again)) == value


def fuzz_reader(data: bytes) -> None:
    """A stream gives the same calls whole, cut in two where its first octet says, and octet by octet."""
    cut, stream = data[0] if data else 0, data[1:]
    whole = _calls(stream)
    assert _calls(stream[:cut], stream[cut:]) == whole
    assert _calls(*(stream[at : at + 1] for at in range(len(stream)))) == whole


def _calls(*pieces: bytes) -> "list[Event]":
    recorder = Recorder(closed=(3,), frame_max=64, content_max=70)
    recorder.feed(*pieces)
    return recorder.events


TARGETS = (fuzz_table, fuzz_method, fuzz_properties, fuzz_reader)


def _accepts(decode: Callable[[], object]) -> bool:
    try:
        decode()
    except ProtocolError:
        return False
    return True


def fuzz_one(data: bytes) -> None:
    """Run the decoder that the first octet chooses."""
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])


if __name__ == "__main__":
    atheris.Setup(sys.argv, fuzz_one)
    atheris.Fuzz()
