"""Settings of single parties: from Python, from TOML, between organisations; local models for some; tokens."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from colonnade.checkpoint import fingerprint
from colonnade.config import build
from colonnade.data.corrupt import add_noise
from colonnade.deploy.settings import read_coordinator, read_party
from colonnade.errors import ConfigError, DataError, ModelError
from colonnade.explain.retrain import Again
from colonnade.explain.settings import ExplainSettings
from colonnade.federation import Federation, Party
from colonnade.fit import fit, resume
from colonnade.job import read_job
from colonnade.methods import VIMADMM, VIMADMMJ, SplitLearning
from colonnade.model import Model
from colonnade.models.encoders import ModelSettings, PartySettings
from colonnade.models.ridge import RidgeSettings
from colonnade.part import Part
from colonnade.report.tables import settings_table
from colonnade.run import Run
from tests.federations import small
from tests.trainers import ENGINES, TINY, open_trainer, record

PER_PARTY = {"hidden": 6, "embedding": 4, "party_1": {"hidden": 3, "encoder": "linear"}, "party_2": {"hidden": 9}}
QUICK: dict[str, Any] = {"rounds": 3, "dtype": "float64", "evaluate_every": 1}


def shapes(run: Run, party: str) -> dict[str, tuple[int, ...]]:
    return {k.removeprefix("parameter."): tuple(v.shape) for k, v in run.models[party].items() if "parameter" in k}


class TestSettings:
    def test_a_table_inside_changes_only_what_it_says(self) -> None:
        model = build(ModelSettings, {"ridge": {"kappa": 0.5}, "telco": {"ridge": {"beta": 0.1}}}, "model")
        again = build(ModelSettings, json.loads(json.dumps(model.model_dump())), "model")
        assert again == model
        for settings in (model, again):
            assert settings.of("telco").ridge == RidgeSettings(beta=0.1, kappa=0.5)
            assert settings.of("bank").ridge == RidgeSettings(kappa=0.5)

    def test_what_is_stored_of_a_party_is_what_was_said(self) -> None:
        assert build(ModelSettings, PER_PARTY, "model").model_dump()["party_2"] == {"hidden": 9}
        assert ModelSettings(telco=PartySettings(dropout=0.1)).model_dump()["telco"] == {"dropout": 0.1}

    def test_settings_without_parties_are_stored_as_ever(self) -> None:
        assert set(ModelSettings().model_dump()) == {
            "encoder", "hidden", "embedding", "dropout", "stem", "scale_columns", "ridge", "trees", "head",
        }  # fmt: skip

    @pytest.mark.parametrize(
        ("given", "says"),
        [
            ({"hiden": 5}, "unknown key 'hiden' in [model]; did you mean 'hidden'?"),
            ({"telco": 5}, "unknown key 'telco' in [model]"),
            ({"telco": {"hiden": 5}}, "unknown key 'telco.hiden' in [model]; did you mean 'hidden'?"),
            ({"telco": {"head": {"layers": 2}}}, "heads have one shape for all parties: set head in the [model]"),
            ({"telco": {"hiden": 2}}, "unknown key 'telco.hiden' in [model]; did you mean 'hidden'?"),
            ({"telco": {"hidden": 0}}, "[model] telco.hidden = 0 is not valid"),
        ],
    )
    def test_one_sentence_about(self, given: dict[str, Any], says: str) -> None:
        with pytest.raises(ConfigError) as caught:
            build(ModelSettings, given, "model")
        assert says in str(caught.value)

    @pytest.mark.parametrize(("name", "meant"), [("party_9", "party_"), ("hed", "head"), ("zzz", "parties: party_0")])
    def test_a_name_of_nobody_is_refused_with_a_suggestion(self, name: str, meant: str) -> None:
        with pytest.raises(ConfigError) as caught:
            fit(small(), VIMADMMJ(), model={name: {"hidden": 5}}, rounds=1)
        assert f"[model.{name}]: {name!r} is neither a setting of [model] nor a party" in str(caught.value)
        assert meant in str(caught.value).split("; ")[1]


class TestTrainings:
    @pytest.mark.parametrize("method", [VIMADMMJ(local_steps=2), SplitLearning()], ids=lambda m: m.name)
    def test_parties_have_the_networks_they_were_given(self, method: Any) -> None:
        run = fit(small(), method, model=PER_PARTY, **QUICK)
        assert shapes(run, "party_0") == {"1.weight": (6, 5), "1.bias": (6,), "3.weight": (4, 6), "3.bias": (4,)}
        assert shapes(run, "party_1") == {"1.weight": (4, 5), "1.bias": (4,)}
        assert shapes(run, "party_2")["1.weight"] == (9, 5)
        assert shapes(run, "party_3") == shapes(run, "party_0")

    def test_they_are_recorded_and_read_again(self, tmp_path: Path) -> None:
        federation, columns = small(), small().select(small().split.test)
        run = fit(federation, VIMADMM(local_steps=2), model=PER_PARTY, out=tmp_path / "run", **QUICK)
        stored = json.loads((tmp_path / "run" / "run.json").read_text())
        assert stored["model"]["party_1"] == {"encoder": "linear", "hidden": 3}
        loaded = Run.load(tmp_path / "run")
        assert torch.equal(loaded.logits(columns), run.logits(columns))
        rows = {row[0]: row[1:] for row in settings_table(stored).rows}
        assert rows["model.party_2.hidden"] == ("9*", "at party_2, in place of model.hidden")
        assert rows["model.hidden"][0] == "6*"

    def test_a_run_on_less_parties_trains_again(self) -> None:
        """Settings and models of parties that are left out are no error there."""
        federation = small()
        encoders = {"party_0": nn.Linear(5, 4)}
        run = fit(federation, VIMADMMJ(local_steps=1), model=PER_PARTY, encoders=encoders, **QUICK)
        again = Again(run).train(federation.only(["party_2", "party_3"]), "without")
        assert shapes(again, "party_2")["1.weight"] == (9, 5)

    def test_a_pooled_reference_takes_the_common_settings(self) -> None:
        run = fit(small(), "centralized", model=PER_PARTY, rounds=1)
        assert shapes(run, "everyone")["1.weight"] == (6, 20)
        with pytest.raises(ConfigError, match="encoders has a model for 'party_0', who is not a party"):
            fit(small(), "centralized", encoders={"party_0": nn.Linear(5, 4)}, rounds=1)

    def test_a_network_for_some_parties_only(self) -> None:
        run = fit(small(), VIMADMMJ(local_steps=1), model=TINY, encoders={"party_1": nn.Linear(5, 2)}, **QUICK)
        assert shapes(run, "party_1") == {"weight": (2, 5), "bias": (2,)}
        assert shapes(run, "party_0")["1.weight"] == (6, 5)

        def some(party: str, shape: tuple[int, ...]) -> nn.Module | None:
            return nn.Linear(5, 2) if party == "party_1" else None

        same = fit(small(), VIMADMMJ(local_steps=1), model=TINY, encoders=some, **QUICK)
        assert shapes(same, "party_1") == shapes(run, "party_1")
        assert shapes(same, "party_0") == shapes(run, "party_0")


class TestScaling:
    @pytest.mark.parametrize("engine", ENGINES)
    def test_of_one_party(self, engine: str) -> None:
        model = build(ModelSettings, {"hidden": 6, "embedding": 4, "party_1": {"scale_columns": "never"}}, "model")
        federation = small()
        trainer = open_trainer(federation, VIMADMMJ(local_steps=1), model=model, engine=engine, rounds=1)
        by_party = {name: (s.cohort, k) for s in trainer.engine.parties() for k, name in enumerate(s.cohort.names)}
        for party in federation.parties:
            cohort, k = by_party[party.name]
            raw = torch.equal(cohort.columns[k], party.columns.double())
            assert raw == (party.name == "party_1") == (not cohort.scaling)
        run = trainer.train()
        assert not any(name.startswith("scaling") for name in run.models["party_1"])
        assert any(name.startswith("scaling") for name in run.models["party_0"])
        seen = run.logits(federation.select(federation.split.test))
        assert torch.isfinite(seen).all()

    def test_a_prediction_scales_as_the_training_did(self) -> None:
        """ "always" at one party of data that is scaled already."""
        model = build(ModelSettings, {"hidden": 6, "embedding": 4, "party_1": {"scale_columns": "always"}}, "model")
        federation = Federation.from_arrays(
            {p.name: 3 * p.columns + 1 for p in small().parties}, small().labels.numpy(), task="multiclass",
            split=small().split, scaled=True,
        )  # fmt: skip
        recorded = record(federation, VIMADMMJ(local_steps=2), model=model, rounds=2, evaluate_every=1)
        seen = recorded.run.logits(federation.select(federation.split.test))
        torch.testing.assert_close(seen, recorded.logits[-1], rtol=0, atol=1e-12)


class TestToml:
    def test_a_table_named_after_a_party(self) -> None:
        job = read_job({"data": {"set": "digits", "parties": 2}, "model": {"hidden": 8, "party_2": {"hidden": 4}}})
        assert job.model.of("party_2").hidden == 4
        job.federation()

    def test_a_table_of_nobody_is_refused_before_anything_trains(self) -> None:
        job = read_job({"data": {"set": "digits", "parties": 2}, "model": {"party_7": {"hidden": 4}}})
        with pytest.raises(ConfigError, match=r"\[model.party_7\].*did you mean 'party_"):
            job.federation()

    def test_files_of_organisations(self, tmp_path: Path) -> None:
        party, coordinator = tmp_path / "party.toml", tmp_path / "coordinator.toml"
        connection = '[connection]\nserver = "tls://x:4222"\ncertificate = "c"\nkey = "k"\nauthority = "a"\n'
        party.write_text(
            '[party]\nname = "telco"\nrun = "r"\ntable = "t.csv"\nid = "i"\n'
            + connection
            + '[model]\nencoder = "ridge"\n'
        )
        assert read_party(party).model == PartySettings(encoder="ridge")
        with pytest.raises(ConfigError, match=r"unknown key 'encodr' in \[model\]; did you mean 'encoder'"):
            read_party(party, ["model.encodr=ridge"])
        with pytest.raises(
            ConfigError, match=r"\[model\] is not valid: heads have one shape for all parties: set head"
        ):
            read_party(party, ["model.head={ layers = 2 }"])
        coordinator.write_text(
            '[coordinator]\nrun = "r"\nparties = ["bank", "telco"]\ntable = "t.csv"\nid = "i"\nlabel = "l"\n'
            + connection
            + "[model.telco]\nhidden = 5\n"
        )
        assert read_coordinator(coordinator).model.of("telco").hidden == 5
        with pytest.raises(ConfigError, match=r"\[model.tleco\].*did you mean 'telco'"):
            read_coordinator(coordinator, ["model.tleco.hidden=5"])


class Words(nn.Module):
    """Mean of word vectors; `order` says which layer is registered first."""

    def __init__(self, words: int = 7, first: bool = True) -> None:
        super().__init__()
        if not first:
            self.out = nn.Linear(3, 4)
        self.table = nn.Embedding(words, 3)
        if first:
            self.out = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.out(self.table(x).mean(dim=1)))


def texts(rows: int = 90) -> Federation:
    """One party has words (0..6, five of them per row), the other numbers; the label needs both."""
    rng = np.random.default_rng(5)
    words, numbers = rng.integers(0, 7, size=(rows, 5)), rng.normal(size=(rows, 4))
    labels = ((words == 3).sum(axis=1) + numbers[:, 0] > 1).astype(int)
    return Federation.from_arrays({"texts": words, "bank": numbers}, labels, task="binary")


class TestTokens:
    @pytest.mark.parametrize("engine", ENGINES)
    @pytest.mark.parametrize("method", [VIMADMM(local_steps=2), VIMADMMJ(local_steps=2)], ids=lambda m: m.name)
    def test_an_embedding_reads_them_as_they_are(self, method: Any, engine: str, tmp_path: Path) -> None:
        federation, own = texts(), {"texts": Words()}
        run = fit(federation, method, model=TINY, encoders=own, engine=engine, out=tmp_path / "run", **QUICK)
        assert not any(name.startswith("scaling") for name in run.models["texts"])
        assert any(name.startswith("scaling") for name in run.models["bank"])
        rows = federation.split.test
        given = {"texts": federation.parties[0].columns[rows].numpy(), "bank": federation.parties[1].columns[rows]}
        loaded = Run.load(tmp_path / "run", encoders=own)
        assert torch.equal(loaded.logits(given), run.logits(federation.select(rows)))
        run.model.save(tmp_path / "model")
        assert torch.equal(Model.load(tmp_path / "model", encoders=own).logits(given), run.logits(given))
        run.model.part("texts").save(tmp_path / "part")
        part = Part.load(tmp_path / "part", Words())
        for name, value in run.model.part("texts").predict(given["texts"]).items():
            assert torch.equal(part.predict(given["texts"])[name], value)
        with pytest.raises(DataError, match=r"'texts'.*whole numbers \(tokens\).*fractions"):
            loaded.logits({**given, "texts": given["texts"] + 0.5})

    @pytest.mark.parametrize("engine", ENGINES)
    @pytest.mark.parametrize("token", [7, -1])
    def test_one_that_the_network_has_no_vector_for_is_refused_by_party_and_column(
        self, token: int, engine: str
    ) -> None:
        federation, own = texts(), {"texts": Words()}
        run = fit(federation, VIMADMM(local_steps=1), model=TINY, encoders=own, engine=engine, rounds=1)
        bad = federation.parties[0].columns.clone()
        bad[4, 2] = token
        told = rf"party 'texts', column 2 \(counted from 0\): its network cannot read the token {token};"
        before = len(run.ledger)
        with pytest.raises(DataError, match=told):
            run.logits({"texts": bad[:9].numpy(), "bank": federation.parties[1].columns[:9]})
        assert len(run.ledger) == before
        other = replace(federation, parties=(Party("texts", bad), federation.parties[1]))
        with pytest.raises(DataError, match=told):
            fit(other, VIMADMM(local_steps=1), model=TINY, encoders=own, engine=engine, rounds=1)

    def test_each_embedding_has_a_size_of_its_own(self) -> None:
        """A column may have more tokens than the embedding of another one."""

        class Two(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.small, self.large = nn.Embedding(2, 3), nn.Embedding(50, 3)

            def forward(self, x: Tensor) -> Tensor:
                return self.small(x[:, 0]) + self.large(x[:, 1])

        rng = np.random.default_rng(0)
        words = np.stack([rng.integers(0, 2, size=60), rng.integers(0, 50, size=60)], axis=1)
        arrays = {"texts": words, "bank": rng.normal(size=(60, 2))}
        fit(Federation.from_arrays(arrays, words[:, 0], task="binary"), VIMADMM(local_steps=1), model=TINY,
            encoders={"texts": Two()}, rounds=1)  # fmt: skip
        words[3, 0] = 2
        with pytest.raises(DataError, match=r"column 0 .*the token 2"):
            fit(Federation.from_arrays(arrays, words[:, 1] % 2, task="binary"), VIMADMM(), model=TINY,
                encoders={"texts": Two()}, rounds=1)  # fmt: skip

    def test_the_network_sees_int64(self) -> None:
        seen: list[torch.dtype] = []

        class Watching(Words):
            def forward(self, x: Tensor) -> Tensor:
                seen.append(x.dtype)
                return super().forward(x)

        trainer = open_trainer(texts(), VIMADMM(local_steps=1), model=TINY, encoders={"texts": Watching()}, rounds=1)
        side = next(s for s in trainer.engine.parties() if "texts" in s.cohort.names)
        assert torch.equal(side.cohort.columns[0], texts().parties[0].columns)
        trainer.train()
        assert set(seen) == {torch.int64}

    def test_a_resumed_run_is_the_uninterrupted_one(self, tmp_path: Path) -> None:
        options: dict[str, Any] = {"model": TINY, "encoders": {"texts": Words()}, "checkpoint_every": 1, **QUICK}
        wanted = fit(texts(), VIMADMM(local_steps=2), **options)

        def interrupt(now: Any) -> None:
            if now.round == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(texts(), VIMADMM(local_steps=2), out=tmp_path / "run", watch=interrupt, **options)
        assert resume(tmp_path / "run", texts(), encoders={"texts": Words()}).fingerprint() == wanted.fingerprint()

    def test_other_networks_read_whole_numbers_as_before(self) -> None:
        """Cast and standardised: the same numbers whether they came as integers or as floats."""
        whole = texts()
        floats = Federation.from_arrays(
            {p.name: p.columns.float().numpy() for p in whole.parties}, whole.labels.numpy(), task="binary",
            split=whole.split,
        )  # fmt: skip
        one, other = (fit(f, VIMADMM(local_steps=2), model=TINY, rounds=2) for f in (whole, floats))
        assert one.fingerprint() == other.fingerprint()

    def test_the_fingerprint_of_data_is_what_it_was(self) -> None:
        """A run that began when whole numbers were kept as float32 can still be resumed."""
        whole = texts()
        words, bank = whole.parties
        kept = (Party("texts", words.columns.to(torch.float32)), bank)
        assert fingerprint(whole) == fingerprint(replace(whole, parties=kept))
        large = (Party("texts", words.columns + 2**30), bank)
        larger = (Party("texts", words.columns + 2**30 + 1), bank)
        assert fingerprint(replace(whole, parties=large)) != fingerprint(replace(whole, parties=larger))

    def test_a_network_with_its_embedding_elsewhere_is_told_why_not(self) -> None:
        with pytest.raises(ModelError, match=r"'texts' cannot read.*begins with nn.Embedding only"):
            fit(texts(), VIMADMM(), model=TINY, encoders={"texts": Words(first=False)}, rounds=1)

    def test_noise_makes_numbers_of_them(self) -> None:
        noisy = add_noise(texts(), "texts", 0.1).parties[0].columns
        assert noisy.is_floating_point()
        assert 0 < float((noisy - texts().parties[0].columns).abs().mean()) < 0.2

    def test_an_explanation_says_that_no_noise_can_be_added(self) -> None:
        run = fit(texts(), VIMADMM(local_steps=2), model=TINY, encoders={"texts": Words()}, **QUICK)
        found = run.explain(texts(), **ExplainSettings(draws=1).model_dump())
        assert found.unavailable["noise"] == "the columns of 'texts' are tokens: no noise can be added to them"
        assert found.norm is not None
