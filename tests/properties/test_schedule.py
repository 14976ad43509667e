"""Turns are a pure function of seed and number: rows, speakers, learners."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.board import Board
from colonnade.config import build
from colonnade.errors import ConfigError
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


ORDERS = ["sequential", "asynchronous"]
SPEEDS = st.dictionaries(st.sampled_from(PARTIES), st.floats(0.2, 5))


def wakes(s: Schedule, turns: int) -> list[str]:
    found = [s.turn(n).speakers for n in range(1, turns + 1)]
    assert all(len(speakers) == 1 for speakers in found)
    return [speakers[0] for speakers in found]


class TestOneAtATime:
    @pytest.mark.parametrize("order", ORDERS)
    def test_the_one_that_speaks_is_the_one_that_learns(self, order: str) -> None:
        s = schedule(order=order, steps={"party_2": 7})
        for n in range(1, 30):
            turn = s.turn(n)
            assert turn.learners == turn.speakers
            assert turn.steps == ((("party_2", 7),) if turn.speakers == ("party_2",) else ())
        assert s.someone_may_be_silent

    def test_in_sequence_everybody_speaks_about_the_same_rows_before_anybody_about_the_next(self) -> None:
        s, together = schedule(order="sequential"), schedule()
        for cycle in range(12):
            turns = [s.turn(cycle * len(PARTIES) + k + 1) for k in range(len(PARTIES))]
            assert tuple(p for turn in turns for p in turn.speakers) == PARTIES
            assert all(torch.equal(turn.rows, together.turn(cycle + 1).rows) for turn in turns)

    @pytest.mark.parametrize("order", ORDERS)
    def test_every_party_visits_every_row_once_per_epoch_of_its_own(self, order: str) -> None:
        s = schedule(order=order, speeds={"party_0": 3.0, "party_5": 0.4})
        visited: dict[str, list[torch.Tensor]] = {party: [] for party in PARTIES}
        for n in range(1, 250):
            turn = s.turn(n)
            visited[turn.speakers[0]].append(turn.rows)
        per_epoch = s.rounds_per_epoch
        for batches in visited.values():
            assert len(batches) >= per_epoch
            for start in range(0, len(batches) - per_epoch + 1, per_epoch):
                rows = torch.cat(batches[start : start + per_epoch])
                assert sorted(rows.tolist()) == (torch.arange(23) * 3).tolist()

    def test_asynchronous_parties_have_orders_of_their_own(self) -> None:
        s = schedule(order="asynchronous")
        first: dict[str, list[int]] = {}
        for n in range(1, 30):
            first.setdefault(s.turn(n).speakers[0], s.turn(n).rows.tolist())
        assert len({tuple(rows) for rows in first.values()}) == len(PARTIES)

    def test_or_all_go_through_the_rows_in_one_order(self) -> None:
        chosen = ScheduleSettings(batch=5, order="asynchronous", rows="shared", speeds={"party_0": 3.0})
        s, together = Schedule(chosen, torch.arange(23) * 3, PARTIES, 0), schedule()
        turns: Counter[str] = Counter()
        for n in range(1, 60):
            (party,) = s.turn(n).speakers
            turns[party] += 1
            assert torch.equal(s.turn(n).rows, together.turn(turns[party]).rows)
        assert len(set(turns.values())) > 1  # they are not in step

    @given(speeds=SPEEDS, seed=st.integers(0, 9))
    @settings(max_examples=25, deadline=None)
    def test_parties_wake_in_proportion_to_their_speed(self, speeds: dict[str, float], seed: int) -> None:
        turns = 400
        count = Counter(wakes(schedule(seed=seed, order="asynchronous", speeds=speeds), turns))
        total = sum(speeds.get(party, 1.0) for party in PARTIES)
        for party in PARTIES:
            expected = turns * speeds.get(party, 1.0) / total
            assert abs(count[party] - expected) <= 2 + 0.06 * expected  # a turn takes at most 5 % longer

    @given(speeds=SPEEDS, bound=st.integers(1, 4), seed=st.integers(0, 9))
    @settings(max_examples=25, deadline=None)
    def test_nobody_gets_further_ahead_than_the_bound(self, speeds: dict[str, float], bound: int, seed: int) -> None:
        s = schedule(seed=seed, order="asynchronous", speeds=speeds, staleness=bound)
        count = dict.fromkeys(PARTIES, 0)
        for party in wakes(s, 150):
            count[party] += 1
            assert max(count.values()) - min(count.values()) <= bound

    def test_without_a_bound_the_fast_run_away(self) -> None:
        count = Counter(wakes(schedule(order="asynchronous", speeds={"party_3": 50.0}), 300))
        assert count["party_3"] > 200

    @pytest.mark.parametrize("order", ORDERS)
    def test_a_turn_does_not_depend_on_what_was_asked_before(self, order: str) -> None:
        kind = {"order": order, "speeds": {"party_1": 2.5}, "staleness": 3}
        forward, one = schedule(**kind), schedule(**kind)
        turns = [forward.turn(n) for n in range(1, 90)]
        for n in (89, 4, 51, 1):
            assert torch.equal(one.turn(n).rows, turns[n - 1].rows)
            assert one.turn(n).speakers == turns[n - 1].speakers

    @pytest.mark.parametrize("order", ORDERS)
    def test_the_most_releases_are_those_of_the_party_that_speaks_most(self, order: str) -> None:
        s = schedule(order=order, speeds={"party_1": 4.0})
        assert s.most_releases(60) == max(Counter(wakes(s, 60)).values())

    @pytest.mark.parametrize("order", ORDERS)
    def test_a_method_without_an_uplink_knows_no_turns(self, order: str) -> None:
        s = schedule(speaks=False, order=order, speeds={"nobody": 2.0})
        assert (s.turn(3).speakers, s.turn(3).learners, s.someone_may_be_silent) == ((), PARTIES, False)


def test_together_some_may_take_other_steps() -> None:
    assert schedule(steps={"party_4": 2, "party_1": 9}).turn(1).steps == (("party_1", 9), ("party_4", 2))


@pytest.mark.parametrize("order", ["together", *ORDERS])
def test_a_turn_knows_the_speeds_of_its_learners(order: str) -> None:
    speeds = {"party_4": 0.5, "party_1": 2.0, "party_2": 1.0}
    for n in range(1, 20):
        turn = schedule(order=order, speeds=speeds).turn(n)
        assert turn.speeds == tuple((p, speeds[p]) for p in turn.learners if p in ("party_1", "party_4"))


@pytest.mark.parametrize("key", ["speeds", "steps"])
def test_a_name_that_is_no_party_is_refused(key: str) -> None:
    with pytest.raises(ConfigError, match=rf"'party_9' in \[training.schedule.{key}\]; did you mean 'party_"):
        schedule(**{key: {"party_9": 2}})


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ({"order": "sequential", "participation": 0.5}, "participation = 1 only"),
        ({"order": "asynchronous", "participation": 0.5}, "participation = 1 only"),
        ({"speeds": {"a": 0}}, "greater than 0"),
        ({"steps": {"a": 0}}, "greater than or equal to 1"),
    ],
)
def test_what_cannot_be_is_refused(values: dict[str, object], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        build(ScheduleSettings, values, "training.schedule")


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
