"""Reading the frames of a link as they come from a socket, in any pieces."""

from typing import cast

from cluster.transport.frames import (
    HANDSHAKE_BYTES_MAX,
    HEADER_BYTES,
    PAYLOAD_BYTES_MAX,
    Frame,
    FrameFault,
    FrameReader,
)


def read(data: bytes, sizes: list[int], *, is_open: bool) -> tuple[list[Frame], str]:
    """Return the frames and the fault of a stream that comes in reads of these sizes, over and over."""
    reader = FrameReader()
    most = HEADER_BYTES + HANDSHAKE_BYTES_MAX
    if is_open:
        reader.open()
        most = HEADER_BYTES + PAYLOAD_BYTES_MAX
    frames: list[Frame] = []
    turn = 0
    try:
        while data:
            room = reader.buffer()
            assert len(cast(bytearray, room.obj)) <= most
            count = min(len(room), len(data), sizes[turn % len(sizes)])
            assert count, "no room"
            room[:count] = data[:count]
            room.release()
            reader.received(count)
            data, turn = data[count:], turn + 1
            while (frame := reader.next()) is not None:
                frames.append(frame)
    except FrameFault as error:
        return frames, str(error)
    return frames, ""
