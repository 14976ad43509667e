"""Predictions without some parties: the combination of their set, row by row, or a refusal by name; never a zero."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss, roc_auc_score
from torch import Tensor

from colonnade import Federation, Model, Run, fit
from colonnade.errors import ConfigError, DataError, PartiesLeftOut, Refused, RowsDisagree
from colonnade.evaluate.decision import Decision
from colonnade.federation import RowSplit
from colonnade.methods import METHODS, VIMADMMJ, _combinations
from colonnade.methods._steps import get_heads
from colonnade.methods.without import AddsScores, PredictsWithout, check_can_leave_out
from colonnade.models.heads import apply_heads
from colonnade.models.subsets import fit_subsets
from colonnade.rows import Rows
from colonnade.wire.messages import Purpose
from tests.federations import small
from tests.trainers import open_trainer

ADDS = ("assisted_boosting", "fdml", "local_only", "vimadmm", "vimadmm_j")  # one_message, too, if parties are many
OPTIONS: dict[str, Any] = {"rounds": 6, "evaluate_every": 2, "dtype": "float64", "model": {"hidden": 6, "embedding": 4}}
BRIEF: dict[str, dict[str, Any]] = {
    "assisted_boosting": {"local_steps": 10},
    "one_message": {"model": {"encoder": "ridge"}},
}
WIDTHS = (4, 3, 4)  # two groups, so that groups and parties are in different orders


def columns(federation: Federation, rows: Tensor, parties: tuple[str, ...]) -> dict[str, Tensor]:
    return {party.name: party.columns[rows] for party in federation.parties if party.name in parties}


def terms(run: Run, federation: Federation, rows: Tensor) -> Tensor:
    """(M, B, K) what each party's part adds, from the parts alone, in the order of the groups."""
    parties = [name for group in run.about["groups"] for name in group]
    share = run.state.get("share", torch.ones(()))
    told = {p.name: run.model.part(p.name).predict(p.columns[rows]) for p in federation.parties}
    if "h" not in told[parties[0]]:
        return torch.stack([told[name]["o"] for name in parties]) * share
    places = [(g, k) for g, group in enumerate(run.about["groups"]) for k in range(len(group))]
    heads = get_heads(run.state)
    return torch.cat(
        [
            apply_heads({n: w[k : k + 1] for n, w in heads[g].items()}, told[name]["h"][None])
            for name, (g, k) in zip(parties, places, strict=True)
        ]
    )


@pytest.mark.parametrize("task", ["binary", "regression"])
@pytest.mark.parametrize("name", ADDS)
def test_each_set_of_parties_has_the_combination_of_its_validation_scores(name: str, task: str) -> None:
    """Fitted here from what the parts say; also after the model was saved, and nobody absent releases anything."""
    federation = small(WIDTHS, rows=120, task=task)
    run = fit(federation, name, **OPTIONS, **BRIEF.get(name, {}))
    validation, test = federation.split.validation, federation.split.test
    scale, shift = run.state.get("target.scale", torch.ones(())), run.state.get("target.shift", torch.zeros(()))
    targets = (federation.labels[validation].double().view(len(validation), -1) - shift) / scale
    scores, new = terms(run, federation, validation), terms(run, federation, test)
    order = [name for group in run.about["groups"] for name in group]
    for size in (1, 2):
        for parties in itertools.combinations(federation.names, size):
            here = torch.tensor([party in parties for party in order])
            slow = fit_subsets(federation.task, scores[here], targets, torch.ones(1, size, dtype=torch.bool))
            wanted = torch.einsum("m,mbk->bk", slow.weights[0], new[here]) + slow.bias[0]
            before = len(run.ledger)
            found = run.model.prediction(columns(federation, test, parties), absent="leave-out")
            torch.testing.assert_close(found.logits, wanted * scale + shift, rtol=0, atol=1e-6)
            assert found.left_out == tuple(sorted(set(federation.names) - set(parties)))
            assert sorted(entry.owner for entry in run.ledger.since(before)) == sorted(parties)


