"""Rows that some organisations lack, between organisations: trained on as in one process, and predicted row by row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from colonnade.align.exact import align_exactly
from colonnade.align.settings import AlignSettings
from colonnade.bench.organisations import Trial
from colonnade.data.beside import Beside
from colonnade.deploy.predict import Wish
from colonnade.deploy.tables import LabelTable, PartyTable
from colonnade.errors import ConfigError, Refused
from colonnade.federation import Federation
from colonnade.methods import make_method
from colonnade.models.encoders import ModelSettings
from colonnade.row_split import SplitSettings
from colonnade.testing.trainings import untimed
from tests.deploy.memory import Room
from tests.federations import small
from tests.methods.test_lacking_rows import lacking
from tests.trainers import open_trainer

DATA: dict[str, Any] = {"widths": (4, 4, 3), "rows": 100}
TRAINING: dict[str, Any] = {"rounds": 4, "dtype": "float64", "schedule": {"batch": 20}, "evaluate_every": 2}
TINY: dict[str, Any] = {"hidden": 6, "embedding": 4}


@dataclass(frozen=True)
class LackingTrial(Trial):
    """A federation in which two of three parties lack training rows."""

    def federation(self) -> Federation:
        return lacking(small(**self.data), filler=7.0)


def room(folder: Path, **trial: Any) -> Room:
    scene = Room.of(folder, ("party_0", "party_1", "party_2"), data=DATA, model=TINY, training=TRAINING, **trial)
    scene.trial = LackingTrial(**{name: getattr(scene.trial, name) for name in scene.trial.__dataclass_fields__})
    return scene


@pytest.mark.parametrize("name", ["assisted_boosting", "vimadmm_j", "one_message", "vimadmm"])
def test_organisations_compute_what_one_process_computes(name: str, tmp_path: Path) -> None:
    scene = room(tmp_path, method={"name": name, "local_steps": 2})
    whole, rows = scene.trial.federation(), torch.arange(30)
    held = whole.held
    assert held is not None
    presence = {party: held[:, place].numpy() for place, party in enumerate(whole.names)}
    with scene:
        run = scene.train()
        found = scene.predict(Wish(rows, presence, absent="leave-out"))
    options: dict[str, Any] = {"model": ModelSettings(**TINY), "engine": "loop", **TRAINING}
    loop = open_trainer(whole, make_method(name, {"local_steps": 2}), **options).train()
    assert untimed(run.history) == untimed(loop.history)
    assert run.about["partial"] == loop.about["partial"]
    wanted = loop.model.prediction(whole.select(rows), absent="leave-out")
    torch.testing.assert_close(found.logits, wanted.logits, rtol=0, atol=1e-9)
    assert found.without == wanted.without and found.left_out == ("party_0", "party_1")
    counted = {e.owner for e in loop.ledger if dict(e.notes).get("lacking_rows")}
    assert counted == {"party_0", "party_1"}  # what its zeros show stands in the ledger


def test_a_method_that_needs_all_rows_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    scene = room(tmp_path, method={"name": "fedbcd", "local_steps": 2})
    with (
        scene,
        pytest.raises(ConfigError, match=r"train_on = 'all': method 'fedbcd' needs rows that every party holds"),
    ):
        scene.train()


def test_a_party_refuses_a_secure_sum_over_rows_that_it_holds_alone(tmp_path: Path) -> None:
    """Also where the label holder does not mind."""
    scene = room(tmp_path, method={"name": "vimadmm_j", "local_steps": 2}, privacy={"secure_sum": {"use": True}})
    with scene, pytest.raises(ConfigError, match="of a row that only one party holds"):
        scene.train()


def test_a_party_that_was_not_told_of_lacking_rows_refuses(tmp_path: Path) -> None:
    """The proposal has to say so: a party that lacks rows of a usual run has another alignment."""

    @dataclass(frozen=True)
    class Silent(LackingTrial):
        def undertaking(self) -> Any:
            return replace(super().undertaking(), held=None)

    scene = room(tmp_path, method={"name": "vimadmm_j", "local_steps": 2})
    scene.trial = Silent(**{name: getattr(scene.trial, name) for name in scene.trial.__dataclass_fields__})
    with scene, pytest.raises(Refused, match="is about 100 rows; this party has"):
        scene.train()


class TestTables:
    def test_rows_that_some_hold_train_and_only_those_of_all_validate(self, tmp_path: Path) -> None:
        ids = [f"c{number:02}" for number in range(40)]
        rng = np.random.default_rng(0)
        labels = pd.DataFrame({"id": ids, "left": np.where(rng.random(40) < 0.5, "yes", "no")})
        bank = pd.DataFrame({"id": ids, "income": rng.normal(size=40)})
        telco = pd.DataFrame({"id": ids[::2], "minutes": rng.normal(size=20)})
        for name, frame in (("labels", labels), ("bank", bank), ("telco", telco)):
            frame.to_csv(tmp_path / f"{name}.csv", index=False)
        settings = AlignSettings(name="run", parties=("bank", "telco"), keep="partial")
        sides = align_exactly(settings, ids, {"bank": ids, "telco": ids[::2]})
        whole = sides["coordinator"]
        beside = Beside(None, SplitSettings(), None)
        read = LabelTable.read(
            tmp_path / "labels.csv", "id", "left", "binary", whole, beside, lacking=("bank", "telco")
        )
        assert len(read.labels) == 40 and read.held is not None
        assert read.held[:, 0].all() and int(read.held[:, 1].sum()) == 20
        assert bool(read.held[read.split.validation].all()) and bool(read.held[read.split.test].all())
        assert int((~read.held[read.split.train, 1]).sum()) == 20
        usual = LabelTable.read(tmp_path / "labels.csv", "id", "left", "binary", whole, beside)
        assert len(usual.labels) == 20 and usual.held is None
        table = PartyTable("telco", tmp_path / "telco.csv", "id", sides["telco"])
        columns = table.columns(read.split.train, 40)
        assert len(columns.values) == 40 and columns.held.tolist() == read.held[:, 1].tolist()
        assert not columns.values[~columns.held].any()
