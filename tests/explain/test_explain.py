"""Explanations against slower ways to the same numbers, and every message of them in the ledger."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from colonnade import fit
from colonnade.errors import ConfigError, DataError, GateError, RunError
from colonnade.evaluate.metrics import METRICS
from colonnade.explain.explain import disagreements, explain, weigh
from colonnade.explain.explanation import Explanation, agreements
from colonnade.explain.listen import Listener
from colonnade.explain.settings import TEST_NOISE, ExplainSettings, published_noise
from colonnade.federation import Federation
from colonnade.privacy.gate import Gate, Passed
from colonnade.privacy.sealed import Upload
from colonnade.randomness import stream
from colonnade.run import LEDGER, Run
from colonnade.tasks import TASKS, Task
from colonnade.tasks.binary import Binary
from colonnade.tasks.multiclass import Multiclass
from colonnade.tasks.multilabel import Multilabel
from colonnade.tasks.regression import Regression
from colonnade.wire.messages import Purpose
from tests.contracts.registry import NAMES, make
from tests.federations import images, mixed_encoder, small
from tests.trainers import changed

MODEL = {"hidden": 6, "embedding": 4}
DP = {"mechanism": "gaussian", "clip": 1.0, "sigma": 3.0}


def train(federation: Federation, method: str, **options: object) -> Run:
    made = make(method, local_steps=2, **({"head_update": "sgd"} if options.pop("sgd", False) else {}))
    return fit(federation, made, rounds=4, evaluate_every=2, **{"model": MODEL, "dtype": "float64", **options})  # type: ignore[arg-type]


def columns(federation: Federation, rows: torch.Tensor) -> dict[str, torch.Tensor]:
    return {party.name: party.columns[rows] for party in federation.parties}


def score(task: Task, outputs: torch.Tensor, truth: torch.Tensor) -> float:
    return METRICS[task.metric](task, outputs, truth)


def scored(run: Run, federation: Federation, rows: torch.Tensor) -> float:
    return score(federation.task, run.logits(columns(federation, rows)), federation.labels[rows])


@pytest.fixture(scope="module")
def federation() -> Federation:
    return small(widths=(5, 3, 5), rows=120)  # two shapes, and so two groups


@pytest.mark.parametrize("name", [name for name in NAMES if name != "centralized"])
def test_every_method_can_be_explained_and_all_that_left_is_in_the_ledger(name: str) -> None:
    federation = small(widths=(5, 5), rows=90)  # some methods are for two parties only
    run = train(federation, name)
    before = len(run.ledger)
    found = run.explain(federation, draws=2)
    new = run.ledger.since(before)
    assert found.releases == len(new) > 0 and {r.purpose for r in new} == {Purpose.EXPLAIN}
    assert {r.owner for r in new} == set(federation.names)
    assert len({r.digest for r in new}) == len(new)
    assert {r.rows for r in new} <= {0, len(federation.split.validation)}  # 0: a norm speaks about no row
    assert found.rows == "validation" and found.score == pytest.approx(
        scored(run, federation, federation.split.validation)
    )
    assert sorted(found.ranked()) == sorted(federation.names)
    for measure in ("norm", "noise", "mask", "shapley"):
        assert (getattr(found, measure) is None) == (measure in found.unavailable)


@pytest.mark.parametrize("name", ["vimadmm", "vimadmm_j"])
def test_masking_is_a_head_of_zeros(name: str, federation: Federation) -> None:
    run, rows = train(federation, name), federation.split.validation
    found = run.explain(federation, draws=1)
    assert found.additive and found.silence == "zero" and found.mask is not None
    whole = scored(run, federation, rows)
    for k, party in enumerate(federation.names):
        state, models = {n: v.clone() for n, v in run.state.items()}, {p: dict(m) for p, m in run.models.items()}
        if name == "vimadmm":
            group = next(g for g, names in enumerate(run.about["groups"]) if party in names)
            state[f"head.{group}.weight.0"][run.about["groups"][group].index(party)] = 0
        else:
            models[party]["head.weight.0"] = torch.zeros_like(models[party]["head.weight.0"])
        without = changed(run, state=state, models=models, ledger=type(run.ledger)())
        assert found.mask[k] == pytest.approx(whole - scored(without, federation, rows), abs=1e-12)


@pytest.mark.parametrize("name", ["vimadmm", "split_learning", "c_vfl"])
def test_noise_is_noise_on_the_columns_of_one_party(name: str, federation: Federation) -> None:
    run, rows = train(federation, name), federation.split.test
    found = run.explain(federation, rows="test", noise=2.5, draws=2, seed=5)
    given = columns(federation, rows)
    whole = scored(run, federation, rows)
    assert found.noise is not None and found.noise_spread is not None
    for k, party in enumerate(federation.names):
        drops = []
        for draw in range(2):
            noise = stream(5, "explain noise", party, draw).normal(0, 2.5, tuple(given[party].shape))
            noisy = {**given, party: given[party] + torch.from_numpy(noise)}
            drops.append(whole - score(federation.task, run.logits(noisy), federation.labels[rows]))
        assert found.noise[k] == pytest.approx(np.mean(drops), abs=1e-12)
        assert found.noise_spread[k] == pytest.approx(np.std(drops, ddof=1), abs=1e-12)
    assert any("test rows" in note for note in found.notes)


def test_norms_are_those_of_the_heads(federation: Federation) -> None:
    run = train(federation, "vimadmm_j")
    found = run.explain(federation)
    slow = [float(run.models[p]["head.weight.0"].square().sum().sqrt()) for p in federation.names]
    assert found.norm == pytest.approx(slow) and found.norm_of == "head at the party"
    (event, *_) = [r for r in run.ledger if r.purpose is Purpose.EXPLAIN and r.rows == 0]
    assert event.mechanism == "none"
    assert weigh(run, federation, ExplainSettings()) == pytest.approx(slow)


def test_norms_at_the_coordinator_follow_the_party_and_cost_nothing(federation: Federation) -> None:
    run = train(federation, "vimadmm")
    groups, before = run.about["groups"], len(run.ledger)
    assert groups == [["party_0", "party_2"], ["party_1"]]
    found = weigh(run, federation, ExplainSettings())
    slow = [run.state["head.0.weight.0"][0], run.state["head.1.weight.0"][0], run.state["head.0.weight.0"][1]]
    assert found == pytest.approx([float(w.norm()) for w in slow]) and len(run.ledger) == before


def test_server_rows_belong_to_the_party_that_they_read(federation: Federation) -> None:
    run = train(federation, "split_learning")
    weight = run.state["server.weight.0"][0]  # group order: party_0, party_2, party_1
    slow = [float(weight[start : start + 4].norm()) for start in (0, 8, 4)]
    assert weigh(run, federation, ExplainSettings()) == pytest.approx(slow)


def test_shapley_values_add_up_and_sampling_comes_near(federation: Federation) -> None:
    run = train(federation, "vimadmm")
    exact = run.explain(federation, shapley="exact")
    assert exact.shapley is not None and exact.shapley_error is None and exact.score is not None
    nobody = score(federation.task, torch.zeros(24, 3), federation.labels[federation.split.validation])
    assert sum(exact.shapley) == pytest.approx(exact.score - nobody)
    drawn = run.explain(federation, shapley="sampled", permutations=100)
    assert drawn.shapley is not None and drawn.shapley_error is not None and drawn.shapley_orders == 100
    for value, true, error in zip(drawn.shapley, exact.shapley, drawn.shapley_error, strict=True):
        assert abs(value - true) <= 4 * error + 1e-12
    none = run.explain(federation, shapley="none")
    assert none.shapley is None and "not asked for" in none.unavailable["shapley"]


def test_a_prediction_that_is_no_sum_is_asked_for_every_coalition() -> None:
    federation = small(rows=90)
    model = {**MODEL, "head": {"layers": 2}}
    split = train(federation, "split_learning", model=model).explain(federation)
    assert split.additive is False and split.silence == "mean" and split.class_evidence is None
    assert split.shapley is not None and split.mask is not None
    heads = train(federation, "vimadmm", model=model, sgd=True).explain(federation)
    assert (
        heads.additive is True and heads.silence == "mean"
    )  # a sum of bent terms; silence is what a party says on average
    assert any("several layers" in note for note in heads.notes)


def test_losses_by_class_are_the_loss() -> None:
    federation = small(rows=150)
    found = train(federation, "vimadmm").explain(federation)
    truth = federation.labels[federation.split.validation]
    shares = torch.bincount(truth, minlength=3).double() / len(truth)
    assert found.class_drop is not None and found.mask is not None and found.class_evidence is not None
    np.testing.assert_allclose(np.array(found.class_drop) @ shares.numpy(), found.mask, atol=1e-12)
    assert np.array(found.class_evidence).shape == (4, 3) and found.class_names == ["0", "1", "2"]


@pytest.mark.parametrize("task", list(TASKS))
def test_every_task(task: str) -> None:
    federation = small(rows=90, task=task)
    run = train(federation, "vimadmm")
    found = run.explain(federation)
    assert found.score == pytest.approx(scored(run, federation, federation.split.validation))
    assert found.class_drop is not None and len(found.class_drop[0]) == len(found.class_names)
    assert (found.class_evidence is not None) == (task == "multiclass")


def test_networks_of_several_architectures() -> None:
    federation = small(rows=90)
    run = fit(federation, make("vimadmm", local_steps=1), rounds=3, encoders=mixed_encoder)
    assert len(run.about["groups"]) == 2
    assert run.explain(federation).score == pytest.approx(scored(run, federation, federation.split.validation))


def test_a_secure_sum_and_a_single_party_are_refused(federation: Federation) -> None:
    summed = train(federation, "vimadmm_j", privacy={"secure_sum": {"use": True}})
    before = len(summed.ledger)
    with pytest.raises(ConfigError, match="secure sum"):
        summed.explain(federation)
    with pytest.raises(ConfigError, match="no parties to tell apart"):
        train(federation, "centralized").explain(federation)
    with pytest.raises(RunError, match="separate organisations"):
        changed(train(federation, "vimadmm"), models={name: {} for name in federation.names}).explain(federation)
    assert len(summed.ledger) == before


def test_under_a_promise_only_what_is_free_is_said(federation: Federation) -> None:
    run = train(federation, "vimadmm", privacy=DP)
    before = len(run.ledger)
    found = run.explain(federation)
    assert found.norm is not None and found.score is None and found.releases == 0 == len(run.ledger) - before
    assert set(found.unavailable) == {"noise", "mask", "shapley"} and "epsilon" in found.unavailable["mask"]
    with pytest.raises(ConfigError, match="live at the parties"):
        train(federation, "vimadmm_j", privacy=DP).explain(federation)
    loud = run.explain(federation, uncovered=True)
    assert loud.mask is not None and any("epsilon does not cover" in note for note in loud.notes)
    listener = Listener.open(run, federation, federation.split.validation, covered=False)
    with pytest.raises(
        GateError, match="nothing may leave for EXPLAIN"
    ):  # the gate stands, whatever the code above says
        listener.clean()


def test_no_two_messages_have_one_address(federation: Federation, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message is known by run, number, kind, part and sender: two of one address would count as one."""
    addresses: list[tuple[object, ...]] = []
    release = Gate.release

    def watched(
        self: Gate, upload: Upload, parties: list[str], number: int, purpose: Purpose, rows: int, part: int = 0
    ) -> Passed:
        addresses.extend((number, purpose, part, party) for party in parties)
        return release(self, upload, parties, number, purpose, rows, part)

    run = train(federation, "vimadmm_j")
    monkeypatch.setattr(Gate, "release", watched)
    found = [run.explain(federation, draws=2, pictures=1) for _ in range(2)]
    assert len(set(addresses)) == len(addresses) == sum(one.releases for one in found)


