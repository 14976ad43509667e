"""Row numbers of requests: read as they were meant, in no more bytes than they need."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from colonnade.errors import WireError
from colonnade.wire.codec import decode, encode
from colonnade.wire.messages import Purpose, Query, Request, read_request, request_arrays, request_header
from colonnade.wire.rows import KnownRows, rows_size

EVERYONE = ("bank", "telco", "shop")
ROWS = 400


def one(rows: Tensor) -> Request:
    return Request(1, (Query(Purpose.EVALUATE, EVERYONE, rows),))


def sent(rows: Tensor, known: KnownRows | None) -> tuple[Tensor, set[str]]:
    """The rows as they are read again, and how they travelled."""
    request = one(rows)
    payload = encode(request_header(request, EVERYONE, known), request_arrays(request, known))
    header, arrays = decode(payload)
    again = read_request(header, arrays, EVERYONE, known)
    assert sum(a.numel() * a.element_size() for a in arrays.values()) == rows_size(rows, known)
    return again.queries[0].rows, {name.partition(".")[0] for name in arrays}


@given(st.sets(st.integers(0, ROWS - 1)), st.sets(st.integers(0, ROWS - 1)), st.booleans(), st.booleans())
def test_whatever_rows_train_the_rows_asked_about_are_read_again(
    train: set[int], rows: set[int], ascending: bool, agreed: bool
) -> None:
    asked = torch.tensor(sorted(rows, reverse=not ascending)).long()
    known = KnownRows(torch.tensor(sorted(train, reverse=True)).long(), ROWS) if agreed else None
    again, _ = sent(asked, known)
    assert torch.equal(again, asked)
    plain = min(4 * len(rows), max(rows) // 8 + 1) if rows and (ascending or len(rows) == 1) else 4 * len(rows)
    assert rows_size(asked, known) <= plain == rows_size(asked, None)


def test_what_everybody_knows_does_not_travel() -> None:
    train = torch.arange(0, ROWS, 2).flip(0)
    known = KnownRows(train, ROWS)
    assert sent(train.sort().values, known)[1] == set()
    validation = torch.arange(1, ROWS, 4)  # every second of the rows that do not train
    assert sent(validation, known)[1] == {"others"}
    assert rows_size(validation, known) == 25
    assert sent(torch.arange(0, ROWS, 4), known)[1] == {"bits"}  # some of those that train
    assert sent(train, known)[1] == {"rows"}  # in another order


def test_rows_in_another_order_keep_it() -> None:
    again, how = sent(torch.arange(50).flip(0), None)
    assert how == {"rows"}
    assert torch.equal(again, torch.arange(50).flip(0))


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"bits.0": torch.ones(4)},
        {"bits.0": torch.ones(2, 2, dtype=torch.uint8)},
        {"bits.0": torch.ones(2, dtype=torch.uint8), "rows.0": torch.arange(2)},
        {"bits.0": torch.full((2**20 + 1,), 255, dtype=torch.uint8)},
        {"others.0": torch.full((26,), 255, dtype=torch.uint8)},
        {"others.0": torch.ones(2, dtype=torch.uint8), "bits.0": torch.ones(2, dtype=torch.uint8)},
    ],
    ids=["nothing", "fractions", "a matrix", "both", "more rows than fit a message", "rows beyond the last", "twice"],
)
def test_arrays_that_name_no_rows(arrays: dict[str, Tensor]) -> None:
    header = request_header(one(torch.arange(2)), EVERYONE)
    with pytest.raises(WireError, match="malformed"):
        read_request(header, arrays, EVERYONE, KnownRows(torch.arange(200), ROWS))


@pytest.mark.parametrize("word", ["test", "", None, 3, ["train"]])
def test_a_word_that_names_no_rows(word: object) -> None:
    header = request_header(one(torch.arange(2)), EVERYONE) | {
        "asks": [{"purpose": "EVALUATE", "speakers": "*", "rows": word}]
    }
    with pytest.raises(WireError, match="malformed"):
        read_request(header, {}, EVERYONE, KnownRows(torch.arange(200), ROWS))


def test_short_forms_where_nothing_was_agreed_on_are_refused() -> None:
    known = KnownRows(torch.arange(200), ROWS)
    for rows in (torch.arange(200), torch.arange(300, 400)):
        request = one(rows)
        with pytest.raises(WireError, match="malformed"):
            read_request(request_header(request, EVERYONE, known), request_arrays(request, known), EVERYONE)


def test_a_word_beside_an_array_is_refused() -> None:
    known, request = KnownRows(torch.arange(200), ROWS), one(torch.arange(200))
    with pytest.raises(WireError, match="malformed"):
        read_request(request_header(request, EVERYONE, known), {"rows.0": torch.arange(3)}, EVERYONE, known)
