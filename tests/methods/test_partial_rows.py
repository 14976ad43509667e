"""Rows that really are unmatched: FedMVT trains on them, nothing that nobody holds is read, all others refuse them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from colonnade.checkpoint import fingerprint
from colonnade.data.corrupt import add_noise
from colonnade.errors import ConfigError, DataError, GateError, RowsLeftOut, RunError
from colonnade.estimate import estimate
from colonnade.federation import Federation, RowSplit
from colonnade.fit import fit, resume
from colonnade.job import load_data, read_job
from colonnade.methods import METHODS, FedMVT, make_method
from colonnade.methods._views import BOTH, FIRST, NOBODY, SECOND, holds
from colonnade.models.optimise import AdamW
from colonnade.privacy.labels.known import KnownLabels
from colonnade.run import Run
from colonnade.search import without_test
from tests.federations import normed_encoder, small
from tests.trainers import open_trainer, rounds_of

WHOLE = small(widths=(5, 5), rows=80)
QUICK = {"optimiser": AdamW(lr=0.05), "server_optimiser": AdamW(lr=0.05)}
UNSURE = {"threshold": 0.36, "host_threshold": 0.35, **QUICK}  # so that some labels are guessed at once
OPTIONS: dict[str, Any] = {"rounds": 8, "evaluate_every": 4, "schedule": {"batch": 16}}


def partial(whole: Federation = WHOLE, seed: int = 0, **changes: Any) -> Federation:
    """Training rows in turn of both, of the first party, of the second; the first party's rows have labels."""
    held = torch.ones(whole.rows, 2, dtype=torch.bool)
    held[whole.split.train[1::3], 1] = held[whole.split.train[2::3], 0] = False
    facts = {"task": whole.task, "split": whole.split, "held": held, "labelled": held[:, 0]}
    columns = {party.name: party.columns for party in whole.parties}
    return Federation.from_arrays(columns, whole.labels, **{**facts, **changes})


