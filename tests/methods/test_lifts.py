"""Lifted scores of vimadmm_j: ADMM on blocks, the same in every engine, told where they must be told, and worth it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from colonnade import Federation, Model, Run, fit
from colonnade.audit.books import AuditedRun, check_books
from colonnade.errors import ConfigError
from colonnade.explain.shares import share_of_part
from colonnade.methods import VIMADMMJ
from colonnade.methods._lifts import SIDES, factors, lifted, spread
from colonnade.models.encoders import ModelSettings
from colonnade.models.optimise import SGD
from colonnade.models.sides import find_cuts
from colonnade.models.subsets import fit_subsets
from colonnade.privacy.mechanism import Unchanged
from colonnade.report.interactions import lifted as lifted_in_words
from colonnade.report.interactions import not_tested
from colonnade.report.privacy import statement_of, statement_of_run
from colonnade.testing.methods import assert_engines_end_alike, assert_resumes
from colonnade.wire.messages import COORDINATOR, Purpose
from tests.federations import small
from tests.methods.test_lacking_rows import lacking
from tests.reference.lifted import Lifted, sides
from tests.reference.vimadmm import Encoder, Momentum, Settings
from tests.trainers import open_trainer, party_tensors, rounds_of

WIDTHS = (5, 4, 5)
LIFTS, GUEST = 2, "party_0"
LOCAL = SGD(lr=0.05, momentum=0.9, weight_decay=0.01)
METHOD = VIMADMMJ(lifts=LIFTS, guest=GUEST, local_steps=2)
TINY = ModelSettings(hidden=6, embedding=4)
QUICK: dict[str, Any] = {"rounds": 5, "schedule": {"batch": 20}, "evaluate_every": 2, "model": TINY}
RIDGE = ModelSettings(encoder="ridge", party_1={"encoder": "mlp", "hidden": 6, "embedding": 4})


def xor(rows: int = 2000) -> Federation:
    """Two signs, which only together say anything."""
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, rows, 3)).astype(np.float32)
    yes = rng.random(rows) < 1 / (1 + np.exp(-4 * np.sign(a[:, 1] * b[:, 1])))
    return Federation.from_arrays({"bank": a, "shop": b}, yes.astype(int), task="binary")


# -- the mathematics --------------------------------------------------------------------------


def test_cuts_are_medians_and_columns_without_two_sides_are_passed_over() -> None:
    rng = np.random.default_rng(1)
    mostly = (rng.random(1000) < 0.7).astype(float)
    columns = torch.from_numpy(np.stack([np.ones(1000), mostly, rng.random(1000) < 0.01, rng.normal(size=1000)], 1))
    found = find_cuts(columns, 4)
    assert found.places.tolist() == [1, 3]  # a constant and a rarity have one side
    above = found.above(columns).double().mean(dim=0)
    assert above[0] == pytest.approx(mostly.mean()) and above[1] == pytest.approx(0.5)
    assert find_cuts(columns, 1).places.tolist() == [1]
    assert len(find_cuts(columns[:0], 2).places) == 0


def test_a_lifted_sum_by_hand() -> None:
    phi = factors(torch.tensor([[2, 1], [0, 2], [9, 1]], dtype=torch.uint8))
    assert phi.tolist() == [[1, 1, -1], [1, 0, 1], [1, 0, -1]]  # a code that nobody may send counts as unknown
    outputs = torch.tensor([[1.0, 2.0, 10.0, 20.0, 100.0, 200.0]]).expand(3, -1)
    assert lifted(outputs, phi).tolist() == [[-89, -178], [101, 202], [-99, -198]]
    assert spread(torch.tensor([[3.0, 4.0]]), phi[:1]).tolist() == [[3, 4, 3, 4, -3, -4]]


@pytest.mark.parametrize("damping", [1.0, 0.5])
def test_training_is_admm_with_a_block_in_the_place_of_a_party(damping: float) -> None:
    """Every weight and dual of seven rounds, against the unfolded algorithm in NumPy."""
    federation = small(rows=60)
    tuned = METHOD.model_copy(update={"local_steps": 3, "optimiser": LOCAL, "damping": damping})
    model = ModelSettings(hidden=6, embedding=4, scale_columns="never")
    trainer = open_trainer(federation, tuned, model=model, rounds=7, evaluate_every=0, schedule={"batch": 16})
    held, names = party_tensors(trainer), ("1.weight", "1.bias", "3.weight", "3.bias")
    weights = [[held[p][f"parameter.{n}"].numpy().T.copy() for n in names] for p in federation.names]
    columns = [party.columns.numpy().astype(float) for party in federation.parties]
    reference = Lifted(
        settings=Settings(damping=damping / (1 + LIFTS)),
        names=federation.names,
        columns=columns,
        targets=np.eye(3)[federation.labels.numpy()],
        encoders=[Encoder(*each) for each in weights],
        heads=[held[p]["head.weight.0"].numpy().copy() for p in federation.names],
        optimiser=lambda: Momentum(LOCAL.lr, LOCAL.momentum, LOCAL.weight_decay),
        phi=sides(columns[0], federation.split.train.numpy(), LIFTS),
    )
    worst = 0.0
    for one in rounds_of(trainer):
        if one.request.number > 8:
            break
        held = party_tensors(trainer)
        gaps = [np.abs(trainer.coordinator.state["dual"].numpy() - reference.dual).max()]
        for k, party in enumerate(federation.names):
            net = reference.encoders[k]
            ours = [held[party][f"parameter.{name}"].numpy().T for name in names]
            gaps += [np.abs(x - y).max() for x, y in zip(ours, net.weights, strict=True)]
            gaps.append(np.abs(held[party]["head.weight.0"].numpy() - reference.heads[k]).max())
        worst = max(worst, *gaps)
        if one.request.number <= 7:
            reference.whole_round(
                one.request.number, trainer.coordinator.schedule.plan(one.request.number).rows.numpy(), ()
            )
    assert worst <= 1e-9
    assert np.abs(reference.dual).max() > 0.1  # something was learned


def test_without_lifts_nothing_is_different() -> None:
    """Neither a name of a guest, nor anything of it in the messages."""
    federation = small(WIDTHS)
    plain, named = (
        open_trainer(federation, VIMADMMJ(local_steps=2, guest=guest), **QUICK).train() for guest in (None, GUEST)
    )
    assert plain.fingerprint() == named.fingerprint() and "lifts" not in plain.result


# -- everywhere the same ----------------------------------------------------------------------


@pytest.mark.parametrize("model", [TINY, RIDGE], ids=["networks", "ridge and a network"])
def test_engines_agree(model: ModelSettings) -> None:
    federation = small(WIDTHS)
    for extra in ({}, {"wire": {"numbers": "int8"}}, {"schedule": {"batch": 20, "participation": 0.5}}):
        assert_engines_end_alike(federation, METHOD, **{**QUICK, "model": model, **extra})


@pytest.mark.parametrize("task", ["binary", "regression", "count", "multilabel"])
def test_all_tasks(task: str) -> None:
    assert_engines_end_alike(small(WIDTHS, task=task), METHOD, **QUICK)


def test_restarts_give_the_same_bits(tmp_path: Path) -> None:
    assert_resumes(small(WIDTHS), METHOD, tmp_path, rounds=5, batch=20, evaluate_every=1, model=RIDGE)


def test_a_saved_model_and_a_table_predict_as_the_training_did(tmp_path: Path) -> None:
    """The cuts are part of the guest's model; where its table has the labels, it is the guest."""
    rng = np.random.default_rng(3)
    a, b = (pd.DataFrame(rng.normal(size=(200, 3)), columns=list("xyz")) for _ in "ab")
    tables = {"bank": a.assign(yes=(a.x * b.x > 0).astype(int)), "shop": b}
    federation = Federation.from_tables(tables, labels="yes")
    run = fit(federation, "vimadmm_j", lifts=2, rounds=5, batch=50, model=TINY)
    assert run.method.guest == "bank" and run.about["groups"] == [["bank"], ["shop"]]
    run.save(tmp_path / "run")
    model, new = Model.load(tmp_path / "run"), {"bank": a.head(40), "shop": b.head(40)}
    assert np.array_equal(model.predict_proba(new), run.model.predict_proba(new))
    told = run.model.part("bank").predict(a.head(40))
    assert told[SIDES].dtype is torch.uint8 and set(told[SIDES].unique().tolist()) == {1, 2}
    assert set(run.model.part("shop").predict(b.head(40))) == {"o"}


