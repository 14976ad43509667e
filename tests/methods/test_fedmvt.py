"""FedMVT against plain loops, row by row; and that nothing a party does not hold can reach the training."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from colonnade.data.sets import digits
from colonnade.errors import ConfigError
from colonnade.federation import Federation, Party, RowSplit
from colonnade.fit import Trainer, fit
from colonnade.methods import FedMVT, SplitLearning
from colonnade.methods._views import BOTH, FIRST, SECOND, attend, weigh
from colonnade.models.encoders import ModelSettings
from colonnade.models.heads import HeadSettings
from colonnade.models.optimise import SGD, AdamW
from colonnade.privacy.events import LabelExposure
from colonnade.schedule import RoundPlan
from colonnade.tasks import TASKS
from tests.federations import small
from tests.methods.plain_split import torch_optimiser
from tests.trainers import open_trainer, party_tensors, rounds_of

FEDERATION = small(widths=(5, 5), rows=80)
HIDDEN, WIDTH, SHARED, ROUNDS = 6, 5, 2, 8
LINEAR = ModelSettings(hidden=HIDDEN, embedding=WIDTH, scale_columns="never")
MLP = LINEAR.model_copy(update={"head": HeadSettings(layers=2, dropout=0.0)})
SGDS = {"optimiser": SGD(lr=0.15, momentum=0.9), "server_optimiser": SGD(lr=0.4, momentum=0.0, weight_decay=0.01)}
ADAMS = {"optimiser": AdamW(lr=0.02), "server_optimiser": AdamW(lr=0.03)}
FEW = {"matched": 0.4, "threshold": 0.36, "host_threshold": 0.35}  # so unsure that some labels are guessed at once


@dataclass
class Plain:
    """One party, one row, one number at a time; the only thing from the package is the settings object."""

    method: FedMVT
    encoders: list[nn.Module]
    classifiers: list[nn.Module]  # joint, first, second
    holders: list[int]
    guessed: int = 0
    leave_out: str = ""  # a deliberate mistake
    table: list[Tensor] = field(init=False)

    def __post_init__(self) -> None:
        self.columns = [p.columns.double() for p in FEDERATION.parties]
        self.table = [torch.zeros(FEDERATION.rows, WIDTH).double() for _ in self.columns]
        self.local = [torch_optimiser(self.method.optimiser, e.parameters()) for e in self.encoders]
        everything = [p for model in self.classifiers for p in model.parameters()]
        self.above = torch_optimiser(self.method.server_optimiser, everything)
        self.guest = 0 if self.method.guest == "first" else 1

    def holds(self, party: int, row: int) -> bool:
        return self.holders[row] in (BOTH, FIRST if party == 0 else SECOND)

    def attended(self, query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
        if not keys:
            return torch.zeros(len(query)).double()
        sizes = [(query * k).sum() / (self.method.temperature * math.sqrt(len(query))) for k in keys]
        largest = max(size.detach() for size in sizes)
        powers = [torch.exp(size - largest) for size in sizes]
        return sum(p * v for p, v in zip(powers, values, strict=True)) / sum(powers)

    def guess(self, h: list[Tensor], rows: list[int], i: int, missing: int) -> Tensor:
        """The view that `missing` would have of the batch's row i, as the other party sees it."""
        cut, other = WIDTH - SHARED, 1 - missing
        matched = [j for j, row in enumerate(rows) if self.holders[row] == BOTH]
        theirs = [j for j, row in enumerate(rows) if self.holds(missing, row)]
        unique = self.attended(
            h[other][i, :cut], [h[other][j, :cut] for j in matched], [h[missing][j, :cut] for j in matched]
        )
        common = self.attended(
            h[other][i, cut:], [h[missing][j, cut:] for j in theirs], [h[missing][j, cut:] for j in theirs]
        )
        return torch.cat([unique, common])

    def objective(self, h: list[Tensor], rows: list[int]) -> Tensor:
        cut, m = WIDTH - SHARED, self.method
        matched = [i for i, row in enumerate(rows) if self.holders[row] == BOTH]
        losses: dict[bool, list[Tensor]] = {True: [], False: []}
        for i, row in enumerate(rows):
            views = [h[k][i] if self.holds(k, row) else self.guess(h, rows, i, k) for k in (0, 1)]
            logits = [model(x) for model, x in zip(self.classifiers, (torch.cat(views), *views), strict=True)]
            label = int(FEDERATION.labels[row]) if self.holds(self.guest, row) else self.pseudo(logits)
            if label is not None:
                wanted = torch.tensor([label])
                losses[self.holders[row] == BOTH].append(sum(F.cross_entropy(o[None], wanted) for o in logits))
        share = len(losses[True]) / max(1, len(losses[True]) + len(losses[False]))
        share = max(share, m.emphasis) if losses[True] and losses[False] else share
        total = torch.zeros(()).double()
        for part, weight in ((losses[True], share), (losses[False], 1 - share)):
            total = total + (weight * sum(part) / len(part) if part else 0.0)
        if matched and self.leave_out != "align":
            total = total + m.align * sum((h[0][i, cut:] - h[1][i, cut:]).square().mean() for i in matched) / len(
                matched
            )
        for k in (0, 1):
            gaps = [(self.guess(h, rows, i, k) - h[k][i]).square().mean() for i in matched]
            total = total + (m.recover * sum(gaps) / len(gaps) if gaps else 0.0)
            mine = [i for i, row in enumerate(rows) if self.holds(k, row)]
            crossed = sum(torch.outer(h[k][i, :cut], h[k][i, cut:]) for i in mine)
            total = total + m.separate * crossed.norm() / len(mine)
        return total

    def pseudo(self, logits: list[Tensor]) -> int | None:
        joint, guest, host = (F.softmax(logits[k].detach(), dim=0) for k in (0, 1 + self.guest, 2 - self.guest))
        same = int(joint.argmax()) == int(guest.argmax()) == int(host.argmax())
        if (
            self.leave_out != "pseudo"
            and same
            and joint.max() > self.method.threshold
            and host.max() > self.method.host_threshold
        ):
            self.guessed += 1
            return int(joint.argmax())
        return None

    def round(self, plan: RoundPlan) -> None:
        places = {party.name: k for k, party in enumerate(FEDERATION.parties)}
        for k in (places[name] for name in plan.senders):
            self.table[k][plan.rows] = self.encoders[k](self.columns[k][plan.rows]).detach()
        heard = [table[plan.rows].clone().requires_grad_() for table in self.table]
        self.above.zero_grad()
        self.objective(heard, plan.rows.tolist()).backward()
        self.above.step()
        for k in (places[name] for name in plan.learners):
            self.local[k].zero_grad()
            self.encoders[k](self.columns[k][plan.rows]).backward(heard[k].grad)
            self.local[k].step()

    def logits(self, rows: Tensor) -> Tensor:
        with torch.no_grad():
            return self.classifiers[0](
                torch.cat([e(x[rows]) for e, x in zip(self.encoders, self.columns, strict=True)], 1)
            )


