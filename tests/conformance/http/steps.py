"""The tests of the HTTP API share these helpers: expected answers, waiting for statistics, messages by HTTP."""

from collections.abc import Callable
from typing import Any, Final

from tests.kit.http_api import Answer, HttpApi, quote
from tests.kit.patience import wait_until

STATISTICS_S: Final = 20.0
"""RabbitMQ shows what it counts every 5 s."""

OBJECT_NOT_FOUND: Final = {"error": "Object Not Found", "reason": "Not Found"}
ACCESS_REFUSED: Final = {"error": "not_authorised", "reason": "Access refused."}
VHOST_REFUSED: Final = {"error": "not_authorised", "reason": "User not authorised to access virtual host"}


def succeeds(answer: Answer, status: int = 200) -> Any:
    """Check that an answer has the expected status, and return its JSON."""
    assert answer.status == status, answer
    return answer.json


def bad_request(answer: Answer, reason: object) -> None:
    """400 with this reason."""
    assert (answer.status, answer.json) == (400, {"error": "bad_request", "reason": reason})


def refused(answer: Answer, body: object = ACCESS_REFUSED) -> None:
    """401 with this body."""
    assert (answer.status, answer.json) == (401, body)


def is_missing(answer: Answer) -> None:
    """404 for an object or a path that is not there."""
    assert (answer.status, answer.json) == (404, OBJECT_NOT_FOUND)


def eventually(look: Callable[[], Any], within: float = STATISTICS_S) -> Any:
    """Return what `look` gives once it is true."""
    return wait_until(look, within=within)


def path(*segments: str) -> str:
    """A path of names, each a segment."""
    return "".join("/" + quote(segment) for segment in segments)


def put_queue(api: HttpApi, vhost: str, queue: str, **body: Any) -> None:
    assert api.put(path("queues", vhost, queue), body).status == 201


def publish(api: HttpApi, vhost: str, queue: str, payload: str = "x", **properties: Any) -> None:
    """A message to the queue by way of the default exchange."""
    body = {
        "properties": properties,
        "routing_key": queue,
        "payload": payload,
        "payload_encoding": "string",
    }
    answer = api.post(path("exchanges", vhost, "amq.default", "publish"), body)
    assert succeeds(answer) == {"routed": True}


def get(api: HttpApi, vhost: str, queue: str, count: int = 1, **body: Any) -> list[dict[str, Any]]:
    """Messages of a queue, which stay there unless `ackmode` says otherwise."""
    asked = {"count": count, "ackmode": "ack_requeue_true", "encoding": "auto", **body}
    found: list[dict[str, Any]] = succeeds(api.post(path("queues", vhost, queue, "get"), asked))
    return found
