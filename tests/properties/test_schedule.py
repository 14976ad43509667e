"""Turns are a pure function of seed and number: rows, speakers, learners."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.config import build
from colonnade.errors import ConfigError
from colonnade.privacy.sealed import Array
from colonnade.schedule import Schedule, ScheduleSettings, chunked
from colonnade.upload_cache import UploadCache
from tests.federations import small
from tests.trainers import open_trainer

PARTIES = tuple(f"party_{k}" for k in range(7))


def schedule(rows: int = 23, seed: int = 0, has_uplink: bool = True, **settings: object) -> Schedule:
    return Schedule(ScheduleSettings(**{"batch": 5, **settings}), torch.arange(rows) * 3, PARTIES, seed, has_uplink)


@given(rows=st.integers(1, 60), batch=st.integers(1, 70), epoch=st.integers(0, 3))
def test_an_epoch_visits_every_training_row_once(rows: int, batch: int, epoch: int) -> None:
    s = schedule(rows, batch=batch)
    start = epoch * s.rounds_per_epoch + 1
    seen = torch.cat([s.plan(n).rows for n in range(start, start + s.rounds_per_epoch)])
    assert sorted(seen.tolist()) == (torch.arange(rows) * 3).tolist()


def test_a_plan_does_not_depend_on_the_plans_before() -> None:
    forward, one = schedule(), schedule()
    turns = [forward.plan(n) for n in range(1, 20)]
    for n in (19, 4, 11, 1):
        assert torch.equal(one.plan(n).rows, turns[n - 1].rows)
        assert one.plan(n).senders == turns[n - 1].senders


def test_epochs_are_shuffled_anew_or_once() -> None:
    anew, once = schedule(), schedule(shuffle="once")
    after = 1 + anew.rounds_per_epoch
    assert not torch.equal(anew.plan(1).rows, anew.plan(after).rows)
    assert torch.equal(once.plan(1).rows, once.plan(after).rows)
    assert not torch.equal(schedule(seed=1).plan(1).rows, anew.plan(1).rows)


@given(share=st.floats(0.01, 1.0), number=st.integers(1, 500))
def test_the_right_number_of_parties_uploads(share: float, number: int) -> None:
    plan = schedule(participation=share).plan(number)
    assert len(plan.senders) == max(1, round(share * len(PARTIES)))
    assert list(plan.senders) == sorted(set(plan.senders), key=PARTIES.index)
    assert plan.learners == PARTIES


def test_everybody_gets_a_turn() -> None:
    s = schedule(participation=0.3)
    count = dict.fromkeys(PARTIES, 0)
    for n in range(1, 701):
        for party in s.plan(n).senders:
            count[party] += 1
    assert all(150 < c < 250 for c in count.values())  # 2 of 7 in each round: 200


def test_silent_parties_may_be_left_out_of_learning() -> None:
    s = schedule(participation=0.3, silent_learn=False)
    assert s.plan(3).learners == s.plan(3).senders


@pytest.mark.parametrize(
    ("has_uplink", "participation", "remembered"), [(True, 0.5, True), (True, 1, False), (False, 0.5, False)]
)
def test_uploads_are_remembered_where_somebody_may_be_silent(
    has_uplink: bool, participation: float, remembered: bool
) -> None:
    assert schedule(has_uplink=has_uplink, participation=participation).someone_may_be_silent is remembered


def test_a_method_without_an_uplink_asks_nobody_and_teaches_everybody() -> None:
    plan = schedule(has_uplink=False, participation=0.3, silent_learn=False).plan(2)
    assert plan.senders == ()
    assert plan.learners == PARTIES


ORDERS = ["sequential", "asynchronous"]
SPEEDS = st.dictionaries(st.sampled_from(PARTIES), st.floats(0.2, 5))


def wakes(s: Schedule, turns: int) -> list[str]:
    found = [s.plan(n).senders for n in range(1, turns + 1)]
    assert all(len(senders) == 1 for senders in found)
    return [senders[0] for senders in found]


class TestOneAtATime:
    @pytest.mark.parametrize("order", ORDERS)
    def test_the_one_that_uploads_is_the_one_that_learns(self, order: str) -> None:
        s = schedule(order=order, steps={"party_2": 7})
        for n in range(1, 30):
            plan = s.plan(n)
            assert plan.learners == plan.senders
            assert plan.steps == ((("party_2", 7),) if plan.senders == ("party_2",) else ())
        assert s.someone_may_be_silent

    def test_in_sequence_everybody_uploads_about_the_same_rows_before_anybody_about_the_next(self) -> None:
        s, together = schedule(order="sequential"), schedule()
        for cycle in range(12):
            turns = [s.plan(cycle * len(PARTIES) + k + 1) for k in range(len(PARTIES))]
            assert tuple(p for plan in turns for p in plan.senders) == PARTIES
            assert all(torch.equal(plan.rows, together.plan(cycle + 1).rows) for plan in turns)

    @pytest.mark.parametrize("order", ORDERS)
    def test_every_party_visits_every_row_once_per_epoch_of_its_own(self, order: str) -> None:
        s = schedule(order=order, speeds={"party_0": 3.0, "party_5": 0.4})
        visited: dict[str, list[torch.Tensor]] = {party: [] for party in PARTIES}
        for n in range(1, 250):
            plan = s.plan(n)
            visited[plan.senders[0]].append(plan.rows)
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
            first.setdefault(s.plan(n).senders[0], s.plan(n).rows.tolist())
        assert len({tuple(rows) for rows in first.values()}) == len(PARTIES)

    def test_or_all_go_through_the_rows_in_one_order(self) -> None:
        chosen = ScheduleSettings(batch=5, order="asynchronous", rows="shared", speeds={"party_0": 3.0})
        s, together = Schedule(chosen, torch.arange(23) * 3, PARTIES, 0), schedule()
        turns: Counter[str] = Counter()
        for n in range(1, 60):
            (party,) = s.plan(n).senders
            turns[party] += 1
            assert torch.equal(s.plan(n).rows, together.plan(turns[party]).rows)
        assert len(set(turns.values())) > 1  # they are not in step

    @given(speeds=SPEEDS, seed=st.integers(0, 9))
    @settings(max_examples=25, deadline=None)
    def test_parties_wake_in_proportion_to_their_speed(self, speeds: dict[str, float], seed: int) -> None:
        turns = 400
        count = Counter(wakes(schedule(seed=seed, order="asynchronous", speeds=speeds), turns))
        total = sum(speeds.get(party, 1.0) for party in PARTIES)
        for party in PARTIES:
            expected = turns * speeds.get(party, 1.0) / total
            assert abs(count[party] - expected) <= 2 + 0.06 * expected  # a round takes at most 5 % longer

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
    def test_a_plan_does_not_depend_on_what_was_asked_before(self, order: str) -> None:
        kind = {"order": order, "speeds": {"party_1": 2.5}, "staleness": 3}
        forward, one = schedule(**kind), schedule(**kind)
        turns = [forward.plan(n) for n in range(1, 90)]
        for n in (89, 4, 51, 1):
            assert torch.equal(one.plan(n).rows, turns[n - 1].rows)
            assert one.plan(n).senders == turns[n - 1].senders

    @pytest.mark.parametrize("order", ORDERS)
    def test_the_most_releases_are_those_of_the_party_that_uploads_most(self, order: str) -> None:
        s = schedule(order=order, speeds={"party_1": 4.0})
        assert s.most_releases(60) == max(Counter(wakes(s, 60)).values())

    @pytest.mark.parametrize("order", ORDERS)
    def test_a_method_without_an_uplink_knows_no_turns(self, order: str) -> None:
        s = schedule(has_uplink=False, order=order, speeds={"nobody": 2.0})
        assert (s.plan(3).senders, s.plan(3).learners, s.someone_may_be_silent) == ((), PARTIES, False)


def test_together_some_may_take_other_steps() -> None:
    assert schedule(steps={"party_4": 2, "party_1": 9}).plan(1).steps == (("party_1", 9), ("party_4", 2))


@pytest.mark.parametrize("order", ["together", *ORDERS])
def test_a_plan_knows_the_speeds_of_its_learners(order: str) -> None:
    speeds = {"party_4": 0.5, "party_1": 2.0, "party_2": 1.0}
    for n in range(1, 20):
        plan = schedule(order=order, speeds=speeds).plan(n)
        assert plan.speeds == tuple((p, speeds[p]) for p in plan.learners if p in ("party_1", "party_4"))


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


class TestUploadCache:
    def cache(self) -> UploadCache:
        from colonnade.methods import VIMADMM

        return UploadCache(open_trainer(small(rows=10), VIMADMM()).coordinator.schema, 3, {"h": Array(2)})

    def test_it_is_zero_before_the_first_word(self) -> None:
        assert torch.equal(self.cache().recall(torch.tensor([0, 9]))["h"], torch.zeros(3, 2, 2, dtype=torch.float64))

    def test_it_remembers_by_row_and_party(self) -> None:
        cache = self.cache()
        uploaded = torch.arange(8, dtype=torch.float64).view(2, 2, 2)
        cache.remember([2, 0], torch.tensor([7, 3]), {"h": uploaded})
        recalled = cache.recall(torch.tensor([3, 7, 5]))["h"]
        assert torch.equal(
            recalled[2], torch.stack([uploaded[0, 1], uploaded[0, 0], torch.zeros(2, dtype=torch.float64)])
        )
        assert torch.equal(
            recalled[0], torch.stack([uploaded[1, 1], uploaded[1, 0], torch.zeros(2, dtype=torch.float64)])
        )
        assert not recalled[1].any()

    def test_the_last_word_counts(self) -> None:
        cache = self.cache()
        for value in (1.0, 2.0):
            cache.remember([1], torch.tensor([4]), {"h": torch.full((1, 1, 2), value, dtype=torch.float64)})
        assert torch.equal(cache.recall(torch.tensor([4]))["h"][1], torch.full((1, 2), 2.0, dtype=torch.float64))
