"""local_only with privacy.unit = "row": against plain DP-SGD, in both engines, after a kill, and in the ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from colonnade import Federation, Run, VerticalClassifier, cross_validate, fit
from colonnade.errors import ColonnadeError, ConfigError, GateError, Refused
from colonnade.federation import RowSplit
from colonnade.fit import Trainer, resume
from colonnade.job import read_job
from colonnade.methods import LocalOnly
from colonnade.models.encoders import ModelSettings
from colonnade.models.optimise import SGD, AdamW
from colonnade.models.row_steps import TAKEN
from colonnade.privacy.sampled import SampledGaussianEvent
from colonnade.randomness import stream
from colonnade.report.privacy import statement_of_run
from colonnade.schedule import RoundPlan
from colonnade.wire.messages import COORDINATOR, Purpose
from tests.federations import small
from tests.trainers import open_trainer, party_tensors

PRIVATE: dict[str, Any] = {"unit": "row", "sigma": 1.5, "clip": 0.5}
MODEL = ModelSettings(encoder="tanh", embedding=5)
ROUNDS = 4
SHORT: dict[str, Any] = {"rounds": ROUNDS, "evaluate_every": 2, "schedule": {"batch": 20}}
METHOD = LocalOnly(local_steps=2, optimiser=SGD(lr=0.5, momentum=0.9, weight_decay=0.01, halve_every=3))


def opened(method: LocalOnly = METHOD, federation: Federation | None = None, **options: Any) -> Trainer:
    options = {"model": MODEL, "privacy": PRIVATE, **SHORT, **options}
    return open_trainer(small() if federation is None else federation, method, **options)


def trained(**options: Any) -> Run:
    return opened(**options).train()


# -- the reference --------------------------------------------------------------------------------


def plainly(
    federation: Federation, party: str, first: dict[str, Tensor], method: LocalOnly, seed: int = 0
) -> nn.Module:
    """DP-SGD of one party in plain PyTorch: one row after the other, and noise from the party's own streams."""
    network = nn.Sequential(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 3, bias=False)).double()
    network[0].weight.data.copy_(first["parameter.1.weight"])
    network[0].bias.data.copy_(first["parameter.1.bias"])
    network[2].weight.data.copy_(first["head.weight.0"].T)
    parameters = [network[2].weight, network[0].weight, network[0].bias]  # heads first, as a cohort has them
    rule = method.optimiser
    make: Any = torch.optim.SGD if isinstance(rule, SGD) else torch.optim.AdamW
    settings = {"lr": rule.lr, "weight_decay": rule.weight_decay}
    optimiser = make(parameters, **settings | ({"momentum": rule.momentum} if isinstance(rule, SGD) else {}))
    train, columns = federation.split.train, next(p.columns for p in federation.parties if p.name == party).double()
    others = torch.cat([federation.split.validation, federation.split.test])  # no noise covers their scale
    columns = (columns - columns[others].mean(dim=0)) / columns[others].std(dim=0, unbiased=False)
    rate = 20 / len(train)
    for number in range(1, ROUNDS + 1):
        optimiser.param_groups[0]["lr"] = rule.lr * (0.5 ** (number / rule.halve_every) if rule.halve_every else 1)
        for step in range(method.local_steps):
            u = 1 - stream(seed, f"noise rows.{step}", party, number).random(len(train))
            sums = [torch.zeros_like(p) for p in parameters]
            for row in train[torch.from_numpy(u <= rate)]:
                loss = functional.cross_entropy(network(columns[row]), federation.labels[row])
                gradients = torch.autograd.grad(loss, parameters)
                norm = torch.sqrt(sum((g.square().sum() for g in gradients), torch.zeros(())))
                sums = [s + g * min(1.0, 0.5 / float(norm)) for s, g in zip(sums, gradients, strict=True)]
            noise = stream(seed, f"noise gradient.{step}", party, number).standard_normal(15 + 25 + 5) * 1.5 * 0.5
            head, weight, bias = np.split(noise, [15, 40])
            drawn = [
                torch.from_numpy(head.reshape(5, 3).T),
                torch.from_numpy(weight.reshape(5, 5)),
                torch.from_numpy(bias),
            ]
            for p, total, extra in zip(parameters, sums, drawn, strict=True):
                p.grad = (total + extra) / 20
            optimiser.step()
    return network


