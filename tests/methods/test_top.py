"""one_message with trees on top of its stack: against LightGBM by hand, between organisations, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from colonnade import Federation, Run, fit
from colonnade.bench.organisations import SeededNoise
from colonnade.deploy.party_setup import PartySetup
from colonnade.deploy.policy import Policy
from colonnade.deploy.predict import Wish
from colonnade.errors import ConfigError, GateError, PartiesLeftOut, Refused
from colonnade.extend import extend
from colonnade.fit import resume
from colonnade.methods import OneMessage
from colonnade.methods._guest import is_shown
from colonnade.models.local import tensor_text
from colonnade.models.schema import Group
from colonnade.models.top import grow_top, top_output
from colonnade.part import Part
from colonnade.randomness import key, stream
from colonnade.report.privacy import statement_of_run
from colonnade.tasks import TASKS
from colonnade.wire.messages import COORDINATOR
from tests.deploy.memory import Room, SmallTrial
from tests.federations import small
from tests.trainers import untimed

lightgbm = pytest.importorskip("lightgbm")
RIDGE: dict[str, Any] = {"encoder": "ridge"}
GUEST = "party_0"
METHOD = OneMessage(folds=3, guest=GUEST, stack="trees")
LINEAR = OneMessage(folds=3, guest=GUEST)
OBJECTIVES = {"binary": "binary", "multiclass": "multiclass", "multilabel": "binary", "count": "poisson"}


def together(task: str = "binary", widths: tuple[int, ...] = (3, 2, 2), rows: int = 1000) -> Federation:
    """Labels that follow another party's column where the guest's first one is positive, and nothing elsewhere."""
    whole = small(widths=widths, rows=rows, task=task, classes=1 if task == "regression" else 3)
    signal = whole.parties[1].columns[:, 0] * (whole.parties[0].columns[:, 0] > 0)
    value = 3 * signal + 0.3 * torch.from_numpy(np.random.default_rng(0).normal(size=rows))
    labels = {
        "binary": (value > 0)[:, None],
        "multiclass": torch.bucketize(value.float(), torch.tensor([-0.5, 0.5])),
        "regression": value[:, None],
        "count": value.clamp(min=0).round()[:, None],
        "multilabel": torch.stack([value > cut for cut in (-0.5, 0.0, 0.5)], dim=1),
    }
    return replace(whole, labels=labels[task].to(whole.labels.dtype))


def columns(whole: Federation, rows: Tensor) -> dict[str, Tensor]:
    return {party.name: party.columns[rows] for party in whole.parties}


def trees_of(run: Run) -> dict[str, int]:
    """Bytes of the trees of each set of parties."""
    return {name: len(value) for name, value in run.state.items() if name.startswith("top.")}


class TestAgainstLightGBM:
    @pytest.mark.parametrize("task", ["binary", "multiclass", "regression", "count", "multilabel"])
    def test_three_models_that_start_from_the_stack(self, task: str) -> None:
        """Everything by hand, from the scores and columns that the coordinator was sent."""
        whole = together(task, rows=600)
        run = fit(whole, METHOD, model=RIDGE, dtype="float64")
        scores, test = run.kept["cache.scores"], whole.split.test
        flat = np.concatenate([one.numpy() for one in scores], axis=1)
        x = np.concatenate([run.kept["cache.columns"].numpy(), flat], axis=1)
        margin = flat @ run.state["stack.weight"][-1].numpy() + run.state["stack.bias"][-1].numpy()
        wanted = margin + self.by_hand(task, whole, x, margin)
        found = run.logits(columns(whole, test)).numpy()
        if task in ("regression", "count"):  # on the scale of the labels
            wanted = wanted * self.back(run, "scale", 1.0) + self.back(run, "shift", 0.0)
        np.testing.assert_allclose(found, wanted[test.numpy()], rtol=0, atol=1e-9)
        linear = fit(whole, LINEAR, model=RIDGE, dtype="float64").logits(columns(whole, test)).numpy()
        assert np.abs(found - linear).max() > 0.1  # the trees say something

    @staticmethod
    def back(run: Run, what: str, otherwise: float) -> Any:
        return run.state[f"target.{what}"].numpy() if f"target.{what}" in run.state else otherwise

    @staticmethod
    def by_hand(task: str, whole: Federation, x: Any, margin: Any) -> Any:
        """(N, K) what the trees add."""
        train = np.sort(whole.split.train.numpy())
        y = whole.labels.numpy().astype(float)
        if task == "regression":
            y = (y - y[train].mean(axis=0)) / y[train].std(axis=0)
        elif task == "count":
            y = y / y[train].mean(axis=0)
        seed = key(key(0, "trees on top") % 2**31, "set", "7")
        folds = stream(seed, "folds of a top").permutation(len(train)) % 3
        added = np.zeros_like(margin)
        for output in range(1 if task == "multiclass" else margin.shape[1]):
            for fold in range(3):
                some, others = train[folds != fold], train[folds == fold]
                label, start = (y, margin) if task == "multiclass" else (y[:, output], margin[:, output])
                options = {
                    "objective": OBJECTIVES.get(task, "regression"), "boost_from_average": False,
                    "learning_rate": 0.05, "num_leaves": 15, "lambda_l2": 1.0, "min_data_in_leaf": 6,
                    "feature_fraction": 0.8, "feature_pre_filter": False, "deterministic": True,
                    "force_row_wise": True, "num_threads": 1, "verbosity": -1,
                    "seed": key(seed, "top", str(output), fold) % 2**31,
                    **({"num_class": 3} if task == "multiclass" else {}),
                }  # fmt: skip
                learning = lightgbm.Dataset(x[some], label[some], init_score=start[some])
                judging = lightgbm.Dataset(x[others], label[others], init_score=start[others], reference=learning)
                stop = [lightgbm.early_stopping(30, verbose=False)]
                grown = lightgbm.train(options, learning, 600, valid_sets=[judging], callbacks=stop)
                told = grown.predict(x, raw_score=True)
                at = slice(None) if task == "multiclass" else slice(output, output + 1)
                added[:, at] += told.reshape(len(x), -1) / 3
        return added

    def test_what_no_sum_can_say_is_said(self) -> None:
        whole = together()
        trees, linear = (fit(whole, method, model=RIDGE).score for method in (METHOD, LINEAR))
        assert trees is not None
        assert linear is not None
        assert trees > linear + 0.05

    def test_where_there_is_nothing_to_say_the_stack_stays(self) -> None:
        """Labels that are a sum of the parties' terms, and too few rows to see anything."""
        whole = small(widths=(3, 2), rows=200, task="binary")
        whole = replace(
            whole, labels=torch.from_numpy(np.random.default_rng(1).integers(0, 2, (200, 1))).to(whole.labels)
        )
        run = fit(whole, METHOD, model=RIDGE)
        assert trees_of(run) == {"top.3": 0}
        rows = columns(whole, whole.split.test)
        assert torch.equal(run.logits(rows), fit(whole, LINEAR, model=RIDGE).logits(rows))

    def test_rows_that_count_nothing_teach_nothing(self) -> None:
        drawn = np.random.default_rng(0)
        x = torch.from_numpy(drawn.normal(size=(600, 2)))
        y = (x[:, :1] * x[:, 1:] > 0).double()
        task, margin = TASKS["binary"](1), torch.zeros(600, 1).double()
        counts = torch.ones(600).double()
        counts[300:] = 1e-9
        assert grow_top(task, x, margin, y, None, 0)
        half = y.clone()
        half[300:] = 1 - half[300:]
        wrong, right = grow_top(task, x, margin, half, None, 0), grow_top(task, x, margin, half, counts, 0)
        agree = [float(((top_output(text, x, 1) > 0) == (y > 0)).double().mean()) for text in (wrong, right)]
        assert agree[1] > 0.9
        assert agree[1] > agree[0] + 0.2

    def test_columns_of_one_value_and_a_handful_of_rows(self) -> None:
        task = TASKS["binary"](1)
        ones, y = torch.ones(90, 2), (torch.arange(90) % 2)[:, None].double()
        assert grow_top(task, ones, torch.zeros(90, 1), y, None, 0) == ""
        assert grow_top(task, ones[:5], torch.zeros(5, 1), y[:5], None, 0) == ""
        assert torch.equal(top_output("", ones, 2), torch.zeros(90, 2).double())