def test_trees_at_the_parties() -> None:
    pytest.importorskip("lightgbm")
    federation, trees = xor(1200), ModelSettings(encoder="trees", trees={"leaves": 4})
    run = fit(federation, METHOD.model_copy(update={"guest": "bank"}), rounds=8, batch=2000, model=trees)
    assert (run.result["test_score"] or 0) > 0.9


# -- what it is for ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def seen() -> Run:
    return fit(
        xor(), "vimadmm_j", lifts=LIFTS, guest="bank", rounds=30, batch=500, model={"hidden": 16, "embedding": 8}
    )


def test_it_sees_xor_where_a_sum_sees_nothing_and_the_record_says_so(seen: Run) -> None:
    plain = fit(xor(), "vimadmm_j", rounds=12, batch=500, model={"hidden": 16, "embedding": 8})
    assert (plain.result["test_score"] or 0) < 0.6 and (seen.result["test_score"] or 0) > 0.93
    found = seen.result["lifts"]
    assert found["interval"] is not None and found["interval"][0] > 0.3
    assert found["lifted"] == pytest.approx(seen.result["test_score"])
    assert found["difference"] == found["lifted"] - found["plain"]
    (told,) = lifted_in_words(seen.record())
    assert told.startswith("Lifted scores: the sides of 2 columns of bank and other parties' columns say something")
    assert not_tested(seen.record()) == [] and "colonnade worth --interactions asks" in not_tested(plain.record())[0]