@pytest.mark.parametrize("rule", [METHOD.optimiser, AdamW(lr=0.1, weight_decay=0.02)], ids=["sgd", "adamw"])
def test_it_is_plain_dp_sgd(rule: SGD | AdamW) -> None:
    method = LocalOnly(local_steps=2, optimiser=rule)
    trainer, federation = opened(method, evaluate_every=0), small()
    first = {party: {k: v.clone() for k, v in held.items()} for party, held in party_tensors(trainer).items()}
    trainer.train()
    for party, held in party_tensors(trainer).items():
        network = plainly(federation, party, first[party], method)
        wanted = {f"parameter.1.{k}": v for k, v in network[0].named_parameters()}  # type: ignore[union-attr]
        wanted["head.weight.0"] = network[2].weight.T  # type: ignore[union-attr,operator]
        for name, value in wanted.items():
            torch.testing.assert_close(held[name], value, rtol=1e-5, atol=1e-5)  # the grid is 2^-20 of the noise


# -- engines, restarts, rows ----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_engines_agree(dtype: str) -> None:
    stacked, loop = (trained(engine=engine, dtype=dtype) for engine in ("stacked", "loop"))
    close = {"rtol": 1e-4, "atol": 1e-5} if dtype == "float32" else {"rtol": 1e-9, "atol": 1e-11}
    for party, own in stacked.models.items():
        for name, value in own.items():
            torch.testing.assert_close(loop.models[party][name], value, **close)
    assert [e.event for e in stacked.ledger] == [e.event for e in loop.ledger]


