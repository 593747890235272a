"""The order of auth backends, from the keys of RabbitMQ; and settings of plug-ins."""

import pytest

from node.config.auth import INTERNAL_ALONE, AuthStep
from node.config.file import ConfigError
from tests.kit.config import load


def steps(text: str) -> list[tuple[str, str]]:
    return [tuple(step) for step in load(text).auth.steps]


def test_without_a_word_the_catalogue_is_alone() -> None:
    assert load().auth.steps == INTERNAL_ALONE == (AuthStep("internal", "internal"),)


def test_backends_are_tried_in_the_order_of_their_numbers() -> None:
    text = "auth_backends.10 = rabbit_auth_backend_http\nauth_backends.2 = internal\n"
    assert steps(text) == [("internal", "internal"), ("http", "http")]


def test_a_step_may_have_two_backends() -> None:
    text = "auth_backends.1.authn = http\nauth_backends.1.authz = internal\n"
    assert steps(text) == [("http", "internal")]
    assert steps("auth_backends.1.authn = http\n") == [("http", "http")]
    assert steps("auth_backends.1.authz = http\n") == [("http", "http")]


def test_a_cache_stands_for_the_backend_that_it_would_ask() -> None:
    assert steps("auth_backends.1 = cache\n") == [("internal", "internal")]
    text = "auth_backends.1 = cache\nauth_cache.cached_backend = http\nauth_cache.cache_ttl = 5000\n"
    assert steps(text) == [("http", "http")]
    assert load(text).auth.answers_kept_s == 5.0
    text = (
        "auth_backends.1.authn = cache\nauth_backends.1.authz = internal\n"
        "auth_cache.cached_backend.authn = ldap\nauth_cache.cached_backend.authz = http\n"
    )
    assert steps(text) == [("ldap", "internal")]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("auth_backends.one = http", "auth_backends.one: the place in the order is no number"),
        (
            "auth_backends.1 = http\nauth_backends.1.authz = internal",
            "auth_backends.1: set it, or auth_backends.1.authn and auth_backends.1.authz, not both",
        ),
        (
            "auth_cache.cached_backend = cache",
            "auth_cache.cached_backend: the backend 'cache' cannot ask itself",
        ),
        ("auth_cache.cache_ttl = 999", "allowed: a whole number of at least 1000, in milliseconds"),
        ("auth_backends.1 = No", "allowed: a name such as internal, http or cache"),
    ],
)
def test_an_order_that_is_none_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(text)
    assert problem in str(raised.value)


def test_settings_of_plugins_are_kept_as_texts() -> None:
    config = load("auth_http.user_path = http://a/b\nplugin.mine.limit = 5\nplugin.mine.a.b = c\n")
    assert config.plugin_settings == {
        "auth_http.user_path": "http://a/b",
        "plugin.mine.limit": "5",
        "plugin.mine.a.b": "c",
    }
    assert "http://a/b" not in repr(config), "a setting may be a secret"
    assert config.unused == ()