def test_it_says_where_lifting_was_for_nothing() -> None:
    federation = small((3, 3), rows=600, task="binary")
    run = fit(federation, "vimadmm_j", lifts=LIFTS, guest=GUEST, rounds=20, batch=200, model=TINY)
    (told,) = lifted_in_words(run.record())
    assert "add nothing that 120 test rows could show" in told and "lifts = 0" in told


# -- some parties -----------------------------------------------------------------------------


def test_sets_without_the_guest_have_the_combination_of_plain_parts() -> None:
    federation = small(WIDTHS, rows=120, task="binary")
    run = open_trainer(federation, METHOD, **{**QUICK, "rounds": 6}).train()
    validation, test = federation.split.validation, federation.split.test
    told = {p.name: (p, run.model.part(p.name)) for p in federation.parties}

    def outputs(party: str, rows: torch.Tensor) -> torch.Tensor:
        owner, part = told[party]
        return part.predict(owner.columns[rows])["o"]

    def phi(rows: torch.Tensor) -> torch.Tensor:
        owner, part = told[GUEST]
        return factors(part.predict(owner.columns[rows])[SIDES])

    for parties, with_guest in ((("party_1", "party_2"), False), ((GUEST, "party_2"), True)):
        scores, new = (
            torch.stack(
                [lifted(outputs(p, rows), phi(rows)) if with_guest else outputs(p, rows)[:, :1] for p in parties]
            )
            for rows in (validation, test)
        )
        y = federation.labels[validation].double().view(-1, 1)
        slow = fit_subsets(federation.task, scores, y, torch.ones(1, 2, dtype=torch.bool))
        wanted = torch.einsum("m,mbk->bk", slow.weights[0], new) + slow.bias[0]
        here = {p: told[p][0].columns[test] for p in parties}
        found = run.model.prediction(here, absent="leave-out")
        torch.testing.assert_close(found.logits, wanted, rtol=0, atol=1e-6)


def test_rows_that_parties_lack_also_the_guest() -> None:
    """What stands in a row that somebody lacks changes nothing, neither its sides nor the medians."""
    one, other = (open_trainer(lacking(filler=filler), METHOD, **QUICK).train() for filler in (0.0, 1e3))
    assert one.fingerprint() == other.fingerprint()
    assert_engines_end_alike(lacking(), METHOD, **QUICK)


def test_rounds_without_the_guest_are_plain() -> None:
    assert_engines_end_alike(small(WIDTHS), METHOD, **{**QUICK, "schedule": {"batch": 20, "party_dropout": 0.4}})


# -- what is told and what is refused ---------------------------------------------------------


