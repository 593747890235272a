"""A plug-in for Fluffle: the auth backend `password_file` knows the users of a file and lets each into its own vhost.

A line of the file is `name:sha256:tags`, where `sha256` is the digest of the password in hexadecimal digits.
"""

import asyncio
import hashlib
import hmac
from pathlib import Path

from node.plugins import AuthBackend, Identity, Login, Plugin, Question, Setting, Settings, VhostAccess


class PasswordFile(AuthBackend):
    """Users of a file."""

    name = "password_file"

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.path = Path(str(settings["path"]))

    async def log_in(self, login: Login) -> Identity | None:
        """Return the user if the file has that name and password."""
        lines = await asyncio.to_thread(
            self.path.read_text
        )  # a disk may be slow, and the node must not wait for it
        digest = hashlib.sha256(login.password or b"").hexdigest()
        for line in lines.splitlines():
            name, known, tags = line.split(":")
            if name == login.user and login.password and hmac.compare_digest(known, digest):
                return Identity(name, tuple(tags.split()))
        return None

    async def allows(self, question: Question) -> bool:
        """Return True for all in the vhost of the user's name."""
        if isinstance(question, VhostAccess):
            return question.vhost == question.user
        return True  # the vhost is the user's own


PLUGIN = Plugin(
    "password_file",
    "1.0",
    "users of a file",
    auth_backends=(PasswordFile,),
    settings=(Setting("path", "/etc/fluffle/passwords", "the file"),),
)
