"""Queues, as operators of the machine handle them: a user of the command line needs no permission.

Operations of users over HTTP go by their own permissions instead (`node.admin.direct_client`).

Source: management §3.2 (delete_queue, purge_queue); amqp-behaviour §3.11.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, TypeVar

from node.admin.admin import WAIT_S, Admin, AdminError
from node.admin.direct_client import DirectClient
from node.admin.submission import submit
from node.amqp.constants import ReplyCode
from node.amqp.errors import ProtocolError
from node.amqp.methods import QueueDeclare
from node.broker.broker import Broker
from node.catalogue.commands import Command
from node.catalogue.exchange_queues import is_exchange_queue
from node.catalogue.names import home_is_down
from node.definitions.tables import table_from_json
from node.queue.live_queue import Asked, LiveQueue

T = TypeVar("T")


async def delete_queue(
    admin: Admin, vhost: str, name: str, *, if_unused: bool = False, if_empty: bool = False
) -> int:
    """Delete a queue wherever it lives, and return how many ready messages it had.

    if_unused, if_empty: refuse ("invalid") when it has consumers, or ready messages. A queue that
        belongs to an exchange goes with that alone.
    Raises: AdminError, also "not_found", and "unavailable" while its node is down.
    """
    queue = _live(admin, vhost, name)
    if is_exchange_queue(name):
        raise AdminError("invalid", f"queue '{name}' in vhost '{vhost}' belongs to an exchange")
    return await _ask(admin, queue.delete(if_unused=if_unused, if_empty=if_empty))


async def purge_queue(admin: Admin, vhost: str, name: str) -> int:
    """Drop all ready messages of a queue, and return how many there were. Raises: AdminError as `delete_queue`."""
    return await _ask(admin, _live(admin, vhost, name).purge())


async def declare_queue(broker: Broker, arguments: Mapping[str, Any]) -> dict[str, Any] | None:
    """Declare a queue on this node for a user that asked another node, by that user's permissions.

    arguments: user, vhost, queue, durable, auto_delete, arguments (JSON).
    Returns: None, or code and explanation of the broker's error. Raises: DirectTimeout.
    """
    method = QueueDeclare(
        queue=str(arguments["queue"]),
        durable=bool(arguments["durable"]),
        auto_delete=bool(arguments["auto_delete"]),
        arguments=table_from_json(arguments["arguments"]),
    )
    try:
        async with DirectClient(broker, str(arguments["user"]), str(arguments["vhost"])) as client:
            await client.call(method)
    except ProtocolError as error:
        return {"code": int(error.code), "explanation": error.explanation}
    return None


def _live(admin: Admin, vhost: str, name: str) -> LiveQueue:
    if admin.catalogue.vhost(vhost) is None:
        raise AdminError("not_found", ["no_such_vhost", vhost])
    record = admin.catalogue.queue(vhost, name)
    if record is None:
        raise AdminError("not_found", f"no queue '{name}' in vhost '{vhost}'")
    queue = admin.broker.vhosts[vhost].queues.get(name)
    if queue is None:
        raise AdminError("unavailable", home_is_down(record).explanation)
    return queue


async def _ask(admin: Admin, steps: Asked[T]) -> T:
    """Await an answer that may have to wait for the log, the disk or another node, `WAIT_S` at most."""
    result: Any = None
    try:
        async with asyncio.timeout(WAIT_S):
            while True:
                awaited = steps.send(result)
                if isinstance(awaited, Command):
                    result = await submit(admin.broker.log, awaited)
                else:
                    result = await _called_back(awaited)
    except StopIteration as done:
        answer: T = done.value
        return answer
    except ProtocolError as error:
        is_wrong = error.code is ReplyCode.PRECONDITION_FAILED
        is_gone = error.code is ReplyCode.NOT_FOUND
        raise AdminError(
            "invalid" if is_wrong else "not_found" if is_gone else "unavailable", error.explanation
        ) from None
    except TimeoutError:
        raise AdminError("unavailable", f"no answer within {WAIT_S:g} s") from None
    finally:
        steps.close()


async def _called_back(wait: Any) -> Any:
    """Await the value that a `Wait` calls back with."""
    answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def on_done(result: Any) -> None:
        if not answer.done():
            answer.set_result(result)

    wait(on_done)
    return await answer
