"""Answers of the HTTP API, the good and the bad ones. Source: management §1.0 "Responses".

A handler returns a `Reply` or raises an `ApiError`; nothing in it knows of sockets.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

Reason: TypeAlias = "str | list[Any]"
"""RabbitMQ writes tuples as arrays."""

NO_HEADERS: Final[Mapping[str, str]] = {}
JSON_TYPE: Final = "application/json"


class Reply(NamedTuple):
    """An answer. Either `value`, which is sent as JSON, or `body` as it is; without both it is empty.

    body: whole, or in pieces, of which none should be much longer than 350 kB: each is written at once.
    """

    status: int
    value: Any = None
    headers: Mapping[str, str] = NO_HEADERS
    body: bytes | Sequence[bytes] | None = None
    content_type: str = JSON_TYPE


class ApiError(Exception):
    """An answer that says what was wrong.   error: RabbitMQ's word for its kind."""

    def __init__(
        self, status: int, error: str = "", reason: Reason = "", headers: Mapping[str, str] = NO_HEADERS
    ) -> None:
        super().__init__(status, error, reason)
        self.status = status
        self.error = error
        self.reason = reason
        self.headers = headers

    def reply(self) -> Reply:
        """The answer; its body is empty if there is no word for what is wrong."""
        value = {"error": self.error, "reason": self.reason} if self.error else None
        return Reply(self.status, value, self.headers)


def ok(value: Any, headers: Mapping[str, str] = NO_HEADERS) -> Reply:
    """200 with a value, which may be anything that JSON has but null."""
    return Reply(200, value, headers)


def created(location: str | None = None) -> Reply:
    """201, empty."""
    return Reply(201, headers={} if location is None else {"location": location})


def no_content() -> Reply:
    """204."""
    return Reply(204)


def put(is_new: bool) -> Reply:
    """201 for what is new, 204 for what was there."""
    return created() if is_new else no_content()


def bad_request(reason: Reason, error: str = "bad_request") -> ApiError:
    """400."""
    return ApiError(400, error, reason)


def no_such_thing() -> ApiError:
    """404 for a resource or a path that is not there."""
    return ApiError(404, "Object Not Found", "Not Found")


def not_found(reason: Reason) -> ApiError:
    """404 for what an operation would have needed."""
    return ApiError(404, "not_found", reason)


def not_authorised(reason: Reason) -> ApiError:
    """401 for what a user may not do: RabbitMQ has no 403."""
    return ApiError(401, "not_authorised", reason)


def unavailable(reason: Reason) -> ApiError:
    """503: the broker does not run, or the cluster cannot do it now."""
    return ApiError(503, "service_unavailable", reason)