class TestMessages:
    @pytest.mark.parametrize("engine", ["loop", "stacked"])
    def test_columns_arrive_as_they_are_and_others_send_what_they_always_did(self, engine: str) -> None:
        whole, wire = together(widths=(2, 2, 2)), {"numbers": "int8"}
        run, linear = (fit(whole, one, model=RIDGE, wire=wire, engine=engine) for one in (METHOD, LINEAR))
        train = whole.split.train
        own = whole.parties[0].columns
        scaled = (own - own[train].mean(dim=0)) / own[train].std(dim=0, correction=0)
        torch.testing.assert_close(run.kept["cache.columns"], scaled.float(), rtol=0, atol=1e-5)
        fine = fit(whole, METHOD, model=RIDGE, engine=engine)
        assert torch.equal(run.kept["cache.columns"], fine.kept["cache.columns"])  # no rounding touches them
        up, usual = (one.traffic.rounds[0].up.tolist() for one in (run, linear))
        assert up[1:] == usual[1:]
        assert 600 * 2 * 4 < up[0] - usual[0] < 600 * 2 * 4 + 200
        assert trees_of(run)["top.7"] > 0
        assert run.about["machine"]["libraries"].keys() == {"lightgbm"}

    def test_ledger_and_statement_say_whose_columns_went_where(self) -> None:
        run = fit(together(), METHOD, model=RIDGE)
        noted = {e.owner: dict(e.notes) for e in run.ledger}
        assert noted == {COORDINATOR: {}, GUEST: {"guest_columns": 3.0}, "party_1": {}, "party_2": {}}
        said = " ".join(statement_of_run(run).lines())
        assert "party_0 is named as the label holder's own party and sends it all of its columns" in said
        assert statement_of_run(run).to_json()["columns_shown"] == {GUEST: "all of its columns"}
        plain = statement_of_run(fit(together(), LINEAR, model=RIDGE))
        assert plain.to_json()["columns_shown"] == {}
        assert "sends it" not in " ".join(plain.lines())

    def test_behind_noisy_labels_the_trees_know_the_true_ones(self) -> None:
        noisy: dict[str, Any] = {"labels": {"mechanism": "randomised_response", "epsilon": 3.0}}
        whole = together()
        run, linear = (fit(whole, one, model=RIDGE, privacy=noisy) for one in (METHOD, LINEAR))
        assert run.score is not None
        assert linear.score is not None
        assert run.score > linear.score + 0.03

    def test_large_tables_come_in_pieces(self) -> None:
        whole, rows = together(), columns(together(), together().split.test)
        one, pieces = (
            fit(whole, METHOD, model=RIDGE, dtype="float64", schedule=schedule, evaluate_every=0)
            for schedule in ({}, {"batch": 250})
        )
        assert pieces.training.rounds == 3
        assert torch.equal(pieces.logits(rows), one.logits(rows))

    def test_a_party_that_shares_the_guests_group_by_a_lie_sends_nothing(self) -> None:
        alone, shared = Group((GUEST,), 1, (), 3), Group((GUEST, "party_1"), 1, (), 3)
        schema: Any = type("Schema", (), {"outputs": 1})
        assert METHOD.upload_arrays(schema, alone).keys() == {"o", "columns"}
        assert METHOD.upload_arrays(schema, shared).keys() == {"o"}
        assert not is_shown(METHOD, ("party_1",))
        assert not is_shown(LINEAR, (GUEST,))


