"""Callers: keys are checked against salted hashes, and the file is theirs alone."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from colonnade.errors import ColonnadeError, ConfigError
from colonnade.folder import claimed
from colonnade.web.callers import Callers, add_caller, read_callers, remove_caller


def test_a_key_is_somebodys_until_it_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "callers.json"
    shop, desk = add_caller(path, "shop", ["predict"]), add_caller(path, "desk", ["watch", "predict", "watch"])
    callers = Callers(path)
    found = callers.who(desk)
    assert found is not None and (found.name, found.may) == ("desk", ("predict", "watch"))
    assert callers.bearer(f"Bearer {shop}") == callers.bearer(f"bearer  {shop} ") == callers.who(shop)
    for strange in (
        None,
        "",
        "Bearer",
        "Bearer ",
        f"Basic {shop}",
        shop,
        f"Bearer {shop}x",
        f"Bearer {shop[:-1]}",
        "Bearer \ud800",
    ):
        assert callers.bearer(strange) is None
    remove_caller(path, "shop")
    assert callers.who(shop) is None and callers.who(desk) == found


def test_the_file_has_neither_keys_nor_equal_hashes(tmp_path: Path) -> None:
    path = tmp_path / "callers.json"
    keys = [add_caller(path, name, ["predict"]) for name in ("a", "b")]
    text = path.read_text()
    assert not any(key in text or key[4:] in text for key in keys)
    first, second = json.loads(text)["callers"]
    assert first["salt"] != second["salt"] and first["hash"] != second["hash"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(p.name for p in tmp_path.iterdir()) == [".callers.json.changing", "callers.json"]


@pytest.mark.parametrize(
    ("name", "may", "told"),
    [
        ("shop", ["predict"], "there is a caller 'shop' already"),
        ("", ["predict"], "caller '': a name has letters"),
        ("a b", ["predict"], "a name has letters"),
        ("x" * 65, ["predict"], "a name has letters"),
        ("till", ["train"], "--may 'train': there is no such right; there are predict, watch, decide"),
        ("till", [], "caller 'till' needs a right"),
    ],
)
def test_what_cannot_be_added_changes_nothing(tmp_path: Path, name: str, may: list[str], told: str) -> None:
    path = tmp_path / "callers.json"
    add_caller(path, "shop", ["predict"])
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=told):
        add_caller(path, name, may)
    with pytest.raises(ConfigError, match="there is no caller 'nobody'; there are: shop"):
        remove_caller(path, "nobody")
    assert path.read_bytes() == before


def test_two_changes_at_a_time_do_not_meet(tmp_path: Path) -> None:
    path = tmp_path / "callers.json"
    with claimed(tmp_path / ".callers.json.changing"), pytest.raises(ColonnadeError, match="another process works in"):
        add_caller(path, "shop", ["predict"])
    assert not path.exists()


ENTRY = '{"format": 1, "callers": [{"name": "a", "may": %s, "made": "", "salt": "", "hash": "%s"}]}'
NO_CALLERS = (
    "", "[]", "{}", '{"format": 2, "callers": []}', '{"format": 1, "callers": [{"name": "a"}]}',
    ENTRY % ('["all"]', "0" * 64), ENTRY % ("[]", ""), ENTRY % ('"predict"', "0" * 64),
)  # fmt: skip


@pytest.mark.parametrize("text", NO_CALLERS)
def test_a_damaged_file_lets_nobody_call(tmp_path: Path, text: str) -> None:
    path = tmp_path / "callers.json"
    key = add_caller(path, "shop", ["predict"])
    callers = Callers(path)
    path.write_text(text)
    for _ in range(2):
        with pytest.raises(ConfigError, match="is not a file of callers"):
            callers.who(key)
    with pytest.raises(ConfigError, match="is not a file of callers"):
        add_caller(path, "other", ["predict"])
    assert path.read_text() == text


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "callers.json"
    key = add_caller(path, "shop", ["predict"])
    callers = Callers(path)
    path.chmod(0o620)
    with pytest.raises(ConfigError, match="others than its owner may write it"):
        callers.who(key)


def test_no_file_is_nobody(tmp_path: Path) -> None:
    callers = Callers(tmp_path / "callers.json")
    assert callers.known() == () == read_callers(tmp_path / "callers.json") and callers.who("") is None
    key = add_caller(tmp_path / "callers.json", "shop", ["decide"])
    assert callers.who(key) is not None
