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
        """Return the answer; its body is empty if there is no word for the error."""
        value = {"error": self.error, "reason": self.reason} if self.error else None
        return Reply(self.status, value, self.headers)


def ok(value: Any, headers: Mapping[str, str] = NO_HEADERS) -> Reply:
    """Return a 200 with a value, which may be anything that JSON has but null."""
    return Reply(200, value, headers)


def created(location: str | None = None) -> Reply:
    """Return an empty 201."""
    return Reply(201, headers={} if location is None else {"location": location})


def no_content() -> Reply:
    """Return a 204."""
    return Reply(204)


def put(is_new: bool) -> Reply:
    """Return 201 for a new object, 204 for one that existed."""
    return created() if is_new else no_content()


def bad_request(reason: Reason, error: str = "bad_request") -> ApiError:
    """Return a 400."""
    return ApiError(400, error, reason)


def no_such_thing() -> ApiError:
    """Return a 404 for a resource or a path that does not exist."""
    return ApiError(404, "Object Not Found", "Not Found")


def not_found(reason: Reason) -> ApiError:
    """Return a 404 for an object that an operation would have needed."""
    return ApiError(404, "not_found", reason)


def not_authorised(reason: Reason) -> ApiError:
    """Return a 401 for an operation that a user may not do: RabbitMQ has no 403."""
    return ApiError(401, "not_authorised", reason)


def unavailable(reason: Reason) -> ApiError:
    """Return a 503: the broker does not run, or the cluster cannot do it now."""
    return ApiError(503, "service_unavailable", reason)