@pytest.mark.parametrize("task", list(TASKS))
def test_scores_by_class_row_by_row(task: str) -> None:
    rng = np.random.default_rng(3)
    logits, classes = torch.from_numpy(rng.normal(size=(40, 1 if task == "binary" else 3))), 3
    truth = {
        "multiclass": torch.from_numpy(rng.integers(0, 2, 40)),  # nobody of class 2
        "binary": torch.from_numpy(rng.integers(0, 2, (40, 1))).double(),
        "multilabel": torch.from_numpy(rng.integers(0, 2, (40, 3))).double(),
        "count": torch.from_numpy(rng.poisson(2.0, size=(40, 3))).double(),
    }.get(task, torch.from_numpy(rng.random(size=(40, 3))))  # numbers, whatever they mean
    found = TASKS[task](logits.shape[1]).by_kind(logits, truth)
    if task in ("multiclass", "binary"):
        said = logits.argmax(dim=1).tolist() if task == "multiclass" else [int(x > 0) for x in logits[:, 0]]
        pairs = list(zip([int(t) for t in truth.flatten()], said, strict=True))
        slow = []
        for c in range(classes if task == "multiclass" else 2):
            mine = [s == t for t, s in pairs if t == c]
            slow.append(sum(mine) / len(mine) if mine else 0.0)
    else:
        metric = METRICS["accuracy" if task == "multilabel" else "r2"]
        slow = [metric(TASKS[task](1), logits[:, [k]], truth[:, [k]]) for k in range(classes)]
    assert found == pytest.approx(slow)