def plain_of(trainer: Trainer, method: FedMVT, **choices: Any) -> Plain:
    """The reference, with the first weights and the holders of a trainer."""
    encoders: list[nn.Module] = []
    for held in party_tensors(trainer).values():
        network = nn.Sequential(nn.Flatten(), nn.Linear(5, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH), nn.ReLU())
        network.double().load_state_dict({k.removeprefix("parameter."): v for k, v in held.items()})
        encoders.append(network)
    state = trainer.coordinator.state
    classifiers = [classifier(state, name) for name in ("joint", "first", "second")]
    return Plain(method, encoders, classifiers, state["cache.holders"].tolist(), **choices)


def classifier(state: dict[str, Tensor], name: str) -> nn.Module:
    count = sum(key.startswith(f"server.{name}.weight") for key in state)
    layers: list[nn.Module] = []
    for i in range(count):
        weight = state[f"server.{name}.weight.{i}"][0]
        layer = nn.Linear(*weight.shape, bias=count > 1).double()
        layer.weight.data.copy_(weight.T)
        if count > 1:
            layer.bias.data.copy_(state[f"server.{name}.bias.{i}"][0, 0])
        layers += [layer] if i == count - 1 else [layer, nn.ReLU()]
    return nn.Sequential(*layers)


def assert_same_training(method: FedMVT, model: ModelSettings, schedule: dict[str, Any], **choices: Any) -> Plain:
    """Some rounds on both sides, then every logit."""
    schedule = {"batch": 12, **schedule}
    trainer = open_trainer(FEDERATION, method, model=model, rounds=ROUNDS, evaluate_every=0, schedule=schedule)
    plain, rows = plain_of(trainer, method, **choices), FEDERATION.split.test
    first = plain.logits(rows)
    for number in range(1, ROUNDS + 1):
        plain.round(trainer.coordinator.schedule.plan(number))
    ours = trainer.train().logits({p.name: p.columns[rows] for p in FEDERATION.parties})
    assert (plain.logits(rows) - first).abs().max() > 0.01  # something was learnt, so equal is not empty
    torch.testing.assert_close(ours.double(), plain.logits(rows), rtol=0, atol=1e-9)
    return plain