def frames(rows: int = 60) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Customers 0 to 41 of a bank, which knows who left, and 18 to 59 of a telco; columns and labels depend on ids."""
    rng = np.random.default_rng(0)
    score = rng.normal(size=rows)
    customer = np.arange(rows)
    income = score + 5 + rng.normal(scale=0.6, size=rows)  # alone it does not tell who left
    bank = pd.DataFrame({"customer": customer, "income": income, "left": np.where(score > 0, "yes", "no")})
    telco = pd.DataFrame({"customer": customer, "calls": 3 * score - 7, "plan": np.where(score > 0.5, "big", "small")})
    return bank.iloc[:42], telco.iloc[18:]


def joined(**options: Any) -> Federation:
    bank, telco = frames()
    return Federation.from_tables(
        {"bank": bank, "telco": telco}, labels="left", **{"id": "customer", "keep": "partial", **options}
    )


class TestOuterJoin:
    def test_every_id_of_any_table_is_a_row(self) -> None:
        federation = joined()
        assert federation.ids == tuple(map(str, range(60)))  # the bank's, then what only the telco has
        held, known = federation.held, federation.labelled
        assert held is not None and known is not None
        assert held[:, 0].tolist() == [i < 42 for i in range(60)]
        assert held[:, 1].tolist() == [i >= 18 for i in range(60)]
        assert known.tolist() == held[:, 0].tolist()
        assert federation.task.names == ("no", "yes") and federation.outputs == 1

    def test_only_complete_rows_validate_and_test(self) -> None:
        federation = joined()
        complete = federation.complete
        assert complete.nonzero().squeeze(1).tolist() == list(range(18, 42))
        for part in (federation.split.validation, federation.split.test):
            assert len(part) and bool(complete[part].all())
        assert len(federation.split.train) == 60 - len(federation.split.validation) - len(federation.split.test)

    def test_statistics_are_of_the_rows_that_a_party_holds(self) -> None:
        federation = joined()
        for party in federation.parties:
            assert party.held is not None
            mine = federation.split.train[party.held[federation.split.train]]
            assert party.columns[mine][:, 0].mean().abs() < 1e-6
            assert party.columns[mine][:, 0].std(unbiased=False).item() == pytest.approx(1, abs=1e-6)
            assert not party.columns[~party.held].any()

    def test_the_matched_rows_are_those_of_the_inner_join(self) -> None:
        with pytest.warns(RowsLeftOut, match="'bank': 18 of 42, party 'telco': 18 of 42"):
            inner = joined(keep="all")
        matched = joined().matched()
        assert matched.ids == inner.ids and not matched.partial
        assert torch.equal(matched.labels, inner.labels) and matched.task == inner.task

    def test_an_empty_label_is_an_unknown_one(self) -> None:
        bank, telco = frames()
        bank = bank.assign(left=bank["left"].where(bank["customer"] % 2 == 0))
        tables = {"bank": bank, "telco": telco}
        federation = Federation.from_tables(tables, labels="left", id="customer", keep="partial")
        assert federation.labelled is not None
        assert federation.labelled.nonzero().squeeze(1).tolist() == list(range(0, 42, 2))
        with pytest.warns(RowsLeftOut), pytest.raises(DataError, match="are empty"):
            Federation.from_tables(tables, labels="left", id="customer")

    def test_labels_of_their_own_frame_and_a_holder_without_columns(self) -> None:
        bank, telco = frames()
        labels = pd.DataFrame({"customer": [20, 30, 55, 999], "left": [0, 1, 1, 0]})  # 999 is nobody's customer
        split = RowSplit(torch.arange(60), torch.arange(0), torch.arange(0))
        tables = {"bank": bank.drop(columns="left"), "telco": telco}
        for given_, named in (({}, labels), ({"holder": labels}, "left")):
            with pytest.warns(RowsLeftOut, match=r"labels whose id no table has are left out \(the labels: 1 of 4\)"):
                federation = Federation.from_tables(
                    {**tables, **given_}, labels=named, id="customer", keep="partial", split=split
                )
            assert federation.names == ("bank", "telco") and federation.rows == 60
            assert federation.labelled is not None
            assert federation.labelled.nonzero().squeeze(1).tolist() == [20, 30, 55]
            assert federation.labels[[20, 30, 55], 0].tolist() == [0, 1, 1]

    def test_without_gaps_it_is_the_inner_join(self) -> None:
        bank, telco = frames()
        tables = {"bank": bank, "telco": telco}
        tables = {name: table[table["customer"].between(18, 41)] for name, table in tables.items()}
        one, other = (
            Federation.from_tables(tables, labels="left", id="customer", keep=keep) for keep in ("all", "partial")
        )
        assert other.held is None and other.labelled is None and fingerprint(one) == fingerprint(other)

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [({"keep": "some"}, "needed 'all' or 'labelled' or 'partial'"), ({"id": None}, "needs an id to join on")],
    )
    def test_refusals(self, options: dict[str, Any], sentence: str) -> None:
        with pytest.raises(ConfigError, match=sentence):
            joined(**options)

    def test_labels_that_no_row_has(self) -> None:
        telco = frames()[1]
        labels = pd.DataFrame({"customer": ["a", "b"], "left": [0, 1]})
        with pytest.raises(DataError, match="no row of the tables has a label"):
            Federation.from_tables({"t": telco}, labels=labels, id="customer", keep="partial")


@settings(max_examples=15, deadline=None)  # a join takes about 20 ms
@given(st.lists(st.sampled_from(["both", "bank", "telco", "neither"]), min_size=12, max_size=12), st.randoms())
def test_rows_meet_by_id_whatever_their_order(where: list[str], random: Any) -> None:
    """A party's column grows with the id, so its order tells which rows met; slow truth: one id at a time."""
    bank = [i for i in range(15) if i >= 12 or where[i] in ("both", "bank")]  # 12 to 14 are everybody's
    telco = [i for i in range(15) if i >= 12 or where[i] in ("both", "telco")]
    random.shuffle(bank), random.shuffle(telco)
    one = pd.DataFrame({"id": bank, "x": np.array(bank, float), "y": [i % 2 for i in bank]})
    other = pd.DataFrame({"id": telco, "z": np.array(telco, float)})
    split = RowSplit(torch.arange(len({*bank, *telco})), torch.arange(0), torch.arange(0))
    federation = Federation.from_tables({"b": one, "t": other}, labels="y", id="id", keep="partial", split=split)
    order = bank + [i for i in telco if i not in bank]
    assert federation.ids == tuple(map(str, order))
    for party, mine in zip(federation.parties, (bank, telco), strict=True):
        rows = [order.index(i) for i in sorted(mine)]
        assert [r for r in range(len(order)) if party.held is None or party.held[r]] == sorted(rows)
        values = party.columns[rows, 0].tolist()
        assert values == sorted(values)
    for row, i in enumerate(order):
        assert (federation.labelled is None or bool(federation.labelled[row])) == (i in bank)
        assert int(federation.labels[row]) == (i % 2 if i in bank else 0)