class TestSubsets:
    def test_with_the_guest_trees_and_without_it_the_stack(self) -> None:
        whole = together()
        run, linear = (fit(whole, method, model=RIDGE, dtype="float64") for method in (METHOD, LINEAR))
        assert trees_of(run).keys() == {"top.3", "top.5", "top.7"}
        assert trees_of(run)["top.3"] > 0
        rows = columns(whole, whole.split.test)
        others = {party: x for party, x in rows.items() if party != GUEST}
        with pytest.warns(PartiesLeftOut):
            told, usual = (one.logits(others, absent="leave-out") for one in (run, linear))
        assert torch.equal(told, usual)
        two = {party: x for party, x in rows.items() if party != "party_2"}
        fewer = fit(whole.only([GUEST, "party_1"]), METHOD, model=RIDGE, dtype="float64")
        assert torch.equal(run.state["top.3"], fewer.state["top.3"])
        with pytest.warns(PartiesLeftOut):
            told = run.logits(two, absent="leave-out")
        torch.testing.assert_close(told, fewer.logits(two), rtol=0, atol=1e-9)

    def test_of_many_parties_only_all_of_them_have_trees(self) -> None:
        whole = together(widths=(3, 2, 1, 1, 1))
        run = fit(whole, METHOD, model=RIDGE)
        assert trees_of(run).keys() == {"top.31"}

    def test_rows_that_parties_lack(self) -> None:
        whole = together()
        held = torch.ones(whole.rows, dtype=torch.bool)
        held[whole.split.train[:200]] = False
        for lacks in range(2):  # the guest, and another
            parties = tuple(replace(p, held=held) if k == lacks else p for k, p in enumerate(whole.parties))
            run = fit(replace(whole, parties=parties), METHOD, model=RIDGE)
            assert run.score is not None
            assert trees_of(run)["top.7"] > 0


