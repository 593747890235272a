"""Password hashes in RabbitMQ's format: base64 of a 4-byte salt and the digest of salt and password.

Source: amqp-behaviour §6.6, management §2.3. The format is fixed by the definitions files that we exchange
with RabbitMQ; it is a plain salted digest, so long random passwords matter more than the choice of the
algorithm.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Final

SALT_BYTES: Final = 4

SHA256: Final = "rabbit_password_hashing_sha256"
SHA512: Final = "rabbit_password_hashing_sha512"
MD5: Final = "rabbit_password_hashing_md5"

DEFAULT_ALGORITHM: Final = SHA256

_DIGESTS: Final = {SHA256: "sha256", SHA512: "sha512", MD5: "md5"}

ALGORITHMS: Final = frozenset(_DIGESTS)


def hash_password(password: str | bytes, salt: bytes, algorithm: str = DEFAULT_ALGORITHM) -> str:
    """The hash to store for `password`.

    salt: 4 random bytes.   algorithm: one of `ALGORITHMS`.
    """
    assert len(salt) == SALT_BYTES, len(salt)
    return base64.b64encode(salt + _digest(_encoded(password), salt, algorithm)).decode()


def verify_password(password: str | bytes, password_hash: str, algorithm: str) -> bool:
    """True if `password` has this hash, in time that does not tell how much of it is right.

    A hash that is empty, broken or of an unknown algorithm fits no password.
    """
    if algorithm not in ALGORITHMS:
        return False
    try:
        stored = base64.b64decode(password_hash, validate=True)
    except (binascii.Error, ValueError):
        return False
    salt, digest = stored[:SALT_BYTES], stored[SALT_BYTES:]
    return hmac.compare_digest(_digest(_encoded(password), salt, algorithm), digest)


def _digest(password: bytes, salt: bytes, algorithm: str) -> bytes:
    return hashlib.new(_DIGESTS[algorithm], salt + password, usedforsecurity=False).digest()


def _encoded(password: str | bytes) -> bytes:
    return password.encode("utf-8", "surrogateescape") if isinstance(password, str) else password