def test_a_saved_ledger_goes_on(tmp_path: Path, federation: Federation) -> None:
    run = train(federation, "vimadmm_j", out=tmp_path / "run")
    told = [run.explain(federation, draws=1) for _ in range(2)]
    lines = [json.loads(line) for line in (tmp_path / "run" / LEDGER).read_text().splitlines()]
    asked = [line for line in lines if line["purpose"] == "EXPLAIN"]
    assert len(asked) == sum(found.releases for found in told) == 2 * 3 * 3  # twice: norm, clean, noisy; three parties
    assert len({line["number"] for line in asked}) == 2 and len({line["digest"] for line in asked}) == len(asked)
    assert Run.load(tmp_path / "run").explain(federation).norm == told[0].norm


def test_an_explanation_survives_its_file(tmp_path: Path, federation: Federation) -> None:
    found = train(federation, "vimadmm").explain(federation, tsne=20)
    found.save(tmp_path)
    assert Explanation.load(tmp_path) == found
    (tmp_path / "explain.json").write_text('{"format": 1}')
    with pytest.raises(RunError, match=r"another version of Colonnade; run colonnade explain .* again$"):
        Explanation.load(tmp_path)
    with pytest.raises(RunError, match=r"has no explain\.json"):
        Explanation.load(tmp_path / "nowhere")


