"""Streams without a connection, for tests: what they write is kept, and what they read is given to them."""

from cluster.transport.link_stream import LinkStream, Patience

CALM = Patience(60, 60)


class Connection:
    """Stands for uvloop's transport."""

    def __init__(self) -> None:
        self.written = b""
        self.reads = True
        self.end = ""

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def set_write_buffer_limits(self, _high: int, _low: int) -> None:
        pass

    def abort(self) -> None:
        self.end = self.end or "abort"

    def close(self) -> None:
        self.end = "close"


def made(patience: Patience = CALM) -> tuple[LinkStream, Connection]:
    stream, connection = LinkStream(patience), Connection()
    stream.connection_made(connection)  # type: ignore[arg-type]
    return stream, connection


def feed(stream: LinkStream, data: bytes) -> None:
    while data:
        room = stream.get_buffer(-1)
        count = min(len(room), len(data))
        room[:count] = data[:count]
        stream.buffer_updated(count)
        data = data[count:]