class TestFederation:
    def test_what_is_not_held_is_dropped_unread(self) -> None:
        federation = partial()
        assert federation.held is not None
        junk = {p.name: p.columns.clone() for p in WHOLE.parties}
        for place, columns in enumerate(junk.values()):
            columns[~federation.held[:, place]] = torch.nan
        labels = WHOLE.labels.double()
        labels[~federation.held[:, 0]] = torch.nan
        again = partial(replace(WHOLE, parties=tuple(replace(p, columns=junk[p.name]) for p in WHOLE.parties)))
        assert fingerprint(again) == fingerprint(federation)
        assert torch.equal(partial(replace(WHOLE, labels=labels)).labels, federation.labels)
        assert not federation.labels[~federation.held[:, 0]].any()

    def test_masks_that_say_nothing_are_none(self) -> None:
        everything = np.ones((WHOLE.rows, 2), dtype=bool)
        federation = partial(held=everything, labelled=everything[:, 0])
        assert federation.held is None and federation.labelled is None and not federation.partial
        assert fingerprint(federation) == fingerprint(WHOLE) and federation.matched() is federation

    def test_only_keeps_what_each_holds(self) -> None:
        federation = partial()
        train = federation.split.train
        guest = federation.only(["party_0"])
        assert guest.held is not None and federation.held is not None
        assert torch.equal(guest.held[:, 0], federation.held[:, 0])
        assert guest.split.train.tolist() == [r for i, r in enumerate(train.tolist()) if i % 3 != 2]
        alone = guest.matched()
        assert not alone.partial and alone.rows == int(federation.held[:, 0].sum())
        assert torch.equal(alone.parties[0].columns, WHOLE.parties[0].columns[federation.held[:, 0]])

    def test_matched_leaves_out_what_is_not_complete(self) -> None:
        federation, matched = partial(), partial().matched()
        assert matched.rows == WHOLE.rows - 2 * len(WHOLE.split.train) // 3 and not matched.partial
        rows = federation.complete.nonzero().squeeze(1)
        for part in ("train", "validation", "test"):
            before, after = getattr(federation.split, part), getattr(matched.split, part)
            assert rows[after].tolist() == [r for r in before.tolist() if federation.complete[r]]
        assert torch.equal(matched.parties[1].columns, WHOLE.parties[1].columns[rows])

    def test_pooled_noisy_and_without_test(self) -> None:
        federation = partial()
        pooled, noisy, blind = federation.pooled(), add_noise(federation, "party_1", 1.0), without_test(federation)
        assert pooled.held is not None and federation.held is not None and noisy.held is not None
        assert torch.equal(pooled.held[:, 0], federation.held.all(dim=1))
        assert torch.equal(noisy.held, federation.held)
        rows = torch.cat([federation.split.train, federation.split.validation]).sort().values
        assert blind.held is not None and blind.labelled is not None
        assert torch.equal(blind.held, federation.held[rows]) and torch.equal(blind.labelled, federation.held[rows, 0])

    @pytest.mark.parametrize(
        ("changes", "sentence"),
        [
            ({"held": np.ones((80, 3), dtype=bool)}, r"held: needed booleans of shape \(80, 2\)"),
            ({"held": {"a": np.ones(80, dtype=bool)}}, r"held: needed booleans of shape \(80, 2\); got dict"),
            ({"held": np.ones((80, 2))}, "needed booleans"),
            ({"labelled": np.ones(79, dtype=bool)}, r"labelled: needed booleans of shape \(80,\)"),
            ({"held": np.zeros((80, 2), dtype=bool), "labelled": None}, "validation rows are not held by all"),
            ({"labelled": np.zeros(80, dtype=bool), "held": None}, "no row has a label"),
        ],
    )
    def test_refusals(self, changes: dict[str, Any], sentence: str) -> None:
        with pytest.raises(DataError, match=sentence):
            partial(**changes)

    def test_rows_of_nobody_and_parties_without_rows(self) -> None:
        train = WHOLE.split.train
        held = torch.ones(WHOLE.rows, 2, dtype=torch.bool)
        held[train[0]] = False
        with pytest.raises(DataError, match="1 rows are held by no party"):
            partial(held=held)
        held = torch.ones(WHOLE.rows, 2, dtype=torch.bool)
        held[train, 1] = False
        with pytest.raises(DataError, match="'party_1' holds no training row"):
            partial(held=held)
        known = torch.ones(WHOLE.rows, dtype=torch.bool)
        known[train] = False
        with pytest.raises(DataError, match="no training row has a label"):
            partial(labelled=known)
        held = torch.ones(WHOLE.rows, 2, dtype=torch.bool)
        held[train[::2], 0] = held[train[1::2], 1] = False
        with pytest.raises(DataError, match="nothing to match"):
            partial(held=held).matched()
        with pytest.raises(ConfigError, match="training rows that both parties hold, and there is none"):
            fit(partial(held=held), FedMVT(), rounds=1)


