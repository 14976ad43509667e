"""Training on rows that some parties lack: their scores are absent, and nobody learns from what it does not hold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from colonnade import Federation, fit
from colonnade.errors import ConfigError, DataError, RowsLeftOut
from colonnade.methods import LocalOnly, OneMessage, make_method
from colonnade.models.encoders import ModelSettings
from colonnade.models.stacking import fit_stack
from colonnade.testing.methods import assert_engines_end_alike, assert_resumes
from tests.federations import small
from tests.trainers import open_trainer

TAKES = ("assisted_boosting", "fdml", "local_only", "one_message", "vimadmm", "vimadmm_j")
TINY = ModelSettings(hidden=6, embedding=4)
OPTIONS: dict[str, Any] = {"rounds": 5, "evaluate_every": 1, "model": TINY, "dtype": "float64"}
QUICK: dict[str, Any] = {"local_steps": 2}


def lacking(whole: Federation | None = None, filler: float = 0.0) -> Federation:
    """Party 1 lacks every third training row and party 0 every fifth; what stands there is a filler."""
    whole = small((4, 4, 3), rows=100) if whole is None else whole
    held = torch.ones(whole.rows, len(whole.parties), dtype=torch.bool)
    held[whole.split.train[::3], 1] = False
    held[whole.split.train[1::5], 0] = False
    columns = {}
    for place, party in enumerate(whole.parties):
        columns[party.name] = party.columns.clone()
        columns[party.name][~held[:, place]] = filler
    return Federation.from_arrays(columns, whole.labels, task=whole.task, split=whole.split, held=held)


@pytest.mark.parametrize("name", TAKES)
def test_what_a_party_does_not_hold_changes_nothing(name: str) -> None:
    """Other fillers and other labels of what others hold alone: nothing of the former is read."""
    method = make_method(name, QUICK)
    one, other = (open_trainer(lacking(filler=filler), method, **OPTIONS).train() for filler in (0.0, 1e3))
    assert one.fingerprint() == other.fingerprint()


@pytest.mark.parametrize("name", TAKES)
@pytest.mark.parametrize("model", ["network", "ridge"])
def test_a_party_alone_learns_only_from_what_it_holds(name: str, model: str) -> None:
    """Its model is the same whatever the labels of the rows are that it lacks, where nobody else tells it of them."""
    if model == "ridge" and name in ("fdml", "local_only"):
        pytest.skip("needs gradients")
    if model == "network" and name == "vimadmm":
        pytest.skip("heads are solved together, and the other party's tells of the frequency of labels")
    pair = small((4, 4), rows=100, task="binary")
    held = torch.ones(pair.rows, 1, dtype=torch.bool)
    gone = pair.split.train[::3]
    held[gone] = False
    both = torch.cat([torch.ones(100, 1, dtype=torch.bool), held], dim=1)
    silent = {"party_0": torch.zeros(100, 4), "party_1": pair.parties[1].columns}  # the other party knows nothing
    labels = pair.labels.clone()
    labels[gone] = labels[gone].flip(0)  # as many yes as before, which the others may tell
    assert int((labels != pair.labels).sum()) > 5
    runs = []
    for y in (pair.labels, labels):
        federation = Federation.from_arrays(silent, y, task=pair.task, split=pair.split, held=both)
        options = {**OPTIONS, "model": {"encoder": "ridge"} if model == "ridge" else TINY, "rounds": 1}
        runs.append(fit(federation, make_method(name, QUICK), batch=100, **options))
    first, second = (run.models["party_1"] for run in runs)
    assert first.keys() == second.keys()
    for key, value in first.items():
        torch.testing.assert_close(value, second[key], rtol=0, atol=1e-9, msg=key)


@pytest.mark.parametrize("name", TAKES)
def test_engines_agree_and_runs_resume(name: str, tmp_path: Path) -> None:
    method = make_method(name, QUICK)
    if name != "one_message":
        assert_engines_end_alike(lacking(), method, schedule={"batch": 20}, model=TINY, rounds=5)
    options = {"rounds": 7, "evaluate_every": 2, "model": TINY, "checkpoint_every": 3, "schedule": {"batch": 20}}
    assert_resumes(lacking(), method, tmp_path, **options)


def test_one_message_stacks_every_set_on_the_rows_that_its_parties_hold() -> None:
    """Ridge regressions as local models; stacks against ones of the scores that were kept."""
    federation = lacking(small((4, 4, 3), rows=200, task="binary"))
    trainer = open_trainer(federation, OneMessage(), model=ModelSettings(encoder="ridge"), rounds=1, dtype="float64")
    run = trainer.train()
    state, held, train = trainer.coordinator.state, federation.held, federation.split.train
    assert held is not None
    order = [federation.names.index(p) for g in trainer.coordinator.schema.groups for p in g.parties]
    for number in range(1, 8):
        chosen = [k for k in range(3) if number >> k & 1]
        rows = train[held[train][:, [order[k] for k in chosen]].all(dim=1)].sort().values
        features = state["cache.scores"][chosen][:, rows].transpose(0, 1).flatten(1)
        slow = fit_stack(federation.task, features, federation.labels[rows])
        weight = run.state["stack.weight"][number - 1].view(3, 1, 1)[chosen].flatten()
        torch.testing.assert_close(weight, slow.weight.flatten(), rtol=0, atol=1e-8)
        sure = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000).fit(features.numpy(), federation.labels[rows, 0])
        np.testing.assert_allclose(weight.numpy(), sure.coef_[0], rtol=1e-3, atol=1e-4)
    lacks = ~held[train].all(dim=1)
    assert not bool(state["cache.seen"][:, train[lacks]].all(dim=0).any())


def test_more_rows_are_worth_something() -> None:
    """Most training rows are known to one party only: dropping them leaves few, with noisy labels."""
    whole = small((12, 3), rows=3000, task="binary", seed=4)
    flips = torch.rand(whole.rows, 1, generator=torch.Generator().manual_seed(0)) < 0.25
    held = torch.ones(whole.rows, 2, dtype=torch.bool)
    held[whole.split.train[120:], 1] = False
    columns, labels = {party.name: party.columns for party in whole.parties}, whole.labels.bool() ^ flips
    federation = Federation.from_arrays(columns, labels.long(), task="binary", split=whole.split, held=held)
    for name in ("assisted_boosting", "one_message", "vimadmm_j"):
        options: dict[str, Any] = {"model": {"encoder": "ridge"}, "rounds": 20, "batch": 2000}
        every, dropped = fit(federation, name, **options), fit(federation.matched(), name, **options)
        assert (every.score or 0) > (dropped.score or 0) + 0.005
        assert every.about["partial"]["complete"] == 120


def test_rows_that_judge_increments_do_not_choose_how_they_are_weighed() -> None:
    """Other labels of the judging rows change no weight, as they change no step size."""
    federation = lacking(small((4, 4, 3), rows=200, task="binary"))
    judging = federation.split.validation[1::2]
    labels = federation.labels.clone()
    labels[judging] = 1 - labels[judging]
    options: dict[str, Any] = {"model": ModelSettings(encoder="ridge"), "rounds": 2, "dtype": "float64"}
    weights = []
    for one in (federation, replace(federation, labels=labels)):
        trainer = open_trainer(one, make_method("assisted_boosting", {}), **options)
        trainer.train()
        weights.append(trainer.coordinator.state["whole.weights"])
    assert torch.equal(*weights)


class TestTables:
    def test_labelled_rows_of_any_table_stay(self) -> None:
        ids = [f"c{number}" for number in range(40)]
        bank = pd.DataFrame({"customer": ids[:30], "income": range(30), "left": ["no", "yes"] * 14 + [None, None]})
        telco = pd.DataFrame({"customer": ids[10:], "minutes": range(30)})
        tables = {"bank": bank, "telco": telco}
        with pytest.warns(RowsLeftOut, match="2 of 30"):
            federation = Federation.from_tables(tables, labels="left", id="customer", keep="labelled")
        assert list(federation.ids) == ids[:28]
        assert federation.labelled is None and federation.held is not None
        assert federation.held[:, 0].all() and federation.held[:, 1].tolist() == [n >= 10 for n in range(28)]
        run = fit(federation, "vimadmm_j", rounds=3)
        assert run.about["partial"]["held"]["bank"] == run.about["partial"]["held"]["telco"] + 10
        with pytest.raises(ConfigError, match="keep = 'labelled' needs an id"):
            Federation.from_tables(tables, labels="left", keep="labelled")
        with pytest.raises(ConfigError, match="needed 'all' or 'labelled' or 'partial'"):
            Federation.from_tables(tables, labels="left", id="customer", keep="some")  # type: ignore[arg-type]

    def test_rows_of_the_federation_are_predicted_by_who_holds_them(self) -> None:
        federation = lacking()
        run = fit(federation, "vimadmm_j", **OPTIONS)
        rows = federation.select(federation.split.train[:10])
        with pytest.raises(DataError, match="party_0, party_1 do not hold all of these rows"):
            run.logits(rows)
        found = run.model.prediction(rows, absent="leave-out")
        held = federation.held
        assert held is not None
        for row, lack in zip(federation.split.train[:10].tolist(), found.without, strict=True):
            assert lack == tuple(n for n, mine in zip(federation.names, held[row].tolist(), strict=True) if not mine)


class TestRefusals:
    def test_heads_of_several_layers_at_the_coordinator(self) -> None:
        model = {"hidden": 6, "embedding": 4, "head": {"layers": 2}}
        with pytest.raises(
            ConfigError, match="vimadmm leaves a party that lacks a row out of its sum only with linear"
        ):
            fit(lacking(), "vimadmm", rounds=2, model=model)

    def test_one_message_without_a_row_that_all_hold(self) -> None:
        whole = small((4, 4), rows=100)
        held = torch.ones(100, 2, dtype=torch.bool)
        held[whole.split.train[::2], 0], held[whole.split.train[1::2], 1] = False, False
        columns = {party.name: party.columns for party in whole.parties}
        federation = Federation.from_arrays(columns, whole.labels, task=whole.task, split=whole.split, held=held)
        with pytest.raises(ConfigError, match="no training row is one"):
            fit(federation, OneMessage())

    def test_all_others(self) -> None:
        with pytest.raises(ConfigError, match=r"'split_learning' needs rows that every party holds.*one_message"):
            fit(lacking(), "split_learning", rounds=2)
        assert fit(replace(lacking().matched()), LocalOnly(), rounds=1).score is not None


@pytest.mark.parametrize("name", ["assisted_boosting", "vimadmm_j", "fdml"])
def test_a_secure_sum_of_one_party_is_refused(name: str) -> None:
    """Of a row that only one party holds, the sum would be what that party said."""
    with pytest.raises(ConfigError, match="of a row that only one party holds, the sum is what that party said"):
        open_trainer(lacking(), make_method(name, QUICK), privacy={"secure_sum": {"use": True}}, **OPTIONS)