class TestAfterwards:
    def test_again_after_an_interruption_and_from_its_folder(self, tmp_path: Path) -> None:
        whole = together()
        options: dict[str, Any] = {"model": RIDGE, "schedule": {"batch": 250}, "checkpoint_every": 1}
        wanted = fit(whole, METHOD, out=tmp_path / "whole", **options)

        def interrupt(now: Any) -> None:
            if now.round == 2:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(whole, METHOD, out=tmp_path / "run", watch=interrupt, **options)
        again = resume(tmp_path / "run", whole)
        assert again.fingerprint() == wanted.fingerprint()
        assert untimed(again.history) == untimed(wanted.history)
        loaded, rows = Run.load(tmp_path / "run"), columns(whole, whole.split.test)
        assert torch.equal(loaded.logits(rows), wanted.logits(rows))
        assert "Tree=0" in tensor_text(loaded.state["top.7"])

    def test_a_party_joins(self, tmp_path: Path) -> None:
        whole = together()
        fit(whole.only([GUEST, "party_1"]), METHOD, model=RIDGE, out=tmp_path / "old")
        joined = extend(tmp_path / "old", whole)
        wanted = fit(whole, METHOD, model=RIDGE)
        assert trees_of(joined)["top.7"] > 0
        assert joined.fingerprint() == wanted.fingerprint()
        assert joined.metrics == wanted.metrics
        assert joined.result["validation_score"] == wanted.result["validation_score"]

    def test_parties_are_explained_by_leaving_them_out_and_not_as_terms(self) -> None:
        whole = together()
        run = fit(whole, METHOD, model=RIDGE)
        found = run.explain(whole)
        assert found.shapley is not None
        rows = whole.select(whole.split.test)
        with pytest.raises(ConfigError, match="is no sum over the parties"):
            run.model.contributions(rows)
        measured = run.model.importance(rows, whole.labels[whole.split.test])
        assert measured.draws.shape[1] == 7


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"guest": None}, "shows all of its columns, and nobody is the guest"),
            ({"guest": ""}, "shows all of its columns, and nobody is the guest"),
            (
                {"privacy": {"mechanism": "gaussian", "clip": 1.0, "sigma": 2.0}},
                "which noise before uploads would be about",
            ),
            ({"privacy": {"secure_sum": {"use": True}}}, "which a secure sum would be about"),
        ],
    )
    def test_by_name(self, options: dict[str, Any], said: str) -> None:
        whole = together(rows=100)
        method = METHOD.model_copy(update={"guest": options.pop("guest", GUEST)})
        with pytest.raises(ConfigError, match=said):
            fit(whole, method, model=RIDGE, **options)

    def test_noise_of_ones_own(self) -> None:
        with pytest.raises(GateError, match="guest_columns: what says this of columns leaves as it is"):
            fit(together(rows=100), METHOD, model=RIDGE, mechanism=SeededNoise(1.0))

    def test_tokens(self) -> None:
        drawn = np.random.default_rng(0)
        whole = Federation.from_arrays(
            {GUEST: drawn.integers(0, 9, (100, 3)), "party_1": drawn.normal(size=(100, 2))},
            drawn.integers(0, 2, 100),
            task="binary",
        )
        words = nn.Sequential(nn.Embedding(9, 2), nn.Flatten())
        with pytest.raises(ConfigError, match="the columns of the guest 'party_0' are tokens"):
            fit(whole, METHOD, encoders={GUEST: words}, model=RIDGE)

    def test_rows_that_some_of_many_parties_lack(self) -> None:
        whole = together(widths=(1,) * 9, rows=100)
        held = torch.ones(whole.rows, dtype=torch.bool)
        held[whole.split.train[:10]] = False
        lacking = replace(whole, parties=(replace(whole.parties[0], held=held), *whole.parties[1:]))
        with pytest.raises(ConfigError, match="has no answer about rows that some of 9 parties lack"):
            fit(lacking, METHOD, model=RIDGE)


