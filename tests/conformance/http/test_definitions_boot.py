"""Definitions that are loaded at each start: `load_definitions` (management §2.2)."""

import base64
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.kit.http_api import HttpApi
from tests.kit.servers import Server

pytestmark = pytest.mark.slow

SALT = b"salt"
HASH = base64.b64encode(SALT + hashlib.sha256(SALT + b"secret").digest()).decode()
USERS: dict[str, Any] = {
    "users": [{"name": "loaded", "password_hash": HASH, "tags": "administrator"}],
    "vhosts": [{"name": "first", "description": "from the first file"}],
    "permissions": [{"user": "loaded", "vhost": "first", "configure": ".*", "write": ".*", "read": ".*"}],
}
QUEUES: dict[str, Any] = {
    "vhosts": [{"name": "first", "description": "from the second file"}],
    "queues": [{"name": "q", "vhost": "first", "durable": True, "auto_delete": False, "arguments": {}}],
}


def test_a_directory(server_with: Callable[[dict[str, str]], Server], tmp_path: Path) -> None:
    """In the order of the files' names; the default vhost and user aren't made then."""
    (tmp_path / "b.json").write_text(json.dumps(QUEUES))
    (tmp_path / "a.json").write_text(json.dumps(USERS))
    api = HttpApi(server_with({"load_definitions": str(tmp_path)}), "loaded", "secret")
    assert [user["name"] for user in api.get("/users").json] == ["loaded"]
    [vhost] = api.get("/vhosts").json
    assert (vhost["name"], vhost["description"]) == ("first", "from the second file")
    assert [queue["name"] for queue in api.get("/queues").json] == ["q"]
    assert api.get("/whoami", user="guest").status == 401
