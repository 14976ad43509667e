"""Envelopes: only the other side opens them, only about the same thing, and only in the right direction."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.errors import IdentityError
from colonnade.identity.cipher import NONCE, TAG, Cipher, KeyPair

OURS, THEIRS, OTHERS = KeyPair.new(), KeyPair.new(), KeyPair.new()
HERE = Cipher.between(OURS, THEIRS.public, "run r")
THERE = Cipher.between(THEIRS, OURS.public, "run r")


@given(plain=st.binary(max_size=300), about=st.binary(max_size=60))
def test_the_other_side_reads_what_was_encrypted(plain: bytes, about: bytes) -> None:
    encrypted = HERE.encrypt(plain, about)
    assert len(encrypted) == len(plain) + NONCE + TAG
    assert THERE.decrypt(encrypted, about) == plain
    assert HERE.decrypt(THERE.encrypt(plain, about), about) == plain


def test_the_same_text_is_never_encrypted_twice_the_same() -> None:
    encrypted = {HERE.encrypt(b"yes", b"") for _ in range(200)}
    assert len({text[:NONCE] for text in encrypted}) == 200


@given(where=st.integers(0, NONCE + TAG + 4), change=st.integers(1, 255))
def test_a_changed_bit_does_not_open(where: int, change: int) -> None:
    encrypted = bytearray(HERE.encrypt(b"hello", b"about"))
    encrypted[where] ^= change
    with pytest.raises(IdentityError, match="cannot be decrypted"):
        THERE.decrypt(bytes(encrypted), b"about")


def test_it_does_not_open_about_something_else() -> None:
    with pytest.raises(IdentityError, match="cannot be decrypted"):
        THERE.decrypt(HERE.encrypt(b"hello", b"number 1"), b"number 2")


def test_it_does_not_open_where_it_came_from() -> None:
    with pytest.raises(IdentityError, match="cannot be decrypted"):
        HERE.decrypt(HERE.encrypt(b"hello", b"about"), b"about")


@pytest.mark.parametrize(
    "reader",
    [
        Cipher.between(THEIRS, OURS.public, "run s"),
        Cipher.between(OTHERS, OURS.public, "run r"),
        Cipher.between(THEIRS, OTHERS.public, "run r"),
    ],
    ids=["another run", "another reader", "another sender"],
)
def test_it_does_not_open_elsewhere(reader: Cipher) -> None:
    with pytest.raises(IdentityError, match="cannot be decrypted"):
        reader.decrypt(HERE.encrypt(b"hello", b"about"), b"about")


@pytest.mark.parametrize("length", [0, 1, NONCE, NONCE + TAG - 1])
def test_a_message_that_is_too_short(length: int) -> None:
    with pytest.raises(IdentityError, match="at least"):
        THERE.decrypt(b"x" * length, b"")


@pytest.mark.parametrize("key", [b"", b"x" * 31, b"x" * 33, "x" * 32, None, bytearray(32)])
def test_what_is_no_public_key(key: object) -> None:
    with pytest.raises(IdentityError, match="public key"):
        Cipher.between(OURS, key, "run r")  # type: ignore[arg-type]


@pytest.mark.parametrize("key", [bytes(32), (1).to_bytes(32, "little"), OURS.public], ids=["zero", "one", "our own"])
def test_a_key_that_gives_the_secret_away(key: bytes) -> None:
    with pytest.raises(IdentityError, match="public key"):
        Cipher.between(OURS, key, "run r")


def test_a_pair_is_restored_and_does_not_show_its_secret() -> None:
    again = KeyPair.restore(OURS.private)
    assert again == OURS
    assert Cipher.between(again, THEIRS.public, "run r").decrypt(THERE.encrypt(b"hello", b""), b"") == b"hello"
    assert repr(OURS.private) not in repr(OURS)
    assert "cipher" not in repr(HERE)
    with pytest.raises(IdentityError, match="damaged"):
        KeyPair.restore(b"short")