def test_parties_are_ranked_by_shapley_values_unless_another_measure_is_asked_for(federation: Federation) -> None:
    run = train(federation, "vimadmm")
    for measure in ("norm", "shapley", "mask", "noise"):
        found = run.explain(federation, rank_by=measure)
        values = dict(zip(found.parties, getattr(found, measure), strict=True))
        assert [values[party] for party in found.ranked()] == sorted(values.values(), reverse=True)
        assert found.to_json()["ranked_by"] == measure
    assert run.explain(federation).ranked_by() == "shapley"
    assert run.explain(federation, shapley="none").ranked_by() == "mask"
    with pytest.raises(ConfigError, match="ranked by shapley"):
        run.explain(federation, rank_by="shapley", shapley="none").ranked()


def test_norms_alone_rank_nobody(tmp_path: Path, federation: Federation) -> None:
    """All that a run with noise may give: sizes of weights, and no word on who contributes."""
    found = train(federation, "vimadmm", privacy=DP).explain(federation)
    assert found.norm is not None and (found.ranked_by(), found.ranked()) == (None, [])
    found.save(tmp_path)
    assert Explanation.load(tmp_path) == found
    assert sorted(found.order("norm")) == sorted(federation.names)


def made_up(**measures: list[float]) -> Explanation:
    names = ["bank", "telco", "shop"]
    return Explanation("id", "vimadmm", "bank+telco+shop", "validation", 10, "AUC", 0.8, names, **measures)  # type: ignore[arg-type]


def test_measures_that_disagree_are_named() -> None:
    """The largest weights belong to the party that contributes least."""
    found = made_up(norm=[9.0, 2.0, 3.0], shapley=[0.0, 0.2, 0.1], mask=[0.0, 0.2, 0.1])
    found.agreement = agreements(found.measures())
    assert found.ranked() == ["telco", "shop", "bank"]
    (told,) = disagreements(found)
    assert "sizes of weights and Shapley values rank the parties differently (Spearman -1.00)" in told
    assert "by sizes of weights bank is first, by Shapley values it is place 3 of 3" in told
    same = made_up(norm=[1.0, 3.0, 2.0], shapley=[0.0, 0.2, 0.1])
    same.agreement = agreements(same.measures())
    assert disagreements(same) == []


@pytest.mark.parametrize("task", list(TASKS))
def test_contributions_are_in_units_of_the_score_of_the_task(task: str) -> None:
    federation = small(widths=(5, 3, 5), rows=120, task=task)
    run, rows = train(federation, "vimadmm"), federation.split.validation
    found = run.explain(federation)
    whole, truth = run.logits(columns(federation, rows)), federation.labels[rows]
    metric = METRICS[federation.task.metric]
    assert found.score_name == metric.title
    assert found.score == pytest.approx(metric(federation.task, whole, truth))
    assert found.shapley is not None and found.silence == "zero"
    silent = torch.zeros_like(whole) * run.state.get("target.scale", 1.0) + run.state.get("target.shift", 0.0)
    assert sum(found.shapley) == pytest.approx(
        metric.sign() * (metric(federation.task, whole, truth) - metric(federation.task, silent, truth)), abs=1e-9
    )


