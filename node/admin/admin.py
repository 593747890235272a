"""Access to the changes that a broker's operators may make, and the error if one cannot be made.

The functions of this folder are for HTTP and for the command line alike. Each of them checks, has one command or
several applied by the log of the metadata, waits until that outlives this node, and logs what was done.
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
"""The user in the log for changes by the command line."""

NAME_BYTES_MAX: Final = 255
"""The longest name in AMQP's short strings."""

WAIT_S: Final = 60.0
"""How long a change may wait for the disk, or for other nodes."""

_NOT_THERE: Final = (ReplyCode.NOT_FOUND, ReplyCode.NOT_ALLOWED)
_INVALID: Final = (ReplyCode.PRECONDITION_FAILED, ReplyCode.COMMAND_INVALID, ReplyCode.ACCESS_REFUSED)


class AdminError(Exception):
    """The change was not made. By its kind, HTTP answers 404, 400, 400, 401 or 503, the command line with an exit
    code.

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
    """The broker and its surroundings, which the functions of this folder act on.

    by: the name of the user, or of the tool, that asks for the change.
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
        """Have a command applied, and return its result once that is safe. Raises: AdminError."""
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
    """Convert the refusal of a command to the error for an operator."""
    if refused.code in _NOT_THERE:
        return AdminError("not_found", refused.text)
    return AdminError("invalid" if refused.code in _INVALID else "unavailable", refused.text)


def check_name(name: str, noun: str) -> None:
    """Check that a name fits AMQP's short strings. Raises: AdminError.   noun: the kind of its object."""
    if not name:
        raise AdminError("invalid", f"the name of a {noun} must not be empty")
    if len(name.encode("utf-8", "surrogatepass")) > NAME_BYTES_MAX:
        raise AdminError("invalid", f"the name of a {noun} must not be longer than {NAME_BYTES_MAX} bytes")
