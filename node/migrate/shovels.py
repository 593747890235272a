"""The shovels of a migration: one for each queue, as a runtime parameter of RabbitMQ's shovel plug-in or of Fluffle's.

    PUT /api/parameters/shovel/VHOST/NAME   {"value": {"src-uri": …, "src-queue": …, "ack-mode": "on-confirm", …}}

With `on-confirm` a message leaves its queue when the other end has confirmed it: none is lost, and one may come twice
when a link fails in between. One shovel for each queue, with one consumer, keeps the queue's order. A shovel logs in at
the other end as `MOVER`; at its own end it needs no password. Source: rabbit_shovel_parameters.erl v3.10.
"""

import hashlib
from dataclasses import dataclass
from typing import Final

from node.catalogue.records import Json
from node.migrate.clients import MOVER
from node.migrate.ends import Direction, Ends
from node.migrate.percent import encoded
from node.migrate.queues import Key

PREFETCH: Final = 1000
"""The messages of one queue that are under way at most, RabbitMQ's default: so many may come twice."""

RECONNECT_DELAY_S: Final = 1
"""After a failure a shovel tries again after so long; RabbitMQ's default is 5 s."""

NAME_BYTES_MAX: Final = 255
QUEUE_MAX: Final = 5000
"""The most queues of one migration: each has a shovel, which is two connections."""


@dataclass(frozen=True, slots=True)
class Shovel:
    """A shovel of a queue in a direction."""

    vhost: str
    queue: str
    direction: Direction

    @property
    def key(self) -> Key:
        """The queue's vhost and name."""
        return self.vhost, self.queue

    @property
    def name(self) -> str:
        """The name of the parameter. A name that is too long ends with a digest."""
        begin = f"{MOVER}{'' if self.direction == 'out' else '-back'} "
        if len((begin + self.queue).encode("utf-8", "surrogatepass")) <= NAME_BYTES_MAX:
            return begin + self.queue
        return begin + hashlib.sha256(self.queue.encode("utf-8", "surrogatepass")).hexdigest()

    @property
    def path(self) -> str:
        """The path of the parameter below /api."""
        return f"/parameters/shovel/{encoded(self.vhost)}/{encoded(self.name)}"

    def value(self, ends: Ends, password: str) -> dict[str, Json]:
        """Return the parameter's value, a secret.   password: of `MOVER` at the end that does not run the shovel."""
        here: list[Json] = [f"amqp:///{encoded(self.vhost)}"]
        far = ends.fluffle if ends.host == "rabbitmq" else ends.rabbitmq
        there: list[Json] = list(far.uris(MOVER, password, self.vhost))
        is_from_here = (self.direction == "out") == (ends.host == "rabbitmq")
        source, target = (here, there) if is_from_here else (there, here)
        return {
            "src-protocol": "amqp091",
            "src-uri": source,
            "src-queue": self.queue,
            "src-prefetch-count": PREFETCH,
            "src-delete-after": "never",
            "dest-protocol": "amqp091",
            "dest-uri": target,
            "dest-queue": self.queue,
            "dest-add-forward-headers": False,
            "ack-mode": "on-confirm",
            "reconnect-delay": RECONNECT_DELAY_S,
        }


@dataclass(frozen=True, slots=True)
class MoverRights:
    """The permissions of `MOVER` in each vhost at the end that does not run the shovels."""

    configure: str
    write: str
    read: str


def mover_rights(ends: Ends) -> MoverRights:
    """Return the rights by which shovels may read and write queues in both directions, and declare none."""
    # Publishing to a queue by its name is writing to the default exchange, whose name is `amq.default` for permissions.
    return MoverRights("^$", "^amq\\.default$", ".*")


def is_of_migration(name: str) -> bool:
    """True if a shovel of that name belongs to a migration."""
    return name.startswith((f"{MOVER} ", f"{MOVER}-back "))
