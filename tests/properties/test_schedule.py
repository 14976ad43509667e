"""Turns are a pure function of seed and number: rows, speakers, learners."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from colonnade.board import Board
from colonnade.privacy.sealed import Array
from colonnade.schedule import Schedule, ScheduleSettings, chunked
from tests.exchanges import open_trainer
from tests.federations import small

PARTIES = tuple(f"party_{k}" for k in range(7))


def schedule(rows: int = 23, seed: int = 0, speaks: bool = True, **settings: object) -> Schedule:
    return Schedule(ScheduleSettings(**{"batch": 5, **settings}), torch.arange(rows) * 3, PARTIES, seed, speaks)


@given(rows=st.integers(1, 60), batch=st.integers(1, 70), epoch=st.integers(0, 3))
def test_an_epoch_visits_every_training_row_once(rows: int, batch: int, epoch: int) -> None:
    s = schedule(rows, batch=batch)
    start = epoch * s.rounds_per_epoch + 1
    seen = torch.cat([s.turn(n).rows for n in range(start, start + s.rounds_per_epoch)])
    assert sorted(seen.tolist()) == (torch.arange(rows) * 3).tolist()


def test_a_turn_does_not_depend_on_the_turns_before() -> None:
    forward, one = schedule(), schedule()
    turns = [forward.turn(n) for n in range(1, 20)]
    for n in (19, 4, 11, 1):
        assert torch.equal(one.turn(n).rows, turns[n - 1].rows)
        assert one.turn(n).speakers == turns[n - 1].speakers


def test_epochs_are_shuffled_anew_or_once() -> None:
    anew, once = schedule(), schedule(shuffle="once")
    after = 1 + anew.rounds_per_epoch
    assert not torch.equal(anew.turn(1).rows, anew.turn(after).rows)
    assert torch.equal(once.turn(1).rows, once.turn(after).rows)
    assert not torch.equal(schedule(seed=1).turn(1).rows, anew.turn(1).rows)


@given(share=st.floats(0.01, 1.0), number=st.integers(1, 500))
def test_the_right_number_of_parties_speaks(share: float, number: int) -> None:
    turn = schedule(participation=share).turn(number)
    assert len(turn.speakers) == max(1, round(share * len(PARTIES)))
    assert list(turn.speakers) == sorted(set(turn.speakers), key=PARTIES.index)
    assert turn.learners == PARTIES


def test_everybody_gets_a_turn() -> None:
    s = schedule(participation=0.3)
    count = dict.fromkeys(PARTIES, 0)
    for n in range(1, 701):
        for party in s.turn(n).speakers:
            count[party] += 1
    assert all(150 < c < 250 for c in count.values())  # 2 of 7 in each turn: 200


def test_silent_parties_may_be_left_out_of_learning() -> None:
    s = schedule(participation=0.3, silent_learn=False)
    assert s.turn(3).learners == s.turn(3).speakers


@pytest.mark.parametrize(
    ("speaks", "participation", "remembered"), [(True, 0.5, True), (True, 1, False), (False, 0.5, False)]
)
def test_uploads_are_remembered_where_somebody_may_be_silent(
    speaks: bool, participation: float, remembered: bool
) -> None:
    assert schedule(speaks=speaks, participation=participation).someone_may_be_silent is remembered


def test_a_method_without_an_uplink_asks_nobody_and_teaches_everybody() -> None:
    turn = schedule(speaks=False, participation=0.3, silent_learn=False).turn(2)
    assert turn.speakers == ()
    assert turn.learners == PARTIES


@given(st.integers(0, 40), st.integers(1, 45))
def test_chunks_are_the_rows_in_order(rows: int, size: int) -> None:
    parts = chunked(torch.arange(rows), size)
    assert all(0 < len(part) <= size for part in parts)
    assert [int(r) for part in parts for r in part] == list(range(rows))


class TestBoard:
    def board(self) -> Board:
        from colonnade.methods import VIMADMM

        return Board(open_trainer(small(rows=10), VIMADMM()).coordinator.schema, 3, {"h": Array(2)})

    def test_it_is_zero_before_the_first_word(self) -> None:
        assert torch.equal(self.board().recall(torch.tensor([0, 9]))["h"], torch.zeros(3, 2, 2, dtype=torch.float64))

    def test_it_remembers_by_row_and_party(self) -> None:
        board = self.board()
        said = torch.arange(8, dtype=torch.float64).view(2, 2, 2)
        board.remember([2, 0], torch.tensor([7, 3]), {"h": said})
        recalled = board.recall(torch.tensor([3, 7, 5]))["h"]
        assert torch.equal(recalled[2], torch.stack([said[0, 1], said[0, 0], torch.zeros(2, dtype=torch.float64)]))
        assert torch.equal(recalled[0], torch.stack([said[1, 1], said[1, 0], torch.zeros(2, dtype=torch.float64)]))
        assert not recalled[1].any()

    def test_the_last_word_counts(self) -> None:
        board = self.board()
        for value in (1.0, 2.0):
            board.remember([1], torch.tensor([4]), {"h": torch.full((1, 1, 2), value, dtype=torch.float64)})
        assert torch.equal(board.recall(torch.tensor([4]))["h"][1], torch.full((1, 2), 2.0, dtype=torch.float64))