class Agreeing(SmallTrial):
    """The guest's operator says that it belongs to the label holder."""

    def federation(self) -> Federation:
        return together(rows=400)

    def setup(self, name: str) -> PartySetup:
        return replace(super().setup(name), policy=Policy(shows_columns=name == GUEST))


def room(folder: Path, agrees: bool) -> Room:
    names = ("party_0", "party_1", "party_2")
    training: dict[str, Any] = {"rounds": 1, "schedule": {"batch": 1000}, "wire": {"numbers": "int8"}}
    method = {"name": "one_message", "folds": 3, "guest": GUEST, "stack": "trees"}
    data: dict[str, Any] = {"widths": (3, 2, 2), "rows": 400, "task": "binary"}
    scene = Room.of(folder, names, data=data, method=method, model=RIDGE, training=training)
    if agrees:
        scene.trial = Agreeing(**{name: getattr(scene.trial, name) for name in scene.trial.__dataclass_fields__})
    return scene


class TestOrganisations:
    def test_the_same_bits_as_in_one_process(self, tmp_path: Path) -> None:
        whole = together(rows=400)
        with room(tmp_path, agrees=True) as scene:
            run = scene.train()
            found = scene.predict(Wish(whole.split.test))
            scene.leave(GUEST)
            scene.arrive(GUEST)
            again = scene.predict(Wish(whole.split.test))
        loop = fit(
            whole, METHOD, model=RIDGE, rounds=1, schedule={"batch": 1000}, wire={"numbers": "int8"}, engine="loop"
        )
        assert trees_of(run)["top.7"] > 0
        assert untimed(run.history) == untimed(loop.history)
        assert torch.equal(found.logits, loop.logits(columns(whole, whole.split.test)))
        assert torch.equal(again.logits, found.logits)
        assert "party_0 is named as the label holder's own party" in " ".join(statement_of_run(run).lines())
        told = [entry["shows_columns"] for entry in scene.said("party_1", "proposal")]
        assert told[0] == GUEST
        parts = {name: Part.load(scene.trial.place(name)) for name in (GUEST, "party_1")}
        assert parts[GUEST].predict(whole.parties[0].columns[:4]).keys() == {"o", "columns"}
        assert parts["party_1"].predict(whole.parties[1].columns[:4]).keys() == {"o"}

    def test_a_party_of_another_organisation_refuses(self, tmp_path: Path) -> None:
        with (
            pytest.raises(Refused, match="'party_0' refuses: shows_columns: the run names this party as the label"),
            room(tmp_path, agrees=False) as scene,
        ):
            scene.train()