class TestTraining:
    def test_real_gaps_train_as_simulated_ones(self) -> None:
        """The same rows missing, once by the `matched` setting and once really: the same model, bit for bit."""
        method, options = FedMVT(**UNSURE, matched=0.4), {**OPTIONS, "rounds": 20}
        trainer = open_trainer(WHOLE, method, **options)
        holders = trainer.coordinator.state["cache.holders"]
        held = torch.stack([holds(holders, 0), holds(holders, 1)], dim=1)
        real = Federation.from_arrays(
            {p.name: p.columns for p in WHOLE.parties},
            WHOLE.labels,
            task=WHOLE.task,
            split=WHOLE.split,
            scaled=True,
            held=held,
            labelled=held[:, 0],
        )
        simulated = open_trainer(replace(WHOLE, scaled=True), method, **options).train()
        assert sum(record["pseudo_labels"] for record in simulated.history if "pseudo_labels" in record) > 0
        assert open_trainer(real, FedMVT(**UNSURE), **options).train().fingerprint() == simulated.fingerprint()

    @pytest.mark.parametrize("engine", ["loop", "stacked"])
    @pytest.mark.parametrize("encoders", [None, normed_encoder], ids=["plain", "batch norm"])
    def test_what_nobody_holds_changes_no_bit(self, engine: str, encoders: Any) -> None:
        """Junk behind the back of `from_arrays`, in cells and labels that do not count."""
        federation = partial()
        assert federation.held is not None
        parties = []
        for place, party in enumerate(federation.parties):
            columns = party.columns.clone()
            columns[~federation.held[:, place]] = 1e3
            parties.append(replace(party, columns=columns))
        labels = federation.labels.masked_fill(~federation.held[:, 0], 2)
        junk = replace(federation, parties=tuple(parties), labels=labels)
        options = {**OPTIONS, "engine": engine, "encoders": encoders}
        clean, dirty = (open_trainer(f, FedMVT(**UNSURE), **options).train() for f in (federation, junk))
        assert clean.fingerprint() == dirty.fingerprint()
        assert [r.digest for r in clean.ledger] == [r.digest for r in dirty.ledger]  # nor of any message

    @pytest.mark.parametrize("place", [0, 1])
    def test_what_a_party_alone_holds_does(self, place: int) -> None:
        federation = partial()
        assert federation.held is not None
        parties = list(federation.parties)
        columns = parties[place].columns.clone()
        columns[federation.held[:, place] & ~federation.held[:, 1 - place]] += 1.0
        parties[place] = replace(parties[place], columns=columns)
        other = replace(federation, parties=tuple(parties))
        one, two = (open_trainer(f, FedMVT(**UNSURE), **OPTIONS).train() for f in (federation, other))
        assert one.fingerprint() != two.fingerprint()

    @pytest.mark.parametrize("engine", ["loop", "stacked"])
    def test_a_party_says_zeros_about_what_it_does_not_hold_and_learns_nothing_there(self, engine: str) -> None:
        federation = partial()
        trainer = open_trainer(federation, FedMVT(**UNSURE), **{**OPTIONS, "engine": engine, "evaluate_every": 0})
        first, second = (e for _, e in zip(range(2), rounds_of(trainer), strict=False))
        assert federation.held is not None
        held = federation.held[first.request.queries[0].rows]
        uploaded: Tensor = first.collected.uploaded[0][0].values["h"]  # (2, B, d)
        slope = second.down.groups[0]["slope"]
        for place in (0, 1):
            lacking = ~held[:, place]
            assert lacking.any() and not uploaded[place, lacking].any() and not slope[place, lacking].any()
            assert uploaded[place, ~lacking].any() and slope[place, ~lacking].any()

    def test_scaling_is_by_the_rows_that_a_party_holds(self) -> None:
        """Slow truth: the mean of those rows, one by one."""
        federation = partial()
        trainer = open_trainer(federation, FedMVT(), **OPTIONS)
        cohort = trainer.engine.parties()[0].cohort
        for place, party in enumerate(federation.parties):
            assert party.held is not None
            mine = [party.columns[r] for r in federation.split.train.tolist() if party.held[r]]
            torch.testing.assert_close(cohort.scaling["shift"][place], sum(mine) / len(mine), atol=1e-12, rtol=0)

    @pytest.mark.parametrize("task", ["binary", "multilabel", "regression"])
    def test_other_tasks(self, task: str) -> None:
        """Targets of a regression are scaled by the labels that are known."""
        whole = small(widths=(5, 5), rows=80, task=task)
        federation = partial(whole)
        run = open_trainer(federation, FedMVT(), **OPTIONS).train()
        junk = replace(federation, labels=federation.labels.masked_fill(~federation.labelled[:, None], 1.0))  # type: ignore[index]
        assert open_trainer(junk, FedMVT(), **OPTIONS).train().fingerprint() == run.fingerprint()

    @pytest.mark.parametrize("mechanism", ["alibi", "randomised_response"])
    def test_protected_labels(self, mechanism: str) -> None:
        privacy = {"labels": {"mechanism": mechanism, "epsilon": 2.0}}
        federation = partial()
        one = open_trainer(federation, FedMVT(), privacy=privacy, **OPTIONS).train()
        junk = replace(federation, labels=federation.labels.masked_fill(~federation.labelled, 1))  # type: ignore[operator]
        other = open_trainer(junk, FedMVT(), privacy=privacy, **OPTIONS).train()
        assert one.fingerprint() == other.fingerprint()

    def test_rows_that_both_hold_but_without_a_label(self) -> None:
        known = torch.ones(WHOLE.rows, dtype=torch.bool)
        known[WHOLE.split.train[::2]] = False
        federation = partial(held=None, labelled=known)
        trainer = open_trainer(federation, FedMVT(**UNSURE), **OPTIONS)
        assert not trainer.coordinator.state["cache.holders"].any()
        assert torch.equal(trainer.coordinator.state["cache.labelled"], known)
        trainer.train()

    def test_who_holds_what(self) -> None:
        state = open_trainer(partial(), FedMVT(), **OPTIONS).coordinator.state
        train = WHOLE.split.train
        assert state["cache.holders"][train].tolist() == ([BOTH, FIRST, SECOND] * len(train))[: len(train)]
        three = small(widths=(5, 5, 5), rows=80)
        held = torch.ones(80, 3, dtype=torch.bool)
        held[three.split.train[3:6], :2] = False
        columns = {p.name: p.columns for p in three.parties}
        whole = Federation.from_arrays(columns, three.labels, task=three.task, split=three.split, held=held)
        two = whole.only(three.names[:2])
        holders = open_trainer(two, FedMVT(), **OPTIONS).coordinator.state["cache.holders"]
        assert (holders == NOBODY).nonzero().squeeze(1).tolist() == sorted(three.split.train[3:6].tolist())
        assert len(two.split.train) == len(three.split.train) - 3


