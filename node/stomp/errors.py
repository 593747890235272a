"""The faults of a STOMP client: each is the content of an ERROR frame, with the texts of RabbitMQ's plug-in."""


class StompError(Exception):
    """A frame that is refused.   message: of the header of that name.   detail: the body of the ERROR frame."""

    def __init__(self, message: str, detail: str) -> None:
        super().__init__(message, detail)
        self.message = message
        self.detail = detail


class FramingError(StompError):
    """Bytes that are no frame: where the next one begins is not known, so the connection cannot go on."""


def bad_frame(detail: str) -> FramingError:
    """Return the fault of bytes that are no frame."""
    return FramingError("Bad frame", detail)


def bad_value(header: str, allowed: str) -> StompError:
    """Return the fault of a header's value. RabbitMQ's plug-in says only `Processing error`."""
    return StompError("Processing error", f"Header '{header}' is invalid; allowed: {allowed}\n")
