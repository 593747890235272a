"""Lists of objects that are in no metadata: connections, channels, consumers.

Their nodes are asked twice for a page: first for names and the fields that the list is sorted by, then for all of
the page's rows. A user without the right to look at everything sees only own objects.
Source: management §1.6-§1.8, §2.1.
"""

from collections.abc import Sequence
from typing import Final

from node.management.call import Call
from node.management.listing import Row
from node.management.reply import Reply, no_such_thing, not_authorised, ok
from node.management.slicing import applied, chosen, mapped, shown, sorted_rows, top_levels, wanted_fields
from node.statistics.query import IDS_MAX, Query
from node.statistics.rows import Kind

_NAME: Final = frozenset({"name"})


async def live_list(
    call: Call,
    kind: Kind,
    default_sort: Sequence[str],
    *,
    user: str | None = None,
    only: frozenset[str] | None = None,
    can_page: bool = True,
) -> Reply:
    """Answer with all objects of a kind that the user may see, in the vhost of the path or the header if there is
    one.

    user: only of this one.   only: the only fields that are shown.
    """
    listing, ranges, vhost = call.listing(can_page=can_page), call.ranges(), asked_vhost(call)
    owner = user if call.is_monitor else call.user.name
    fields = wanted_fields(listing, default_sort)
    if only is not None:
        fields = only if fields is None else fields & only
    if listing.page is None:
        query = Query(vhost=vhost, user=owner, fields=fields, ranges=ranges)
        rows = await call.site.rows(kind, query)
        return ok(await applied(listing, await mapped(without_id, rows), default_sort))
    sorting = top_levels(["name", *default_sort, *([listing.sort] if listing.sort else ())])
    keys = await call.site.rows(kind, Query(vhost=vhost, user=owner, fields=sorting))
    matching = await chosen(listing, keys)
    on_page = listing.cut(await sorted_rows(listing, matching, default_sort))
    ids = tuple(row["id"] for row in on_page)
    whole = await rows_of(call, kind, Query(ids=ids, fields=fields, ranges=ranges))
    return ok(await shown(listing, whole, len(matching), len(keys)))


async def rows_of(call: Call, kind: Kind, query: Query) -> list[Row]:
    """Return the rows with these ids, in their order, without those that are gone meanwhile."""
    assert query.ids is not None
    assert len(query.ids) <= IDS_MAX
    if not query.ids:
        return []
    known = {row["id"]: row for row in await call.site.rows(kind, query)}
    return [without_id(known[each]) for each in query.ids if each in known]


async def one_by_name(call: Call, kind: Kind, name: str) -> Row:
    """Return the object of that name, with all fields. Raises: ApiError (404; 401 if it is another user's)."""
    ranges = call.ranges()
    fields = _NAME | {"user"}
    rows = await call.site.rows(kind, Query(fields=fields))
    named = await mapped(lambda row: row if row.get("name") == name else None, rows)
    found = next((row for row in named if row is not None), None)
    if found is None:
        raise no_such_thing()
    if not call.is_monitor and found["user"] != call.user.name:
        raise not_authorised("User not authorised to access object")
    whole = await rows_of(call, kind, Query(ids=(str(found["id"]),), ranges=ranges, is_detailed=True))
    if not whole:
        raise no_such_thing()
    return whole[0]


def asked_vhost(call: Call) -> str | None:
    """Return the vhost that the path or the header names; a monitor may look into any. Raises: ApiError (404, 401)."""
    asked = call.path.get("vhost") or call.headers.get("x-vhost")
    if not asked:
        return None
    if not call.is_monitor:
        return call.vhost(asked)
    if call.catalogue.vhost(asked) is None:
        raise no_such_thing()
    return asked


def without_id(row: Row) -> Row:
    """Return the row as it is shown."""
    return {key: row[key] for key in row if key != "id"}
