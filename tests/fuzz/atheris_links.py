"""Coverage-guided fuzzing of what links decode: any bytes give frames and messages, or a fault, and nothing else.

    pip install atheris && python tests/fuzz/atheris_links.py -max_total_time=60 [corpus folder]

The first octet of the input chooses the decoder. atheris is optional, and pytest doesn't collect this file.
"""

import contextlib
import sys
from collections.abc import Callable
from pathlib import Path

import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["cluster.transport"]):
    from cluster.transport.control import ControlReceiver
    from cluster.transport.frames import (
        HANDSHAKE_BYTES_MAX,
        PAYLOAD_BYTES_MAX,
        PREFACE_BYTES,
        FrameFault,
        encode,
        read_preface,
    )
    from cluster.transport.handshake import Answerer, HandshakeFailed, Kind
    from cluster.transport.interface import Identity
    from cluster.transport.stream import Receiver, Sender, StreamFault
    from tests.kit.link_frames import read

IDENTITY = Identity("n1", "id")


def fuzz_frames(data: bytes) -> None:
    """A stream gives the same frames however it is cut, and each has a size that is allowed."""
    is_open = bool(data) and data[0] % 2 == 1
    sizes, data = [1 + octet for octet in data[1:5]] or [1], data[:1] + data[5:]
    whole = read(data[1:], [1 << 20], is_open=is_open)
    assert whole == read(data[1:], [1], is_open=is_open) == read(data[1:], sizes, is_open=is_open)
    frames, _ = whole
    most = PAYLOAD_BYTES_MAX if is_open else HANDSHAKE_BYTES_MAX
    assert all(len(payload) <= most for _, payload in frames)
    written = b"".join(encode(*frame) for frame in frames)
    assert data[1:].startswith(written)


def fuzz_messages(data: bytes) -> None:
    """Messages behind the handshake, with a right checksum, raise nothing but faults of the stream."""
    control, receiver, sender = ControlReceiver(), Receiver(1, 2), Sender(2, 1, 1000)
    for decode in (control.receive, receiver.opens, receiver.receive, sender.resume, sender.acknowledge):
        _try(lambda decode=decode: decode(data), StreamFault)  # type: ignore[misc]


def fuzz_handshake(data: bytes) -> None:
    """Any bytes for a greeting and a proof."""
    answerer = Answerer(IDENTITY, Kind.CONTROL, None, b"secret", bytes(32))
    cut = data[0] if data else 0
    _try(
        lambda: (answerer.receive_greeting(data[1:cut]), answerer.receive_proof(data[cut:])), HandshakeFailed
    )


def fuzz_preface(data: bytes) -> None:
    """Any bytes in front."""
    _try(
        lambda: read_preface(data[:PREFACE_BYTES].ljust(PREFACE_BYTES), is_encrypted=len(data) % 2 == 1),
        FrameFault,
    )


TARGETS = (fuzz_frames, fuzz_messages, fuzz_handshake, fuzz_preface)


def _try(decode: Callable[[], object], fault: type[Exception]) -> None:
    with contextlib.suppress(fault):
        decode()


def fuzz_one(data: bytes) -> None:
    """Run the decoder that the first octet chooses."""
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])


if __name__ == "__main__":
    atheris.Setup(sys.argv, fuzz_one)
    atheris.Fuzz()