def test_a_killed_run_goes_on_bit_by_bit(tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": MODEL, "privacy": PRIVATE, "batch": 20, "checkpoint_every": 2, "rounds": 6}
    whole = fit(small(), METHOD, out=tmp_path / "whole", **options)

    def die(progress: Any) -> None:
        if progress.round == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fit(small(), METHOD, out=tmp_path / "killed", watch=die, **options)
    again = resume(tmp_path / "killed", small())
    assert again.fingerprint() == whole.fingerprint()
    assert [e.event for e in again.ledger] == [e.event for e in whole.ledger]


def test_the_rows_of_the_plan_are_not_used() -> None:
    """The coordinator's schedule is public: rows that it names would be no secret."""
    one, other = (trained(schedule={"batch": 20, "shuffle": shuffle}) for shuffle in ("epoch", "never"))
    for party, own in one.models.items():
        assert all(torch.equal(value, other.models[party][name]) for name, value in own.items())


def test_rows_that_a_party_lacks_count_nothing() -> None:
    whole = small()
    train = whole.split.train
    held = torch.ones(whole.rows, 4, dtype=torch.bool)
    held[train[::2], 0] = False
    some = Federation.from_arrays(
        {p.name: p.columns for p in whole.parties}, whole.labels, task="multiclass", split=whole.split,
        held=held,
    )  # fmt: skip
    before = trained(federation=some).models["party_0"]
    moved = some.parties[0].columns.clone()
    moved[~held[:, 0]] = 1e3
    changed = Federation.from_arrays(
        {p.name: moved if p.name == "party_0" else p.columns for p in some.parties}, some.labels, task="multiclass",
        split=some.split, held=held,
    )  # fmt: skip
    after = trained(federation=changed).models["party_0"]
    assert all(torch.equal(value, after[name]) for name, value in before.items())


def test_training_rows_have_no_part_in_the_scale_of_columns() -> None:
    """One row far out would show in every prediction, whatever the noise."""
    whole = small()
    moved = [p.columns.clone() for p in whole.parties]
    moved[0][whole.split.train[0], 0] = 1e6
    far = Federation.from_arrays(
        dict(zip(whole.names, moved, strict=True)), whole.labels, task="multiclass", split=whole.split
    )
    scales = [opened(federation=f).engine.parties()[0].cohort.scaling for f in (whole, far)]
    assert all(torch.equal(scales[0][name], scales[1][name]) for name in ("shift", "scale"))
    nothing = whole.labels[:0].long()
    alone = Federation.from_arrays(
        {p.name: p.columns for p in whole.parties}, whole.labels, task="multiclass",
        split=RowSplit(torch.arange(whole.rows), nothing, nothing),
    )  # fmt: skip
    with pytest.raises(ConfigError, match="and there are 0; needed at least 2"):
        opened(federation=alone)
    opened(federation=alone, model=MODEL.model_copy(update={"scale_columns": "never"}))


# -- what was promised ----------------------------------------------------------------------------


@pytest.mark.parametrize("evaluate_every", [1, 0], ids=["evaluated", "never evaluated"])
def test_the_ledger_has_the_training_once_before_anything_it_made(evaluate_every: int) -> None:
    run = trained(evaluate_every=evaluate_every)
    for party in run.models:
        mine = [e for e in run.ledger if e.owner == party]
        assert [e.purpose for e in mine].count(Purpose.TRAIN) == 1 and mine[0].purpose is Purpose.TRAIN
        assert mine[0].event == SampledGaussianEvent(20 / 54, 0.5, 1.5, 2 * ROUNDS, 4, True, mine[0].event.grid)  # type: ignore[attr-defined]
        assert mine[0].rows == 54 and all(e.event.bare for e in mine[1:])


def test_steps_beyond_those_counted_are_refused() -> None:
    trainer = opened()
    trainer.train()
    cohort = trainer.engine.parties()[0].cohort
    assert cohort.memory[TAKEN].tolist() == [2 * ROUNDS] * 4
    plan = RoundPlan(9, cohort.schema.train, (), cohort.names)
    with pytest.raises(GateError, match="has taken the 8 local steps"):
        METHOD.learn(cohort, plan, {}, None)  # type: ignore[arg-type]
    with pytest.raises(GateError, match="other local steps than those that were agreed on"):
        METHOD.learn(cohort, RoundPlan(9, plan.rows, (), cohort.names, (("party_0", 7),)), {}, None)  # type: ignore[arg-type]


def test_calibrated_noise_stays_within_the_budget() -> None:
    run = trained(privacy={"unit": "row", "epsilon": 3.0})
    told = statement_of_run(run)
    assert 2.9 < told.epsilon <= 3.0
    facts = told.to_json()
    assert (facts["unit"], facts["accountant"], facts["neighbours"]) == ("ROW", "PLD", "absent")
    assert facts["training_at_home"]["at_parties"] == 4 and facts["simulated"]
    assert "whoever knows its seed" in " ".join(told.lines())
    assert run.epsilon is not None and run.epsilon.unit == "ROW" and float(run.epsilon) == told.epsilon


def test_both_guarantees_are_told_where_labels_are_noised() -> None:
    labels = {"mechanism": "randomised_response", "epsilon": 2.0}
    told = " ".join(statement_of_run(trained(privacy={**PRIVATE, "labels": labels})).lines())
    assert "unit ROW" in told and "unit LABEL" in told and "the two guarantees compose" in told


def test_training_rows_are_not_predicted() -> None:
    run, federation = trained(), small()
    rows = federation.split.train[:3]
    with pytest.raises(Refused, match="trained"):
        run.logits({p.name: p.columns[rows] for p in federation.parties})
    test = federation.split.test
    assert len(run.logits({p.name: p.columns[test] for p in federation.parties})) == len(test)
    assert [e.event.name for e in run.ledger if e.owner != COORDINATOR].count("sampled gaussian") == 4


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "numbers": ({"federation": small(task="regression")}, "labels of a .* task are put on a scale"),
    "counts": ({"federation": small(task="count")}, "labels of a .* task are put on a scale"),
    "weights of rows": ({"federation": small(weighted=True)}, "weights of rows or classes"),
    "weights of classes": ({"class_weights": "balanced"}, "weights of rows or classes"),
    "steps of one party": ({"schedule": {"steps": {"party_0": 3}}}, "leave training.schedule.steps out"),
    "compiled": ({"compile": True, "dtype": "float32"}, "leave training.compile"),
    "a secure sum": ({"privacy": {**PRIVATE, "secure_sum": {"use": True}}}, "do not go together"),
    "replaced": ({"privacy": {**PRIVATE, "neighbours": "replaced"}}, "neighbours = 'absent'"),
    "evaluation": ({"privacy": {**PRIVATE, "evaluation": "simulated"}}, "evaluation is about noise on uploads"),
    "no noise": ({"privacy": {"unit": "row"}}, "needs sigma .*, epsilon"),
    "no mechanism": ({"privacy": {"unit": "row", "mechanism": "none"}}, "mechanism = 'none' does not give"),
    "too little noise": ({"privacy": {**PRIVATE, "epsilon": 1.0}}, "8 steps at each of 4 parties with sigma 1.5"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_not_hold_is_refused(name: str) -> None:
    options, reason = REFUSED[name]
    with pytest.raises(ColonnadeError, match=reason):
        opened(**options)


def test_methods_that_upload_are_refused() -> None:
    with pytest.raises(ConfigError, match="vimadmm uploads: use local_only"):
        fit(small(), "vimadmm", privacy={"unit": "row", "epsilon": 3.0})


# -- tables: no statistic of a training row ----------------------------------------------------------


def frames(outlier: float = 0.0) -> dict[str, pd.DataFrame]:
    """Rows 0 to 39 train; the first is far out, of a category of its own."""
    rng = np.random.default_rng(0)
    first = pd.DataFrame({"a": rng.normal(size=60), "kind": rng.choice(["x", "y"], 60)})
    first.loc[0, "a"] += outlier
    first.loc[0, "kind"] = "x" if outlier == 0 else "rare"
    return {"one": first, "two": pd.DataFrame({"b": rng.normal(size=60)})}


TABLE_SPLIT = RowSplit(torch.arange(40), torch.arange(40, 50), torch.arange(50, 60))
YES_NO = np.arange(60) % 2


def joined(outlier: float, columns_from: Any = "others") -> Federation:
    return Federation.from_tables(frames(outlier), labels=YES_NO, split=TABLE_SPLIT, columns_from=columns_from)


def test_a_training_row_says_nothing_of_how_columns_become_numbers() -> None:
    plain, far = joined(0.0), joined(1e6)
    for party, other in zip(plain.parties, far.parties, strict=True):
        assert torch.equal(party.columns[1:], other.columns[1:]), party.name
    train = [joined(outlier, "training").parties[0].columns[1:] for outlier in (0.0, 1e6)]
    assert train[0].shape != train[1].shape or not torch.equal(*train), "the test would see it"


def test_tables_that_were_encoded_by_training_rows_are_refused() -> None:
    with pytest.raises(ConfigError, match="columns_from = 'others'"):
        opened(federation=joined(0.0, "training"))
    assert opened(federation=joined(0.0)).train().epsilon is not None
    alone = RowSplit(torch.arange(59), torch.arange(59, 60), torch.arange(0))
    with pytest.raises(ConfigError, match="there are 1; needed at least 2"):
        Federation.from_tables(frames(), labels=YES_NO, split=alone, columns_from="others")
    with pytest.raises(ConfigError, match="needed 'training' or 'others'"):
        joined(0.0, "test")


def test_estimators_files_and_folds_see_to_it_themselves(tmp_path: Path) -> None:
    private = {"unit": "row", "sigma": 2.0}
    for name, frame in frames().items():
        frame.assign(id=range(60), **({"label": YES_NO} if name == "one" else {})).to_csv(
            tmp_path / f"{name}.csv", index=False
        )
    files = {name: str(tmp_path / f"{name}.csv") for name in frames()}
    data = {"tables": files, "labels": "label", "id": "id"}
    length = {"rounds": 2, "schedule": {"batch": 20}, "evaluate_every": 0}
    job = read_job({"data": data, "method": {"name": "local_only"}, "training": length, "privacy": private})
    assert job.federation().columns_from == "others" and job.tables["data"]["columns_from"] == "others"
    assert len(cross_validate(frames(), LocalOnly(), labels=YES_NO, folds=2, privacy=private, rounds=2).runs) == 2
    model = VerticalClassifier(method=LocalOnly(), model="linear", privacy=private, epochs=1, validation_fraction=0.2)
    model.fit(frames(), YES_NO)