@pytest.mark.parametrize("guest", ["first", "second"])
@pytest.mark.parametrize(("model", "rules"), [(LINEAR, SGDS), (MLP, ADAMS)], ids=["linear, sgd", "mlp, adamw"])
def test_it_is_what_plain_loops_compute(model: ModelSettings, rules: dict[str, Any], guest: str) -> None:
    method = FedMVT(**FEW, **rules, guest=guest, emphasis=0.6, align=0.5, recover=0.4, separate=0.3)
    plain = assert_same_training(method, model, {})
    assert plain.guessed > 0 or rules is SGDS  # which learns too little in eight rounds for all three to agree


@pytest.mark.parametrize("matched", [1.0, 0.02])
def test_with_all_rows_matched_and_with_one(matched: float) -> None:
    """One matched row in 48: most batches have none, so nothing is known of the missing unique parts."""
    assert_same_training(FedMVT(**{**FEW, "matched": matched}, **SGDS), LINEAR, {})


def test_silent_parties_count_with_their_last_word() -> None:
    schedule = {"participation": 0.5, "silent_learn": False}
    assert_same_training(FedMVT(**FEW, **ADAMS), LINEAR, schedule)


@pytest.mark.parametrize("mistake", ["align", "pseudo"])
def test_another_method_would_be_noticed(mistake: str) -> None:
    with pytest.raises(AssertionError, match="not close"):
        assert_same_training(FedMVT(**FEW, **ADAMS, align=0.5), MLP, {}, leave_out=mistake)


class TestWhatIsNotHeld:
    """The rows are there, since the simulation is; but they have no part in the training."""

    method = FedMVT(**FEW, **ADAMS)

    def trained(self, federation: Federation) -> str:
        options = {"model": LINEAR, "rounds": 8, "evaluate_every": 0, "schedule": {"batch": 16}}
        return open_trainer(federation, self.method, **options).train().fingerprint()

    def holders(self) -> Tensor:
        return open_trainer(FEDERATION, self.method, rounds=1).coordinator.state["cache.holders"]

    def other_columns(self, place: int, holder: int) -> Federation:
        parties = list(FEDERATION.parties)
        columns = parties[place].columns.clone()
        columns[self.holders() == holder] += 1.0
        parties[place] = Party(parties[place].name, columns)
        return replace(FEDERATION, parties=tuple(parties))

    @pytest.mark.parametrize(("place", "holder"), [(0, SECOND), (1, FIRST)])
    def test_columns_that_a_party_does_not_hold_change_nothing(self, place: int, holder: int) -> None:
        assert self.trained(self.other_columns(place, holder)) == self.trained(FEDERATION)

    @pytest.mark.parametrize(("place", "holder"), [(0, FIRST), (1, SECOND)])
    def test_columns_that_it_alone_holds_do(self, place: int, holder: int) -> None:
        assert self.trained(self.other_columns(place, holder)) != self.trained(FEDERATION)

    @pytest.mark.parametrize(("holder", "same"), [(SECOND, True), (FIRST, False), (BOTH, False)])
    def test_labels_of_the_host_s_own_rows_are_never_read(self, holder: int, same: bool) -> None:
        train = torch.zeros(FEDERATION.rows, dtype=torch.bool)
        train[FEDERATION.split.train] = True
        labels = FEDERATION.labels.clone()
        chosen = (self.holders() == holder) & train
        labels[chosen] = (labels[chosen] + 1) % FEDERATION.outputs
        other = replace(FEDERATION, labels=labels)
        assert (self.trained(other) == self.trained(FEDERATION)) == same

    def test_its_gradient_is_zero_there(self) -> None:
        trainer = open_trainer(FEDERATION, self.method, engine="loop", rounds=1, evaluate_every=0)
        first, second = (e for _, e in zip(range(2), rounds_of(trainer), strict=False))
        holders = self.holders()[first.request.queries[0].rows]
        slope = second.down.groups[0]["slope"]  # (2, B, d)
        for place, lacking in ((0, SECOND), (1, FIRST)):
            assert not slope[place, holders == lacking].any()
            assert slope[place, holders == BOTH].any()

    def test_the_shares(self) -> None:
        holders = self.holders()[FEDERATION.split.train]
        assert [(holders == kind).sum().item() for kind in (BOTH, FIRST, SECOND)] == [19, 15, 14]  # of 48
        rest = torch.cat([FEDERATION.split.validation, FEDERATION.split.test])
        assert not self.holders()[rest].any()