class TestRuns:
    def test_from_tables_to_predictions(self, tmp_path: Path) -> None:
        """Trained, saved, interrupted, resumed, loaded, predicted."""
        federation, method = joined(), FedMVT(threshold=0.6)
        options = {**OPTIONS, "rounds": 30, "checkpoint_every": 3}
        whole = fit(federation, method, out=tmp_path / "whole", **options)

        def interrupt(progress: Any) -> None:
            if progress.round == 10:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(federation, method, out=tmp_path / "cut", watch=interrupt, **options)
        again = resume(tmp_path / "cut", joined())
        assert again.fingerprint() == whole.fingerprint()
        loaded = Run.load(tmp_path / "cut")
        new = federation.select(torch.arange(18, 42))
        assert (loaded.predict(new) == whole.predict(new)).all()
        truth = np.asarray(federation.task.names)[federation.labels[18:42, 0].int().numpy()]
        assert (whole.predict(new) == truth).mean() > 0.8
        assert not any("holders" in name or "labelled" in name for name in loaded.state)  # the model knows no rows
        assert loaded.about["partial"]["held"].keys() == {"bank", "telco"}

    def test_resuming_with_other_holders_is_refused(self, tmp_path: Path) -> None:
        federation = partial()
        fit(federation, FedMVT(), out=tmp_path / "run", **OPTIONS)
        row = federation.split.train[1]  # of the first party alone
        parties = tuple(replace(p, held=p.held.clone().index_fill(0, row, True)) for p in federation.parties)  # type: ignore[union-attr]
        with pytest.raises(RunError, match="other data"):
            resume(tmp_path / "run", replace(federation, parties=parties))

    def test_the_estimate_counts_every_row(self) -> None:
        tables = {
            "method": {"name": "fedmvt"},
            "model": {"hidden": 6, "embedding": 4},
            "training": {"rounds": 6, "schedule": {"batch": 16}},
        }
        job, federation = read_job(tables), partial()
        found, sent = estimate(job, federation).traffic, job.fit(federation).traffic
        assert found.up == sent.up == job.fit(WHOLE).traffic.up

    def test_a_configuration_file_can_ask_for_it(self, tmp_path: Path) -> None:
        for name, frame in zip(("bank", "telco"), frames(), strict=True):
            frame.to_csv(tmp_path / f"{name}.csv", index=False)
        data = {
            "tables": {name: str(tmp_path / f"{name}.csv") for name in ("bank", "telco")},
            "labels": "left",
            "id": "customer",
        }
        assert fingerprint(load_data({**data, "keep": "partial"})) == fingerprint(joined())
        with pytest.warns(RowsLeftOut):
            assert not load_data(data).partial


