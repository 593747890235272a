"""Settings of plug-ins: types, bounds and errors."""

import pytest

from node.extension.setting import Setting, SettingError, read_settings

SETTINGS = (
    Setting("url", "http://localhost"),
    Setting("limit", 5, minimum=1),
    Setting("rate", 0.5, minimum=0),
    Setting("is_on", False),
    Setting("way", "get", choices=("get", "post")),
)


def test_without_a_file_there_are_the_defaults() -> None:
    values = read_settings("plugin.mine", SETTINGS, {"plugin.mineral.url": "not ours"})
    assert values == {"url": "http://localhost", "limit": 5, "rate": 0.5, "is_on": False, "way": "get"}


def test_texts_become_values_of_the_defaults_types() -> None:
    texts = {"url": "x", "limit": "7", "rate": "1", "is_on": "true", "way": "post"}
    values = read_settings("p", SETTINGS, {f"p.{key}": text for key, text in texts.items()})
    assert values == {"url": "x", "limit": 7, "rate": 1.0, "is_on": True, "way": "post"}
    assert isinstance(values["rate"], float)


@pytest.mark.parametrize(
    ("key", "text", "allowed"),
    [
        ("limit", "0", "a whole number, at least 1"),
        ("limit", "x", "a whole number, at least 1"),
        ("limit", "1" * 30, "a whole number, at least 1"),
        ("rate", "-0.1", "a number, at least 0"),
        ("rate", "nan", "a number, at least 0"),
        ("is_on", "yes", "true, false"),
        ("way", "put", "get, post"),
    ],
)
def test_a_value_that_is_not_allowed_is_named_with_what_is(key: str, text: str, allowed: str) -> None:
    with pytest.raises(SettingError) as raised:
        read_settings("p", SETTINGS, {f"p.{key}": text})
    assert raised.value.problems == [f"p.{key}: '{text}' is not allowed; allowed: {allowed}"]


def test_all_problems_are_told_together() -> None:
    with pytest.raises(SettingError) as raised:
        read_settings("p", SETTINGS[:2], {"p.limit": "x", "p.ulr": "x"})
    assert raised.value.problems == [
        "p.limit: 'x' is not allowed; allowed: a whole number, at least 1",
        "p.ulr: there is no such setting; allowed: p.url, p.limit",
    ]


MANY = (
    Setting("listeners", "", choices=("none",)),
    Setting("listeners.$name", ""),
    Setting("ttl", 5, minimum=1, words=("infinity",)),
)


def test_a_key_may_be_one_of_many() -> None:
    values = read_settings("p", MANY, {"p.listeners.1": "1883", "p.listeners.default": "1884"})
    assert values == {"listeners": "", "ttl": 5, "listeners.1": "1883", "listeners.default": "1884"}
    for key in ("p.listeners.", "p.listeners.1.2", "p.listener.1"):
        with pytest.raises(SettingError):
            read_settings("p", MANY, {key: "1883"})


def test_words_are_allowed_beside_numbers() -> None:
    assert read_settings("p", MANY, {"p.ttl": "infinity"})["ttl"] == "infinity"
    with pytest.raises(SettingError) as raised:
        read_settings("p", MANY, {"p.ttl": "never"})
    assert raised.value.problems == [
        "p.ttl: 'never' is not allowed; allowed: a whole number, at least 1, infinity"
    ]
