"""A plug-in for Fluffle: the auth backend `scram_file` knows the users of a file by SCRAM-SHA-256, in two steps.

The client proves that it knows the password without sending it, and the node proves that it knows the user. The file
has no passwords either: a line is `name:iterations:salt:stored key:server key:tags`, made by

    python -m scram_file NAME [TAG...] >>/etc/fluffle/scram

which asks for the password. Who has the file can pretend to be the node, so it is for the node alone.
Source: RFC 5802, RFC 7677. Channel binding and authorisation ids are not offered.
"""

import asyncio
import base64
import getpass
import hashlib
import hmac
import os
import sys
from pathlib import Path
from typing import NamedTuple

from node.plugins import (
    AuthBackend,
    AuthExchange,
    AuthStart,
    Challenge,
    Identity,
    Login,
    Plugin,
    Proof,
    Question,
    Setting,
    Settings,
)

ITERATIONS = 15_000
NONCE_BYTES = 18
SALT_BYTES = 16


def _hmac(key: bytes, text: bytes) -> bytes:
    return hmac.digest(key, text, "sha256")


class Keys(NamedTuple):
    """The keys of one user, by which the node checks a client and shows that it knows them."""

    iterations: int
    salt: bytes
    stored: bytes
    server: bytes
    tags: tuple[str, ...]


def keys_of(password: str, salt: bytes, tags: tuple[str, ...] = (), iterations: int = ITERATIONS) -> Keys:
    """Return the keys of a password, which is not normalised: use letters that have one form."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    stored = hashlib.sha256(_hmac(salted, b"Client Key")).digest()
    return Keys(iterations, salt, stored, _hmac(salted, b"Server Key"), tags)


def line_of(name: str, keys: Keys) -> str:
    """Return the line of a user."""
    parts = [base64.b64encode(each).decode() for each in (keys.salt, keys.stored, keys.server)]
    return ":".join([name, str(keys.iterations), *parts, " ".join(keys.tags)])


class _Refused(Exception):
    """The client's message is malformed, or its proof is wrong."""


class ScramExchange(AuthExchange):
    """One authentication: the client's first message and the challenge, its proof and the node's signature."""

    def __init__(self, backend: "ScramFile") -> None:
        self._backend = backend
        self._user = ""
        self._keys: Keys | None = None
        self._nonce = b""
        self._first = b""
        """The messages so far that both sides sign."""

    async def answer(self, data: bytes) -> Challenge | Proof | None:
        """Take the client's next message."""
        try:
            return await self._begin(data) if not self._nonce else self._end(data)
        except (_Refused, ValueError):
            return None

    async def _begin(self, data: bytes) -> Challenge:
        fields = _fields(_after(data, b"n,,"), "nr")
        self._user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        self._keys = await self._backend.keys(self._user)
        self._nonce = fields["r"].encode() + base64.b64encode(os.urandom(NONCE_BYTES))
        salt = base64.b64encode(self._keys.salt)
        challenge = b"r=%b,s=%b,i=%d" % (self._nonce, salt, self._keys.iterations)
        self._first = data[3:] + b"," + challenge
        return Challenge(challenge)

    def _end(self, data: bytes) -> Proof:
        assert self._keys is not None
        unproven, found, proof = data.rpartition(b",p=")
        fields = _fields(unproven, "cr")
        if not found or fields["c"] != "biws" or fields["r"].encode() != self._nonce:
            raise _Refused
        signed = self._first + b"," + unproven
        signature = _hmac(self._keys.stored, signed)
        given = base64.b64decode(proof, validate=True)
        if len(given) != len(signature):
            raise _Refused
        key = bytes(one ^ other for one, other in zip(given, signature, strict=True))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self._keys.stored):
            raise _Refused
        verifier = b"v=" + base64.b64encode(_hmac(self._keys.server, signed))
        return Proof(Identity(self._user, self._keys.tags), verifier)


def _after(data: bytes, begin: bytes) -> bytes:
    if not data.startswith(begin):
        raise _Refused
    return data[len(begin) :]


def _fields(data: bytes, names: str) -> dict[str, str]:
    """Return the fields of a message, which has these and no other ones."""
    parts = data.decode().split(",")
    fields = {part[0]: part[2:] for part in parts if part[1:2] == "="}
    if len(parts) != len(fields) or sorted(fields) != sorted(names):
        raise _Refused
    return fields


class ScramFile(AuthBackend):
    """Users of a file, who may do everything."""

    name = "scram_file"
    methods = ("SCRAM-SHA-256",)

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.path = Path(str(settings["path"]))
        self._secret = os.urandom(SALT_BYTES)

    def begin(self, start: AuthStart) -> AuthExchange:
        """Begin an authentication."""
        return ScramExchange(self)

    async def keys(self, user: str) -> Keys:
        """Return a user's keys; an unknown one has salt and keys, too, so that nobody learns who is known."""
        lines = await asyncio.to_thread(self.path.read_text)  # a disk may be slow, and the node must not wait
        for line in lines.splitlines():
            name, iterations, salt, stored, server, tags = line.split(":")
            if name == user:
                parts = (base64.b64decode(each) for each in (salt, stored, server))
                return Keys(int(iterations), *parts, tuple(tags.split()))
        salt = _hmac(self._secret, user.encode())[:SALT_BYTES]
        return Keys(ITERATIONS, salt, os.urandom(32), b"", ())

    async def log_in(self, login: Login) -> Identity | None:
        """Refuse passwords: this backend takes proofs only."""
        return None

    async def allows(self, question: Question) -> bool:
        """Return True: who is in the file may do everything."""
        return True


PLUGIN = Plugin(
    "scram_file",
    "1.0",
    "SCRAM-SHA-256 for the users of a file",
    auth_backends=(ScramFile,),
    settings=(Setting("path", "/etc/fluffle/scram", "the file"),),
)


def main() -> None:
    """Print the line of a user, whose password is asked for."""
    name, *tags = sys.argv[1:]
    print(line_of(name, keys_of(getpass.getpass(), os.urandom(SALT_BYTES), tuple(tags))))


if __name__ == "__main__":
    main()
