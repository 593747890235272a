"""Definitions: everything, or one vhost, as a document. Source: management §2.2; what RabbitMQ 3.10.8 answers."""

import re
from email.message import Message
from typing import Any, Final
from urllib.parse import urlsplit

import orjson

from node.admin.definitions import NOT_JSON, export_definitions, import_definitions
from node.management.call import Call
from node.management.reply import ApiError, Reply, bad_request, no_content, not_found, ok
from node.management.routes import Access, Route

_TYPES: Final = "application/json,multipart/form-data"
_MULTIPART: Final = "multipart/form-data"
_PARTS_MAX: Final = 32
_FILE_NAME_MAX: Final = 200
_NO_VHOST: Final = "vhost_not_found"


async def get_definitions(call: Call) -> Reply:
    """GET /definitions, /definitions/{vhost}; `?download=NAME` has a browser save it."""
    vhost = call.path.get("vhost")
    if vhost is not None and call.catalogue.vhost(vhost) is None:
        raise bad_request(_NO_VHOST)
    document = await export_definitions(call.site.admin(call.user.name), vhost=vhost)
    name = re.sub(r"[^\w.@+-]", "_", call.query.get("download", ""), flags=re.ASCII)[:_FILE_NAME_MAX]
    return ok(document, {"content-disposition": f"attachment; filename={name}"} if name else {})


async def post_definitions(call: Call) -> Reply:
    """POST /definitions, /definitions/{vhost}: a document as JSON, or as the field `file` of a form.

    The field `redirect` of a form is the address that the browser is sent to then. With `?skip_unsupported=true`
    things that this broker does not have are left out, and the answer lists them.
    """
    data, redirect = await call.octets(), ""
    if call.headers.get("content-type", "").lower().startswith(_MULTIPART):
        fields = form_fields(call.headers["content-type"], data)
        data, redirect = fields.get("file", b"?"), fields.get("redirect", b"").decode("utf-8", "replace")
    document = _parsed(data)
    vhost = call.path.get("vhost")
    if vhost is not None and call.catalogue.vhost(vhost) is None:
        raise not_found(_NO_VHOST)
    skips = call.query.get("skip_unsupported") == "true"
    left_out = await import_definitions(
        call.site.admin(call.user.name), document, vhost=vhost, skips_unsupported=skips
    )
    if skips:
        return ok({"skipped": left_out})
    return Reply(303, headers={"location": redirect}) if _is_here(redirect) else no_content()


def form_fields(content_type: str, data: bytes) -> dict[str, bytes]:
    """Return the fields of a form by their names. Raises: ApiError (400)."""
    about = Message()
    about["content-type"] = content_type
    boundary = about.get_param("boundary")
    if not isinstance(boundary, str) or not boundary:
        raise ApiError(400)
    _, *parts = (b"\r\n" + data).split(b"\r\n--" + boundary.encode(), _PARTS_MAX)
    found: dict[str, bytes] = {}
    for part in parts:
        if part.startswith(b"--"):
            return found
        head, _, content = part.partition(b"\r\n\r\n")
        described = Message()
        for line in head.decode("utf-8", "replace").split("\r\n"):
            name, colon, value = line.partition(":")
            if colon and name.strip().lower() == "content-disposition":
                described["content-disposition"] = value.strip()
        field = described.get_param("name", header="content-disposition")
        if isinstance(field, str):
            found[field] = content
    raise ApiError(400)  # no end, or too many parts


def _parsed(data: bytes) -> dict[str, Any]:
    """Decode a document; an empty body is an empty one. Raises: ApiError (400)."""
    if not data.strip():
        return {}
    try:
        document = orjson.loads(data)
    except ValueError:
        raise bad_request(NOT_JSON) from None
    if not isinstance(document, dict):
        raise bad_request(NOT_JSON)
    return document


def _is_here(redirect: str) -> bool:
    """True if the address is on this site."""
    if not redirect or not redirect.isprintable() or "\\" in redirect:
        return False
    try:
        parts = urlsplit(redirect)
    except ValueError:
        return False
    return not parts.scheme and not parts.netloc and not redirect.startswith("//")


_ADMIN: Final = Access.ADMINISTRATOR

ROUTES: Final = (
    Route("GET", "/definitions", get_definitions, _ADMIN, is_long=True),
    Route("GET", "/definitions/{vhost}", get_definitions, _ADMIN, is_long=True),
    Route("POST", "/definitions", post_definitions, _ADMIN, consumes=_TYPES),
    Route("POST", "/definitions/{vhost}", post_definitions, _ADMIN, consumes=_TYPES),
    Route("GET", "/all-configuration", get_definitions, _ADMIN, is_long=True),
    Route("POST", "/all-configuration", post_definitions, _ADMIN, consumes=_TYPES),
)
