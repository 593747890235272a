"""Consumers, listed. Source: management §1.8."""

from typing import Final

from node.management.call import Call
from node.management.live_lists import live_list
from node.management.reply import Reply
from node.management.routes import Route

DEFAULT_SORT: Final = ("queue.vhost", "queue.name", "consumer_tag")


async def list_consumers(call: Call) -> Reply:
    """GET /consumers, /consumers/{vhost}."""
    return await live_list(call, "consumers", DEFAULT_SORT, can_page=False)


ROUTES: Final = (
    Route("GET", "/consumers", list_consumers, is_long=True),
    Route("GET", "/consumers/{vhost}", list_consumers, is_long=True),
)