@pytest.mark.parametrize("name", ["log_loss", "balanced_accuracy"])
def test_another_metric_than_the_runs_own(name: str, federation: Federation) -> None:
    run, rows, metric = train(federation, "vimadmm_j"), federation.split.validation, METRICS[name]
    found = explain(run, federation, ExplainSettings(metric=name, silence="zero"))
    truth, task = federation.labels[rows], federation.task
    assert found.score_name == metric.title
    assert found.score == pytest.approx(metric(task, run.logits(columns(federation, rows)), truth))
    assert found.shapley is not None
    nobody = metric(task, torch.zeros(len(rows), task.outputs), truth)
    assert sum(found.shapley) == pytest.approx(metric.sign() * (found.score - nobody))
    with pytest.raises(ConfigError, match="'r2' is not for a classes task"):
        explain(run, federation, ExplainSettings(metric="r2"))


def test_rows_count_by_their_weights(federation: Federation) -> None:
    heavy = torch.linspace(0.1, 4.0, federation.rows, dtype=torch.float64)
    weighted = replace(federation, weights=heavy)
    run, rows = train(weighted, "vimadmm_j"), federation.split.validation
    found = explain(run, weighted)
    expected = METRICS["accuracy"](
        federation.task, run.logits(columns(federation, rows)), federation.labels[rows], heavy[rows]
    )
    assert found.score == pytest.approx(expected)


def test_scattered_rows(federation: Federation) -> None:
    run = train(federation, "vimadmm")
    found = run.explain(federation, tsne=15, shapley="none", draws=1)
    assert found.tsne is not None and [one["which"] for one in found.tsne] == ["most important", "least important"]
    assert [one["party"] for one in found.tsne] == [found.ranked()[0], found.ranked()[-1]]
    for one in found.tsne:
        assert np.array(one["points"]).shape == (15, 2) and len(one["labels"]) == 15
    assert run.explain(federation, tsne=15, shapley="none", draws=1).tsne == found.tsne


def test_pictures_are_raw_columns_and_so_only_on_request() -> None:
    federation = images(rows=18)
    run = fit(federation, make("vimadmm", local_steps=1), rounds=2, model=MODEL)
    assert run.explain(federation).pictures is None
    found = run.explain(federation, pictures=2)
    rows = federation.split.validation[:2]
    assert found.pictures is not None
    for party in federation.parties:
        assert np.array_equal(np.array(found.pictures[party.name], dtype=np.float32), party.columns[rows].numpy())
    assert [r.rows for r in run.ledger][-2:] == [2, 2]
    assert train(small(), "vimadmm").explain(small(), pictures=2).pictures == {}  # tables are no images


def test_noise_as_in_the_paper_or_as_wide_as_the_columns() -> None:
    assert published_noise("mnist-14", TEST_NOISE) == 10.0 and published_noise("bank", TEST_NOISE) is None
    federation = small(rows=90)
    run = train(federation, "vimadmm")
    named = replace(run, about={**run.about, "federation": "cifar10-9"})
    assert named.explain(federation).noise_std == 1.0 and run.explain(federation).noise_std is None


def test_what_cannot_be_explained_is_said(federation: Federation) -> None:
    run = train(federation, "vimadmm")
    with pytest.raises(DataError, match="'party_1'"):
        run.explain(small(widths=(5, 4, 5)))
    with pytest.raises(DataError, match="pass them"):
        run.explain()
    with pytest.raises(ConfigError, match="did you mean 'draws'"):
        run.explain(federation, drews=1)
    nothing = replace(federation, split=replace(federation.split, validation=federation.split.validation[:0]))
    with pytest.raises(DataError, match="no validation rows"):
        run.explain(nothing)
    some = explain(run, federation, ExplainSettings(most_rows=7))
    assert some.count == 7


def test_scattered_rows_have_kinds_with_names() -> None:
    """Of classes their names, of several labels the first, of numbers the third they lie in."""
    classes = torch.tensor([2, 0, 1])
    assert Multiclass(3, ("a", "b", "c")).kinds(classes) == ([2, 0, 1], ["a", "b", "c"])
    assert Binary(1, ("no", "yes")).kinds(torch.tensor([1.0, 0.0])) == ([1, 0], ["no", "yes"])
    assert Multilabel(2, ("ill", "old")).kinds(torch.tensor([1.0, 0.0])) == ([1, 0], ["without ill", "with ill"])
    places, names = Regression(1).kinds(torch.arange(9.0))
    assert places == [0, 0, 0, 1, 1, 1, 2, 2, 2] and names == ["up to 2.67", "2.67 to 5.33", "above 5.33"]