class TestRefusals:
    @pytest.mark.parametrize("name", sorted(set(METHODS) - {"fedmvt"}))
    def test_every_other_method_refuses_before_round_one(self, name: str, tmp_path: Path) -> None:
        sentence = rf"'{name}' needs rows that every party holds .* 32 of 80 rows .*Federation\.matched\(\).* fedmvt"
        if getattr(METHODS[name], "lacking", False):
            sentence = rf"'{name}' needs rows that have a label, and 16 of 80 rows have none: .*federation\.labelled"
        with pytest.raises(ConfigError, match=sentence):
            fit(partial(), make_method(name), out=tmp_path / "run", **OPTIONS)
        assert not (tmp_path / "run").exists()

    def test_unknown_labels_alone_are_refused_too(self) -> None:
        known = torch.ones(WHOLE.rows, dtype=torch.bool)
        known[WHOLE.split.train[0]] = False
        with pytest.raises(ConfigError, match="1 of 80 rows"):
            fit(partial(held=None, labelled=known), make_method("vimadmm"), **OPTIONS)

    def test_no_simulation_on_top(self) -> None:
        with pytest.raises(ConfigError, match=r"matched = 0\.5 simulates .* has real ones"):
            fit(partial(), FedMVT(matched=0.5), **OPTIONS)

    def test_an_unknown_label_cannot_be_read(self) -> None:
        trainer = open_trainer(partial(), FedMVT(), **OPTIONS)
        labels, unknown = trainer.coordinator.labels, WHOLE.split.train[2:3]
        assert isinstance(labels, KnownLabels)
        for ask in (labels.compact, labels.held_out):
            with pytest.raises(GateError, match=f"label of row {int(unknown)} is not known"):
                ask(unknown)
        with pytest.raises(GateError, match="is not known"):
            labels.targets(trainer.coordinator.schedule.plan(1), torch.zeros(16, 3))
        assert len(labels.compact(WHOLE.split.train[:2])) == 2