@pytest.mark.parametrize("name", [*ADDS, "one_message"])
def test_a_saved_model_answers_the_same_and_says_who_was_there(name: str, tmp_path: Path) -> None:
    federation = small(WIDTHS, rows=120, task="binary")
    run = fit(federation, name, **{**OPTIONS, **BRIEF.get(name, {})})
    some = columns(federation, federation.split.test, ("party_0", "party_1"))
    with pytest.warns(PartiesLeftOut, match=r"without the part of party_2 \(24 of 24 rows\)"):
        logits = run.logits(some, absent="leave-out")
    run.model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model")
    assert torch.equal(loaded.prediction(some, absent="leave-out").logits, logits)
    with pytest.raises(DataError, match=r"missing 'party_2'.*absent='leave-out' predicts without"):
        loaded.logits(some)
    with pytest.raises(DataError, match="at least one of the parties"):
        loaded.logits({}, absent="leave-out")
    with pytest.raises(ConfigError, match="absent = 'zero': needed 'refuse' or 'leave-out'"):
        loaded.logits(some, absent="zero")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ADDS)
def test_many_parties_are_combined_when_it_is_asked_for(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scores of the validation rows stay with the label holder, and give the same answers."""
    federation = small(WIDTHS, rows=120)
    some = columns(federation, federation.split.test, ("party_0", "party_2"))
    few = fit(federation, name, **OPTIONS, **BRIEF.get(name, {})).model.prediction(some, absent="leave-out").logits
    monkeypatch.setattr(_combinations, "MOST_PARTIES", 2)
    run = fit(federation, name, **OPTIONS, **BRIEF.get(name, {}))
    assert run.state["subset.scores"].shape == (3, len(federation.split.validation), 3)
    many = run.model.prediction(some, absent="leave-out").logits
    torch.testing.assert_close(many, few, rtol=0, atol=1e-8)


class TestRefusals:
    @pytest.mark.parametrize("name", sorted(set(METHODS) - {*ADDS, "one_message"}))
    def test_no_other_method_claims_an_answer_without_a_party(self, name: str) -> None:
        """Whoever adds one has to show that it is a prediction."""
        method = METHODS[name]()
        if isinstance(method, (AddsScores, PredictsWithout)):
            pytest.skip("it says what its parties add")
        with pytest.raises(ConfigError, match=f"^{name} has no answer without one of its parties"):
            check_can_leave_out(method, {}, secure_sum=False)  # type: ignore[arg-type]

    def test_a_joint_top(self) -> None:
        federation = small(WIDTHS)
        run = fit(federation, "split_learning", **OPTIONS)
        before = len(run.ledger)
        with pytest.raises(ConfigError, match="split_learning has no answer without"):
            run.logits(columns(federation, federation.split.test, ("party_0",)), absent="leave-out")
        assert len(run.ledger) == before

    def test_a_secure_sum(self) -> None:
        """Two answers that differ by one party would show what it said; also with everybody there."""
        federation = small((4, 4, 4))
        run = fit(federation, "vimadmm_j", privacy={"secure_sum": {"use": True}}, **OPTIONS)
        assert not any(name.startswith("subset") for name in run.state)
        with pytest.raises(ConfigError, match="two predictions that differ by one party would show what it said"):
            run.logits(columns(federation, federation.split.test, federation.names), absent="leave-out")

    def test_noise_without_an_evaluation(self) -> None:
        federation = small((4, 4, 4))
        noise = {"mechanism": "gaussian", "clip": 1.0, "epsilon": 4.0}
        run = fit(federation, "vimadmm_j", privacy={**noise, "evaluation": "none"}, **OPTIONS)
        with pytest.raises(ConfigError, match="fitted on evaluated validation rows, and there were none"):
            run.logits(columns(federation, federation.split.test, ("party_0",)), absent="leave-out")
        seen = fit(federation, "vimadmm_j", privacy={**noise, "evaluation": "simulated"}, **OPTIONS)
        some = columns(federation, federation.split.test, ("party_0",))
        assert seen.model.prediction(some, absent="leave-out").left_out == ("party_1", "party_2")


def test_protected_labels_are_combined_by_their_noisy_ones() -> None:
    """Other plain validation labels behind the same noisy ones change no combination."""
    privacy = {"labels": {"mechanism": "randomised_response", "epsilon": 2.0}}
    one, other = (open_trainer(small(task="binary"), VIMADMMJ(), privacy=privacy, rounds=4) for _ in range(2))
    other.coordinator.truth = 1 - other.coordinator.truth
    assert torch.equal(one.train().state["subset.weights"], other.train().state["subset.weights"])


class TestRowsThatPartiesLack:
    def test_each_row_by_the_parties_that_hold_it(self) -> None:
        federation = small(WIDTHS, rows=120, task="binary")
        run, rows = fit(federation, "vimadmm_j", **OPTIONS), federation.split.test
        held = {"party_1": torch.arange(len(rows)) % 2 == 0, "party_2": torch.arange(len(rows)) % 3 > 0}
        whole = columns(federation, rows, federation.names)
        wrong = {name: x.clone() for name, x in whole.items()}
        for name, mine in held.items():
            wrong[name][~mine] = 1e6
        found = run.model.prediction(Rows(wrong, held=held), absent="leave-out")
        for place, lacking in enumerate(found.without):
            assert set(lacking) == {name for name, mine in held.items() if not mine[place]}
            one = {name: x[place : place + 1] for name, x in whole.items() if name not in lacking}
            alone = run.model.prediction(one, absent="leave-out").logits[0]
            torch.testing.assert_close(found.logits[place], alone, rtol=0, atol=1e-9)
        with pytest.raises(DataError, match="party_1, party_2 do not hold all of these rows"):
            run.logits(Rows(wrong, held=held))

    def test_tables_that_share_some_ids(self) -> None:
        federation, bank, telco = customers()
        run = fit(federation, "vimadmm_j", rounds=4, evaluate_every=2)
        new = {"bank": bank.iloc[[5, 1, 2]], "telco": telco.iloc[[2, 7]]}
        with pytest.warns(PartiesLeftOut, match=r"bank \(1 of 4 rows\), telco \(2 of 4 rows\)"):
            found = run.predict(new, absent="leave-out")
        assert found.index.tolist() == ["c5", "c1", "c2", "c7"] and found.index.name == "customer"
        assert run.model.prediction(new, absent="leave-out").without == (("telco",), ("telco",), (), ("bank",))
        with pytest.warns(PartiesLeftOut, match="telco"):
            only = run.predict({"bank": bank.iloc[:3]}, absent="leave-out")
        assert only.index.tolist() == ["c0", "c1", "c2"]
        with pytest.raises(RowsDisagree, match="differ"):
            run.predict(new)
        strange = {**new, "telco": telco.iloc[[2]].assign(customer=["0002"])}
        with pytest.raises(RowsDisagree, match="no id of 'telco' is in a table before it"):
            run.predict(strange, absent="leave-out")

    def test_what_calibrates_all_parties_together_calibrates_nobody_else(self) -> None:
        federation = small(WIDTHS, rows=120, task="binary")
        model = fit(federation, "vimadmm_j", **OPTIONS).model
        model.decision = Decision(24, "f1", 0.5, "platt", ((0.0, 3.0),))  # everything is 95 % sure
        rows = federation.split.test
        held = {"party_1": torch.arange(len(rows)) > 3}
        some = Rows(columns(federation, rows, federation.names), held=held)
        with pytest.warns(PartiesLeftOut):
            sure = model.predict_proba(some, absent="leave-out")[:, 1]
        bare = model.prediction(some, absent="leave-out").logits.sigmoid()[:, 0]
        np.testing.assert_allclose(sure[:4], bare[:4], atol=1e-12)
        np.testing.assert_allclose(sure[4:], torch.sigmoid(torch.tensor(3.0)), atol=1e-6)


def customers() -> tuple[Federation, pd.DataFrame, pd.DataFrame]:
    rng = np.random.default_rng(0)
    ids = [f"c{number}" for number in range(60)]
    income, minutes = rng.normal(size=(2, 60))
    bank = pd.DataFrame({"customer": ids, "income": income})
    telco = pd.DataFrame({"customer": ids, "minutes": minutes, "plan": ["s", "m"] * 30})
    left = pd.DataFrame({"customer": ids, "left": np.where(income + minutes > 0, "yes", "no")})
    federation = Federation.from_tables({"bank": bank, "telco": telco}, labels=left, id="customer")
    return federation, bank, telco


@pytest.mark.parametrize("name", ["one_message", "vimadmm_j"])
def test_it_is_about_as_good_as_a_model_that_was_trained_without_the_party(name: str) -> None:
    """Real tumours, ten columns at each of three parties: ranking, level and certainty; a bare sum has not these."""
    x, y = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(0)
    order = torch.from_numpy(rng.permutation(len(y)))
    parties = {f"part_{k}": x[:, 10 * k : 10 * (k + 1)] for k in range(3)}
    split = RowSplit(order[:300], order[300:420], order[420:])
    federation = Federation.from_arrays(parties, y, task="binary", split=split)
    options: dict[str, Any] = {"model": {"encoder": "ridge"}, "batch": 300, "rounds": 20}
    run, truth, gaps = fit(federation, name, **options), y[split.test], []
    for gone in federation.names:
        rest = federation.only([party for party in federation.names if party != gone])
        trained = fit(rest, name, **options).logits(rest.select(split.test)).double()
        some = columns(federation, split.test, rest.names)
        ours = run.model.prediction(some, absent="leave-out").logits.double()
        assert roc_auc_score(truth, ours) > roc_auc_score(truth, trained) - 0.01
        gaps.append(log_loss(truth, ours.sigmoid()) - log_loss(truth, trained.sigmoid()))
    assert max(gaps) < 0.06 and sum(gaps) / 3 < 0.03


def test_predictions_have_numbers_of_their_own() -> None:
    """Also after predictions of some parties, whose messages are fewer."""
    federation = small(WIDTHS, task="binary")
    run, rows = fit(federation, "vimadmm_j", **OPTIONS), federation.split.test
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PartiesLeftOut)
        for parties in (("party_0",), federation.names, ("party_1", "party_2"), federation.names):
            run.logits(columns(federation, rows, parties), absent="leave-out")
    numbers = [entry.number for entry in run.ledger if entry.purpose is Purpose.PREDICT]
    assert sorted(set(numbers)) == list(range(min(numbers), min(numbers) + 4))


def test_parties_alone_that_nobody_evaluated_answer_by_their_mean() -> None:
    federation = small(WIDTHS, task="binary")
    run = fit(federation, "local_only", **{**OPTIONS, "evaluate_every": 0})
    some = columns(federation, federation.split.test, ("party_0", "party_1"))
    mean = torch.stack([run.model.part(name).predict(x)["o"] for name, x in some.items()]).mean(dim=0)
    torch.testing.assert_close(run.model.prediction(some, absent="leave-out").logits, mean, rtol=0, atol=1e-9)


def test_a_run_of_an_earlier_version_is_refused() -> None:
    federation = small(WIDTHS, task="binary")
    run = fit(federation, "vimadmm", **OPTIONS)
    kept = {name: value for name, value in run.state.items() if not name.startswith("subset")}
    older = replace(run.model, state=kept)
    with pytest.raises(ConfigError, match="a version before combinations"):
        older.logits(columns(federation, federation.split.test, ("party_0",)), absent="leave-out")


def test_training_rows_are_not_released_by_leaving_a_party_out() -> None:
    """No party's columns tell rows apart, all together do: with some of them nobody can say whether a row trained."""
    rng = np.random.default_rng(0)
    parts = {name: rng.integers(0, 12, (400, 2)).astype(float) for name in ("a", "b", "c")}
    labels = (sum(part[:, 0] for part in parts.values()) > 16).astype(int)
    federation = Federation.from_arrays(parts, labels)
    noise = {"mechanism": "gaussian", "clip": 1.0, "epsilon": 1.0, "delta": 1e-5, "evaluation": "none"}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = fit(federation, "one_message", model={"encoder": "ridge"}, privacy=noise)
    some = columns(federation, federation.split.train[:50], ("a", "b"))
    before = len(run.ledger)
    with pytest.raises(Refused, match="without all parties it cannot be told whether these rows trained this run"):
        run.predict(some, absent="leave-out")
    assert len(run.ledger) == before


def test_what_cannot_be_fitted_is_no_answer() -> None:
    """Of numbers that a party made up for validation rows only."""
    federation = small(WIDTHS, task="count")
    run = fit(federation, "vimadmm_j", **OPTIONS)
    run.state["subset.fitted"][0] = False
    with pytest.raises(ConfigError, match="no combination of these parties could be fitted"):
        first = run.about["groups"][0][0]
        run.logits(columns(federation, federation.split.test, (first,)), absent="leave-out")
