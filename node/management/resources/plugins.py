"""The resource `/plugins`: the enabled plug-ins, what they bring, and the resources and pages that are theirs.

Not RabbitMQ's, but for `/extensions`, which names the scripts of plug-ins to the UI.
"""

import hashlib
from typing import Any, Final

from node.management import auth
from node.management.call import Call
from node.management.plugin_resources import PluginResources
from node.management.plugin_rows import DOWN, SILENT, Row, put_together
from node.management.reply import ApiError, Reply, no_such_thing, ok
from node.management.routes import Access, Route
from node.management.static_files import FILE_HEADERS, content_type_of
from node.statistics.query import Query

DEPTH_MAX: Final = 4
"""The most segments of a path behind the name of a plug-in."""

BUILT_IN_PAGES: Final = {
    "rabbitmq_shovel_management": ("Shovels", "js/pages/shovels.js", Access.MONITORING),
    "rabbitmq_federation_management": ("Federation", "js/pages/federation.js", Access.MONITORING),
}
"""The pages of built-in plug-ins by name: entry of the menu, script among the UI's own files, tag to see it."""

RABBITMQ_SCRIPT: Final = "dispatcher.js"
"""The script of RabbitMQ's own UI, which is the first in its list."""


async def list_plugins(call: Call) -> Reply:
    """GET /plugins."""
    return ok(await _all_rows(call))


async def get_plugin(call: Call) -> Reply:
    """GET /plugins/{plugin}."""
    for row in await _all_rows(call):
        if row["name"] == call.path["plugin"]:
            return ok(row)
    raise no_such_thing()


async def _all_rows(call: Call) -> list[Row]:
    query = Query(fields=frozenset({"plugins"}))
    answers = await call.site.ask_all("node", {"query": query.as_json()})
    rows: dict[str, list[Row] | str] = {}
    for member in call.site.members():
        answer: dict[str, Any] = answers.get(member.name) or {}
        rows[member.name] = answer.get("plugins") or (SILENT if member.is_running else DOWN)
    return put_together(rows)


async def extensions(call: Call) -> Reply:
    """GET /extensions: RabbitMQ's own script, and the pages of plug-ins that the caller may see."""
    found: list[Row] = [{"javascript": RABBITMQ_SCRIPT}]
    for name, plugin in call.broker.exchange_types.plugins:
        if plugin is None or plugin.page is None:
            continue
        if not _may_see(call, Access(plugin.page.tag)):
            continue
        script = f"plugins/{name}/{plugin.page.script}"
        found.append({"javascript": script, "plugin": name, "menu": plugin.page.menu, "tag": plugin.page.tag})
    for name in call.catalogue.plugins.by_name:
        if name in BUILT_IN_PAGES and _may_see(call, BUILT_IN_PAGES[name][2]):
            menu, script, tag = BUILT_IN_PAGES[name]
            found.append({"javascript": script, "plugin": name, "menu": menu, "tag": tag.value})
    return ok(found)


def _may_see(call: Call, tag: Access) -> bool:
    try:
        auth.check_access(call.user, tag)
    except ApiError:
        return False
    return True


async def file(call: Call) -> Reply:
    """GET /plugins/{plugin}/{file}, beside the API: a file of a plug-in's page, as the UI's own for everybody."""
    plugin = dict(call.broker.exchange_types.plugins).get(call.path["plugin"])
    data = None if plugin is None or plugin.page is None else plugin.page.files.get(call.path["file"])
    kind = content_type_of(call.path["file"])
    if data is None or kind is None:
        raise no_such_thing()
    tag = f'"{hashlib.sha256(data).hexdigest()[:32]}"'
    headers = {**FILE_HEADERS, "etag": tag}
    if call.headers.get("if-none-match") == tag:
        return Reply(304, headers=headers)
    return Reply(200, headers=headers, body=data, content_type=kind)


def routes() -> tuple[Route, ...]:
    """Return the routes; each call makes resources of its own."""
    answer = PluginResources().answer
    paths = [
        "/plugins/{plugin}/" + "/".join(f"{{{number}}}" for number in range(1, depth + 1))
        for depth in range(1, DEPTH_MAX + 1)
    ]
    return (
        Route("GET", "/plugins", list_plugins, Access.MONITORING),
        Route("GET", "/plugins/{plugin}", get_plugin, Access.MONITORING),
        Route("GET", "/extensions", extensions),
        Route("GET", "/plugins/{plugin}/{file}", file, Access.PUBLIC, is_outside=True),
        *(
            Route(method, path, answer, Access.AUTHENTICATED)
            for path in paths
            for method in ("GET", "PUT", "POST", "DELETE")
        ),
    )
