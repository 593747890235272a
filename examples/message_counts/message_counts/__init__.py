"""A plug-in for Fluffle: it counts the messages that each user publishes and gets, and shows them.

    GET /api/plugins/message_counts/counts      the counts of this node, by user
    DELETE /api/plugins/message_counts/counts   forgets them
    #/plugins/message_counts                    the page of the web UI

Interceptors, the HTTP resource and telemetry are objects of their own, so they share the counts of the module.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from node.plugins import (
    DeliveryInterceptor,
    DeliveryTarget,
    HttpAnswer,
    HttpRequest,
    HttpResource,
    InterceptedMessage,
    MessageInterceptor,
    OutgoingMessage,
    Plugin,
    PublishTarget,
    Setting,
    TelemetryColumns,
    UiPage,
)

PUBLISHED: Counter[str] = Counter()
DELIVERED: Counter[str] = Counter()


class Publishes(MessageInterceptor):
    """Counts messages that clients publish."""

    def published(self, target: PublishTarget, messages: Sequence[InterceptedMessage]) -> str | None:
        """Count messages of one user."""
        PUBLISHED[target.user] += len(messages)
        return None


class Deliveries(DeliveryInterceptor):
    """Counts messages that go to clients."""

    def delivering(self, target: DeliveryTarget, messages: Sequence[OutgoingMessage]) -> None:
        """Count messages of one user."""
        DELIVERED[target.user] += len(messages)


class Counts(HttpResource):
    """Tells the counts to monitors, and forgets them for administrators."""

    async def answer(self, request: HttpRequest) -> HttpAnswer:
        """Answer a request for `counts`."""
        if request.path != ("counts",):
            return HttpAnswer(404)
        if request.method == "DELETE":
            PUBLISHED.clear()
            DELIVERED.clear()
            return HttpAnswer(204)
        most = int(self.settings["users"])
        users = [user for user, _ in (PUBLISHED + DELIVERED).most_common(most)]
        rows = [{"user": user, "published": PUBLISHED[user], "delivered": DELIVERED[user]} for user in users]
        return HttpAnswer(value={"node": self.node, "users": rows})


class Columns(TelemetryColumns):
    """Has the sums in the telemetry of the node."""

    names = ("published_total", "delivered_total")

    def sample(self) -> Mapping[str, int]:
        """Return the sums of all users."""
        return {"published_total": PUBLISHED.total(), "delivered_total": DELIVERED.total()}


PLUGIN = Plugin(
    "message_counts",
    "1.0",
    "counts messages by user",
    settings=(Setting("users", 20, "the most users that are shown", minimum=1),),
    interceptors=(Publishes,),
    delivery_interceptors=(Deliveries,),
    http=Counts,
    page=UiPage(
        "Message counts", "counts.js", {"counts.js": Path(__file__).with_name("counts.js").read_bytes()}
    ),
    telemetry=Columns,
)
