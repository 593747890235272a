"""Who changes what a broker's operators may change, and how it is told that it cannot be done.

The functions of this folder are for HTTP and for the command line alike. Each of them checks, has one command or
several applied by the log of the metadata, waits until that outlives this node, and says in the log what was done.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, TypeVar

from node.admin.submission import submit
from node.amqp.constants import ReplyCode
from node.broker.broker import Broker
from node.catalogue.catalogue import Catalogue
from node.catalogue.commands import Command, Refused
from node.catalogue.records import Json
from node.config.config import Config

ResultT = TypeVar("ResultT")

Kind: TypeAlias = Literal["not_found", "invalid", "exists", "refused", "unavailable"]

OPERATOR: Final = "rmq-cli"
"""Who acts when it is the command line."""

NAME_BYTES_MAX: Final = 255
"""What a client can say in AMQP."""

WAIT_S: Final = 60.0
"""How long a change may wait for the disk, or for other nodes."""

_NOT_THERE: Final = (ReplyCode.NOT_FOUND, ReplyCode.NOT_ALLOWED)
_INVALID: Final = (ReplyCode.PRECONDITION_FAILED, ReplyCode.COMMAND_INVALID, ReplyCode.ACCESS_REFUSED)


class AdminError(Exception):
    """It was not done. HTTP answers 404, 400, 400, 401 or 503, the command line with an exit code, by the kind.

    reason: a text, or what RabbitMQ has in its place: a list such as `["no_such_user", "u"]`.
    """

    def __init__(self, kind: Kind, reason: "str | list[Json]") -> None:
        super().__init__(kind, reason)
        self.kind: Kind = kind
        self.reason = reason

    @property
    def text(self) -> str:
        """The reason as one text."""
        return self.reason if isinstance(self.reason, str) else ": ".join(map(str, self.reason))


@dataclass(frozen=True, slots=True)
class Admin:
    """What the functions of this folder act on.

    by: who asks for it: the name of a user, or of a tool.
    """

    broker: Broker
    config: Config
    logger: "logging.Logger | logging.LoggerAdapter[logging.Logger]"
    by: str

    @property
    def catalogue(self) -> Catalogue:
        """The metadata as they are now."""
        return self.broker.catalogue

    async def submit(self, command: Command[ResultT]) -> ResultT:
        """Have a command applied; what came of it, once that is safe. Raises: AdminError."""
        try:
            result = await asyncio.wait_for(submit(self.broker.log, command), WAIT_S)
        except TimeoutError:
            raise AdminError(
                "unavailable", "the change of metadata is not written yet: see the log"
            ) from None
        if isinstance(result, Refused):
            raise refusal(result)
        return result


def refusal(refused: Refused) -> AdminError:
    """What an operator is told of a command that was refused."""
    if refused.code in _NOT_THERE:
        return AdminError("not_found", refused.text)
    return AdminError("invalid" if refused.code in _INVALID else "unavailable", refused.text)


def check_name(name: str, noun: str) -> None:
    """See to it that clients can say a name. Raises: AdminError.   noun: what it is the name of."""
    if not name:
        raise AdminError("invalid", f"the name of a {noun} must not be empty")
    if len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        raise AdminError("invalid", f"the name of a {noun} must not be longer than {NAME_BYTES_MAX} bytes")
