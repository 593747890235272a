"""Password hashes (amqp-behaviour §6.6, management §2.3)."""

import base64
import hashlib

import pytest

from node.catalogue.passwords import ALGORITHMS, MD5, SHA256, SHA512, hash_password, verify_password

SALT = b"\x90\x8d\xc6\x0a"


def test_the_published_example_of_rabbitmq() -> None:
    """Salt 908DC60A and password test12: the worked example of RabbitMQ's page on passwords."""
    assert hash_password("test12", SALT) == "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


@pytest.mark.parametrize(
    ("algorithm", "digest", "octets"), [(SHA256, "sha256", 36), (SHA512, "sha512", 68), (MD5, "md5", 20)]
)
def test_format_is_base64_of_salt_and_digest(algorithm: str, digest: str, octets: int) -> None:
    """management §2.3: 4 octets of salt and digest(salt + utf8 password)."""
    raw = base64.b64decode(hash_password("pä", SALT, algorithm))
    assert raw == SALT + hashlib.new(digest, SALT + "pä".encode()).digest()
    assert len(raw) == octets


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_only_the_right_password_is_verified(algorithm: str) -> None:
    stored = hash_password("secret", SALT, algorithm)
    assert verify_password("secret", stored, algorithm)
    assert verify_password(b"secret", stored, algorithm)
    for wrong in ("", "Secret", "secret ", "secre", b"\xff"):
        assert not verify_password(wrong, stored, algorithm)


def test_the_algorithm_is_part_of_the_match() -> None:
    assert not verify_password("secret", hash_password("secret", SALT, SHA512), SHA256)
    assert not verify_password("secret", hash_password("secret", SALT), "plain")


@pytest.mark.parametrize("broken", ["", "!!!!", "QUJD", "kI3GCg==", "é"])
def test_a_broken_hash_fits_no_password(broken: str) -> None:
    """management §2.3: `password_hash: ""` disables the password; nothing crashes on the rest."""
    assert not verify_password("", broken, SHA256)
    assert not verify_password("x", broken, SHA256)
