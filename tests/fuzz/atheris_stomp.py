"""Coverage-guided fuzzing of STOMP: any bytes are the same frames however they are cut, and no connection raises.

    pip install atheris && python tests/fuzz/atheris_stomp.py -max_total_time=60 [corpus folder]

The first octet chooses the version, the second one where the stream is cut. pytest does not collect this file.
"""

import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped, import-not-found, unused-ignore]

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

with atheris.instrument_imports(include=["node.stomp"]):
    from node.stomp.decoder import Decoder, Limits
    from node.stomp.errors import FramingError
    from node.stomp.frame import Frame
    from node.stomp.versions import VERSIONS
    from tests.kit.stomp_world import connected

LIMITS = Limits(head_max_bytes=200, headers_max=8, body_max_bytes=60)


def decoded(pieces: list[bytes], version: str) -> "tuple[list[Frame], str]":
    """Return the frames in these pieces, and the fault that ended them."""
    decoder, found = Decoder(LIMITS, version), list[Frame]()
    try:
        for piece in pieces:
            decoder.feed(piece)
            found += iter(decoder.next, None)
    except FramingError as error:
        return found, error.detail
    return found, ""


def fuzz_one(data: bytes) -> None:
    """Decode a stream whole, in two pieces and octet by octet, and give it to a connection."""
    if len(data) < 2:
        return
    version, cut, stream = VERSIONS[data[0] % len(VERSIONS)], data[1], data[2:]
    whole = decoded([stream], version)
    assert decoded([stream[:cut], stream[cut:]], version) == whole
    assert decoded([stream[at : at + 1] for at in range(len(stream))], version) == whole
    client = connected(version=version, close_after_error="false")
    client.feed(stream)
    client.world.settle()
    assert client.world.broker.exchange_types.failures == {}


if __name__ == "__main__":
    atheris.Setup(sys.argv, fuzz_one)
    atheris.Fuzz()