@pytest.mark.parametrize("parties", [1, 3, 4])
def test_it_is_for_two_parties(parties: int) -> None:
    with pytest.raises(ConfigError, match=f"exactly two parties; this federation has {parties}"):
        open_trainer(small(widths=(3,) * parties), FedMVT(), rounds=1)


def test_attention_without_keys_is_zero_and_with_a_low_temperature_takes_the_nearest() -> None:
    queries, values = torch.eye(3), torch.arange(6.0).view(3, 2)
    assert not attend(queries, queries[:0], values[:0], 1.0).any()
    torch.testing.assert_close(attend(queries, queries, values, 1e-3), values)
    torch.testing.assert_close(attend(queries, queries, values, 1e9), values.mean(dim=0).expand(3, 2))


def test_weights_sum_to_one() -> None:
    both = torch.tensor([True, False, False, False, True])
    assert weigh(torch.ones(5, dtype=torch.bool), both, 0.5).tolist() == pytest.approx(
        [1 / 4, 1 / 6, 1 / 6, 1 / 6, 1 / 4]
    )
    assert weigh(torch.ones(5, dtype=torch.bool), both, 0.1).tolist() == pytest.approx(
        [0.2] * 5
    )  # no less than they are
    assert weigh(both, both, 0.5).tolist() == weigh(both, both, 0.0).tolist() == [0.5, 0.0, 0.0, 0.0, 0.5]
    assert weigh(~both, both, 0.5).sum() == pytest.approx(1.0)
    assert not weigh(torch.zeros(5, dtype=torch.bool), both, 0.5).any()


def test_how_sure_a_model_is() -> None:
    logits = torch.tensor([[2.0, -1.0], [0.1, 0.2]])
    labels, sure = FEDERATION.task.pseudo(logits)
    assert labels.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    torch.testing.assert_close(sure, logits.softmax(1).amax(1))
    labels, sure = TASKS["multilabel"](logits.shape[1]).pseudo(logits)
    assert labels.tolist() == [[1.0, 0.0], [1.0, 1.0]]
    torch.testing.assert_close(
        sure, torch.tensor([1.0, 0.1]).sigmoid().where(torch.tensor([False, True]), torch.tensor([1.0, 0.0]).sigmoid())
    )
    assert not TASKS["regression"](logits.shape[1]).pseudo(logits)[1].any()


def test_rows_that_are_not_shared_help() -> None:
    """Digits in two halves, 2 % of the rows matched: what the method is for."""
    federation, method = digits(parties=2), FedMVT(matched=0.02)
    options = {"rounds": 40, "evaluate_every": 20, "schedule": {"batch": 256}, "stopping": {"drop": 1.0}}
    holders = open_trainer(federation, method, rounds=1).coordinator.state["cache.holders"][federation.split.train]
    split = RowSplit(federation.split.train[holders == BOTH], federation.split.validation, federation.split.test)
    few = fit(replace(federation, split=split), SplitLearning(), **options)
    assert fit(federation, method, **options).result["validation_score"] > few.result["validation_score"] + 0.1


def test_a_party_that_knows_one_label_per_class_reads_the_others() -> None:
    trainer = open_trainer(FEDERATION, FedMVT(), engine="loop", rounds=1, evaluate_every=0)
    first, second = (e for _, e in zip(range(2), rounds_of(trainer), strict=False))
    labels = FEDERATION.labels[first.request.queries[0].rows]
    slope = second.down.groups[0]["slope"][0]
    known = torch.stack([(labels == c).nonzero()[0, 0] for c in labels.unique()])
    alike = F.cosine_similarity(slope[:, None], slope[known][None], dim=2)
    assert (labels[known][alike.argmax(dim=1)] == labels).double().mean() > 0.95
    assert FedMVT.exposes is LabelExposure.FULL


def test_the_published_settings() -> None:
    paper = FedMVT.paper("nus_wide")
    assert (paper.optimiser.lr, paper.temperature, paper.threshold, paper.host_threshold) == (5e-3, 0.7, 0.8, 0.7)
    assert (FedMVT.paper().align, FedMVT.paper().recover, FedMVT.paper().separate) == (0.1, 0.1, 0.01)
    with pytest.raises(ConfigError, match="no published settings"):
        FedMVT.paper("adult")


def test_a_short_run_gives_the_numbers_it_always_gave() -> None:
    method = FedMVT.paper().model_copy(update=FEW)
    run = open_trainer(FEDERATION, method, rounds=5, evaluate_every=0, seed=3).train()
    logits = run.logits({p.name: p.columns[:1] for p in FEDERATION.parties})[0].tolist()
    assert logits == pytest.approx([0.12212748, -0.118135646, -0.017020714], abs=1e-7)
