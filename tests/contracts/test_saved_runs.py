"""A run that was saved, loaded or resumed is the run that was trained; for every method and engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from colonnade.errors import DataError, RunError
from colonnade.fit import fit, resume
from colonnade.methods import FDML
from colonnade.models.cohort import Cohort
from colonnade.privacy.sealed import Upload
from colonnade.run import Run
from colonnade.store import Store
from colonnade.testing.methods import PredictionContract, assert_resumes, interrupt
from tests.contracts.registry import CLOSELY, EVERY, Walking, covering, fitting, for_heads, make
from tests.contracts.test_engines_agree import SCENARIOS
from tests.federations import normed_encoder, small
from tests.mechanisms import Noise
from tests.trainers import ENGINES, TINY

OPTIONS: dict[str, Any] = {"rounds": 7, "evaluate_every": 2, "model": TINY, "checkpoint_every": 3}


@pytest.mark.parametrize(("name", "engine"), covering(ENGINES))
class TestPrediction(Walking, PredictionContract):
    @pytest.fixture(autouse=True)
    def in_one_engine(self, engine: str) -> None:
        self.engines = (engine,)


def test_the_contract_finds_a_method_whose_prediction_of_a_row_is_not_its_own() -> None:
    class Centred(FDML):
        """Uploads what a row is beside those that it is asked with."""

        def upload(self, cohort: Cohort, x: torch.Tensor, training: bool) -> Upload:
            return super().upload(cohort, x if training else x - x.mean(dim=1, keepdim=True), training)

    tried = type("Tried", (PredictionContract,), {"method": Centred})()
    with pytest.raises(AssertionError, match="not close"):
        tried.test_a_row_is_predicted_alike_alone()


# What is kept between rounds besides the weights: all of it at once, and each by itself in one method of each kind.
ALONE = ("participation and noise", "batch norm and dropout", "head dropout")
KEPT: dict[str, dict[str, Any]] = {name: SCENARIOS[name] for name in ALONE}
KEPT["noise and batch norm"] = {**KEPT["participation and noise"], **KEPT["batch norm and dropout"]}


@pytest.mark.parametrize(
    ("name", "scenario"),
    [*((name, "noise and batch norm") for name in EVERY), *((name, one) for name in CLOSELY for one in ALONE)],
)
def test_a_resumed_run_is_the_uninterrupted_one(name: str, scenario: str, tmp_path: Path) -> None:
    """Interrupted before and after the first checkpoint by an exception, which loses what was not committed."""
    options = {**OPTIONS, "schedule": {"batch": 20}, **KEPT[scenario]}
    extra = {k: options[k] for k in ("mechanism", "encoders") if k in options}
    own = {"noise": False} if "mechanism" in extra else {}  # it stands in the place of a method's own noise
    method = for_heads(name, options["model"].head, local_steps=2, **own)
    if getattr(method, "once", False):  # it asks all parties once
        options["schedule"] = {"batch": 20}
    assert_resumes(fitting(name, small()), method, tmp_path, **options)


class TestRefusals:
    def test_resuming_on_other_data(self, tmp_path: Path) -> None:
        fit(small(), make("vimadmm"), out=tmp_path / "run", **OPTIONS)
        with pytest.raises(RunError, match="other data"):
            resume(tmp_path / "run", small(seed=1))

    def test_resuming_without_the_networks(self, tmp_path: Path) -> None:
        fit(small(), make("vimadmm_j"), out=tmp_path / "run", encoders=normed_encoder, **OPTIONS)
        with pytest.raises(RunError, match="local models of your own"):
            resume(tmp_path / "run", small())
        with pytest.raises(RunError, match="local models of your own"):
            Run.load(tmp_path / "run")

    def test_a_folder_that_is_taken(self, tmp_path: Path) -> None:
        fit(small(), make("local_only"), out=tmp_path / "run", **OPTIONS)
        with pytest.raises(RunError, match="already holds a run"):
            fit(small(), make("local_only"), out=tmp_path / "run", **OPTIONS)

    def test_a_bad_setting_leaves_no_folder(self, tmp_path: Path) -> None:
        with pytest.raises(Exception, match="below 1/M"):
            fit(small(), make("vimadmm", damping=0.01), out=tmp_path / "run", **OPTIONS)
        assert not (tmp_path / "run").exists()

    def test_a_run_that_never_began_can_be_started_again(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        Store(tmp_path / "run" / "run.db").close()  # killed before the first word
        with pytest.raises(RunError, match="start it again"):
            resume(tmp_path / "run", small())
        assert fit(small(), make("local_only"), out=tmp_path / "run", **OPTIONS).path == tmp_path / "run"

    @pytest.mark.parametrize("file", ["model.safetensors", "ledger.jsonl", "run.json"])
    @pytest.mark.parametrize("damage", ["cut", "gone", "changed"])
    def test_damaged_files(self, file: str, damage: str, tmp_path: Path) -> None:
        fit(small(), make("vimadmm"), **OPTIONS).save(tmp_path)
        path = tmp_path / file
        content = path.read_bytes()
        if damage == "gone":
            path.unlink()
        elif damage == "cut":
            path.write_bytes(content[: len(content) // 2])
        else:
            path.write_bytes(content[:-40] + bytes(40))
        with pytest.raises(RunError):
            Run.load(tmp_path)

    def test_another_mechanism_at_resume_is_the_callers_word(self, tmp_path: Path) -> None:
        """A mechanism is an object, not a setting: whoever resumes must pass it again, and the ledger tells."""
        with pytest.raises(KeyboardInterrupt):
            fit(small(), make("vimadmm"), out=tmp_path / "run", mechanism=Noise(), watch=interrupt(4), **OPTIONS)
        run = resume(tmp_path / "run", small())
        used = {r.mechanism for r in run.ledger if r.owner != "coordinator"}
        assert used == {"none", Noise().event.name}

    def test_prediction_wants_every_party(self) -> None:
        run = fit(small(), make("vimadmm"), **OPTIONS)
        with pytest.raises(DataError, match="party_3"):
            run.logits({f"party_{k}": torch.zeros(2, 5) for k in range(3)})
        with pytest.raises(DataError, match="shape"):
            run.logits({f"party_{k}": torch.zeros(2, 4) for k in range(4)})