def test_ledger_and_statement_say_who_is_told_of_sides(seen: Run) -> None:
    noted = [entry for entry in seen.ledger if dict(entry.notes).get("column_sides") == LIFTS]
    up = {entry.owner for entry in noted if entry.owner != COORDINATOR}
    down = [entry for entry in noted if entry.owner == COORDINATOR]
    assert up == {"bank"} and {entry.audience for entry in down} == {"*"} and len(down) == 30
    assert {entry.purpose for entry in noted if entry.owner == "bank"} == {Purpose.TRAIN, Purpose.EVALUATE}
    sentence = (
        "bank is named as the label holder's own party and sends it the sides of the median that 2 of its columns are "
        "on, without noise, of every row that trains, is evaluated or predicted; of the training rows the replies tell "
        "them to all parties. No other party's columns are sent."
    )
    statement = statement_of_run(seen)
    again = statement_of(seen.record())
    assert sentence in statement.verdict() and again is not None and sentence in again.verdict()


def test_an_audit_finds_the_books_right() -> None:
    federation = small(WIDTHS)
    trainer = open_trainer(federation, METHOD, **QUICK)
    audited = AuditedRun(trainer.coordinator.schedule, federation.split, Unchanged())
    assert check_books(trainer.train(), audited).problems == ()


def test_traffic_grows_by_the_blocks_up_and_by_a_byte_a_side_down() -> None:
    federation, options = small((4, 4, 4), rows=300), {**QUICK, "evaluate_every": 0, "schedule": {"batch": 90}}
    plain, wide = (
        open_trainer(federation, method, **options).train().traffic
        for method in (VIMADMMJ(local_steps=2), METHOD.model_copy(update={"lifts": 3}))
    )
    rounds, sent = 5, 90 * 3 * 8  # three outputs in float64
    more_up = [b - a for a, b in zip(*(t.per_party()["party_1"].values() for t in (plain, wide)), strict=True)]
    assert abs(more_up[0] - rounds * 3 * sent) < 200 and abs(more_up[1] - rounds * 90 * 3) < 100 * rounds
    guest = wide.per_party()[GUEST]["up"] - wide.per_party()["party_1"]["up"]
    assert abs(guest - rounds * 90 * 3) < 100 * rounds  # and the name of the array


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({"guest": None}, {}, "nobody is the guest"),
        ({"guest": "nobody"}, {}, "guest = 'nobody' is no party of this run"),
        ({}, {"privacy": {"secure_sum": {"use": True}}}, "which a secure sum would be about"),
        (
            {},
            {"privacy": {"mechanism": "gaussian", "sigma": 1.0, "clip": 1.0}},
            "which noise before uploads would be about",
        ),
        ({"lifts": 9}, {}, "lifts = 9: 5 columns of party 'party_0' have a tenth of the training rows on either side"),
    ],
)
def test_what_cannot_be_lifted_is_refused_by_name(change: Any, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_trainer(small(WIDTHS), METHOD.model_copy(update=change), **QUICK, **options)


def test_a_party_cannot_explain_lifted_scores_by_itself(seen: Run) -> None:
    with pytest.raises(ConfigError, match="the scores of party 'shop' are lifted"):
        share_of_part(seen.model.part("shop"))


def test_protected_labels_are_protected_as_before(seen: Run) -> None:
    """Replies are made from noisy labels, and sides from no label."""
    labels = {"labels": {"mechanism": "randomised_response", "epsilon": 1.0}}
    run = open_trainer(small(WIDTHS), METHOD, privacy=labels, **QUICK).train()
    made = {entry.event.name for entry in run.ledger if entry.owner == COORDINATOR and entry.notes}
    assert made == {"randomised response"}
    assert run.label_exposure.value == "EPS" and seen.label_exposure.value == "FULL"


def test_auc_is_that_of_the_lifted_sum(seen: Run) -> None:
    """From what the parts say, by hand."""
    federation = xor()
    rows = federation.split.test
    told = {p.name: seen.model.part(p.name).predict(p.columns[rows]) for p in federation.parties}
    blocks = sum(told[name]["o"].double() for name in ("bank", "shop")).numpy()
    signs = np.where(told["bank"][SIDES].numpy() == 2, 1.0, -1.0)
    by_hand = blocks[:, 0] + (blocks[:, 1:] * signs).sum(axis=1)
    assert roc_auc_score(federation.labels[rows], by_hand) == pytest.approx(seen.result["test_score"], abs=1e-6)
