"""Label privacy: the epsilon is exact by construction, Bayes' rule is right, and nothing goes round the mechanism."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import fields, replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from colonnade.config import build
from colonnade.errors import ConfigError, GateError
from colonnade.federation import Federation
from colonnade.fit import Trainer
from colonnade.methods import METHODS, VIMADMMJ
from colonnade.models.encoders import ModelSettings
from colonnade.privacy.labels import Labels, NoisyLabels, alibi, noise_stream, randomised
from colonnade.privacy.labels.alibi import Alibi, noise_scale
from colonnade.privacy.labels.plain import PlainLabels
from colonnade.privacy.labels.randomised import RandomisedResponse, keep_probability
from colonnade.privacy.labels.settings import LabelSettings, open_labels
from colonnade.schedule import RoundPlan
from colonnade.tasks import find_task
from colonnade.tasks.multiclass import Multiclass
from colonnade.wire.codec import decode, encode
from tests.contracts.registry import AT_THE_OPENING, NAMES, covering, make
from tests.federations import digits, small
from tests.trainers import open_trainer, rounds_of

KEY = 0x1234_5678_9ABC_DEF0_1234_5678_9ABC_DEF0
KINDS: list[type[Alibi] | type[RandomisedResponse]] = [Alibi, RandomisedResponse]
MECHANISMS = ["alibi", "randomised_response"]
TASKS = [("multiclass", 4), ("binary", 1), ("multilabel", 3)]
EPSILONS = [0.3, 1.41, 2.83, 6.0]


def some_labels(task: str, outputs: int, rows: int, seed: int = 0) -> Tensor:
    rng = np.random.default_rng(seed)
    if task == "multiclass":
        return torch.from_numpy(rng.integers(0, outputs, rows))
    return torch.from_numpy(rng.integers(0, 2, (rows, outputs)).astype(np.float64))


def noisy(  # every fact of a mechanism may be varied
    kind: type[Alibi] | type[RandomisedResponse],
    values: Tensor,
    task: str = "multiclass",
    outputs: int = 4,
    *,
    rows: Tensor | None = None,
    epsilon: float = 1.41,
    uniform_rounds: int = 0,
    key: int = KEY,
) -> NoisyLabels:
    rows = torch.arange(len(values)) if rows is None else rows
    return kind.of(values, find_task(task)(outputs), rows, epsilon, uniform_rounds, key)


def plan(rows: Tensor, number: int = 1) -> RoundPlan:
    return RoundPlan(number, rows, (), ())


def all_labels(task: str, outputs: int) -> list[np.ndarray]:
    """Every label a row can have, as zeros and ones."""
    if task == "multiclass":
        return list(np.eye(outputs))
    return [np.array(bits, dtype=float) for bits in product((0, 1), repeat=outputs)]


def kept(labels: NoisyLabels) -> np.ndarray:
    """The noisy cells o, cut to [0, 1], that stand behind ALIBI's evidence (|o| - |o - 1|)/b."""
    b = noise_scale(labels.task, labels.epsilon)
    o = ((labels.evidence * b + 1) / 2).numpy()
    return (o * alibi.GRID).round(6) / alibi.GRID  # without the rounding of this way back


def lower_bound(hits: int, of: int, others: int, of_others: int, level: float = 1e-4) -> float:
    """log(p/q) at least, by Clopper and Pearson: p of the one label's answers, q of the other's."""
    low = stats.beta.ppf(level, hits, of - hits + 1) if hits else 0.0
    high = stats.beta.ppf(1 - level, others + 1, of_others - others) if others < of_others else 1.0
    return math.log(low / high) if low > 0 else -math.inf


# -- how much: ALIBI ------------------------------------------------------------------------------


class TestAlibiEpsilon:
    @pytest.mark.parametrize(("task", "outputs"), TASKS)
    @pytest.mark.parametrize("epsilon", EPSILONS)
    def test_no_noisy_label_tells_two_labels_apart_by_more(self, task: str, outputs: int, epsilon: float) -> None:
        """The density ratio of every two labels, all over a grid that reaches outside [0, 1]: e^epsilon is the top."""
        b = noise_scale(find_task(task)(outputs), epsilon)
        axis = np.linspace(-1, 2, 7)  # holds 0 and 1, where the ratio is largest
        grid = np.array(list(product(axis, repeat=outputs)))
        log_density = [stats.laplace.logpdf(grid, loc=y, scale=b).sum(axis=1) for y in all_labels(task, outputs)]
        worst = max(float((one - other).max()) for one in log_density for other in log_density)
        assert worst == pytest.approx(epsilon, rel=1e-12)

    @pytest.mark.parametrize(("epsilon", "std"), [(2 * math.sqrt(2), 1.0), (math.sqrt(2), 2.0)])
    def test_the_published_noise(self, epsilon: float, std: float) -> None:
        assert noisy(Alibi, torch.tensor([0, 1]), epsilon=epsilon).noise_std == pytest.approx(std)  # type: ignore[attr-defined]

    @pytest.mark.parametrize(("task", "outputs", "b"), [("multiclass", 4, 2), ("binary", 1, 1), ("multilabel", 3, 3)])
    def test_the_scale_is_the_distance_of_two_labels(self, task: str, outputs: int, b: float) -> None:
        distance = max(np.abs(y - x).sum() for y in all_labels(task, outputs) for x in all_labels(task, outputs))
        assert noise_scale(find_task(task)(outputs), 1.0) == distance == b

    @pytest.mark.parametrize(("task", "outputs"), TASKS)
    def test_what_is_drawn_has_that_scale(self, task: str, outputs: int) -> None:
        """The share of noisy cells up to some points, against the Laplace distribution round 0 and round 1."""
        values, epsilon = some_labels(task, outputs, 40_000), 1.7
        labels = noisy(Alibi, values, task, outputs, epsilon=epsilon)
        kind = find_task(task)(outputs)
        ones, b = alibi.cells(values, kind).numpy() == 1, noise_scale(kind, epsilon)
        for centre, cells in ((0.0, kept(labels)[~ones]), (1.0, kept(labels)[ones])):
            for point in (0.0, 0.25, 0.5, 0.75, 0.9999):
                wanted = stats.laplace.cdf(point, loc=centre, scale=b)
                spread = math.sqrt(wanted * (1 - wanted) / len(cells))
                assert abs((cells <= point).mean() - wanted) < 5 * spread, (centre, point)

    def test_cells_are_independent(self) -> None:
        labels = noisy(Alibi, torch.zeros(20_000, dtype=torch.int64))
        correlation = np.corrcoef(labels.evidence.numpy().T) - np.eye(4)
        assert np.abs(correlation).max() < 0.04
        rows = np.corrcoef(labels.evidence[::2, 0], labels.evidence[1::2, 0])[0, 1]
        assert abs(rows) < 0.05

    def test_only_a_grid_is_kept(self) -> None:
        """No trace of the last bits of the noise, which tell 0 + noise from 1 + noise."""
        cells = kept(noisy(Alibi, some_labels("multiclass", 4, 500))) * alibi.GRID
        np.testing.assert_allclose(cells, cells.round(), atol=1e-6)
        assert cells.min() >= 0
        assert cells.max() <= alibi.GRID

    @pytest.mark.parametrize(("share", "caught"), [(1.0, False), (0.5, True)])
    def test_half_the_noise_would_be_seen(self, share: float, caught: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        """An audit of the strongest event, evidence wholly for class 0 and wholly against class 1."""
        monkeypatch.setattr(alibi, "noise_scale", lambda *a: share * noise_scale(*a))
        rows, epsilon = 60_000, 1.0
        values = torch.zeros(rows, dtype=torch.int64)
        values[rows // 2 :] = 1
        e = noisy(Alibi, values, outputs=2, epsilon=epsilon).evidence
        hit = (e[:, 0] == e.max()) & (e[:, 1] == e.min())
        half = rows // 2
        bound = lower_bound(int(hit[:half].sum()), half, int(hit[half:].sum()), half)
        assert (bound > epsilon) is caught
        assert bound > 0.8 * epsilon  # or the audit would be blind


# -- how much: randomised response ----------------------------------------------------------------


class Enumerated:
    """A generator that gives every combination of `levels` uniform numbers (their middles) and of jumps once."""

    def __init__(self, levels: int, outputs: int, task: str) -> None:
        middles = (np.arange(levels) + 0.5) / levels
        jumps = range(1, outputs) if task == "multiclass" else [0]
        columns = 1 if task == "multiclass" else outputs
        every = np.array(list(product(*[middles] * columns, jumps)))
        self.uniform, self.jump = every[:, :-1], every[:, -1].astype(np.int64)
        self.count = len(every)

    def random(self, shape: Any) -> np.ndarray:
        return self.uniform.reshape(shape)

    def integers(self, low: int, high: int, count: int) -> np.ndarray:
        assert (self.jump.min(), self.jump.max(), len(self.jump)) == (low, high - 1, count)
        return self.jump


def channel(task: str, outputs: int, epsilon: float, levels: int, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """P(answer | label) of the program itself, over every outcome of its generator."""
    table = []
    for label in all_labels(task, outputs):
        draws = Enumerated(levels, outputs, task)
        monkeypatch.setattr(randomised, "noise_stream", lambda *_, draws=draws: draws)
        value = torch.tensor(label.argmax()) if task == "multiclass" else torch.from_numpy(label)
        values = value.expand(draws.count, *value.shape)
        answers = noisy(RandomisedResponse, values, task, outputs, epsilon=epsilon).compact(torch.arange(draws.count))
        as_cells = alibi.cells(answers, find_task(task)(outputs)).numpy()
        table.append([(as_cells == other).all(axis=1).mean() for other in all_labels(task, outputs)])
    return np.array(table)


class TestRandomisedResponseEpsilon:
    @pytest.mark.parametrize(
        ("task", "outputs", "levels"),
        [("multiclass", 2, 2000), ("multiclass", 5, 2000), ("binary", 1, 2000), ("multilabel", 2, 200)],
    )
    @pytest.mark.parametrize("epsilon", [0.3, 1.41, 2.83])
    def test_every_outcome(
        self, task: str, outputs: int, levels: int, epsilon: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = channel(task, outputs, epsilon, levels, monkeypatch)
        np.testing.assert_allclose(table.sum(axis=1), 1)
        np.testing.assert_allclose(table, wanted_channel(task, outputs, epsilon), atol=2 / levels)

    @pytest.mark.parametrize(("task", "outputs"), [*TASKS, ("multiclass", 2), ("multiclass", 40)])
    @pytest.mark.parametrize("epsilon", EPSILONS)
    def test_the_ratio_of_two_labels_is_exactly_e_to_the_epsilon(self, task: str, outputs: int, epsilon: float) -> None:
        table = wanted_channel(task, outputs, epsilon)
        np.testing.assert_allclose(table.sum(axis=1), 1)
        ratios = np.log(table[:, None, :] / table[None, :, :])
        assert ratios.max() == pytest.approx(epsilon, rel=1e-12)

    def test_the_probability_of_the_specification(self) -> None:
        for epsilon in EPSILONS:
            wanted = math.exp(epsilon) / (math.exp(epsilon) + 9)
            assert keep_probability(find_task("multiclass")(10), epsilon) == pytest.approx(wanted, rel=1e-14)
        assert keep_probability(find_task("multiclass")(10), 2000.0) == 1.0  # where e^epsilon overflows

    @pytest.mark.parametrize(("more", "caught"), [(0.0, False), (0.3, True)])
    @pytest.mark.parametrize("key", [KEY, KEY + 1, KEY + 2])
    def test_what_is_drawn_is_never_clearer(
        self, more: float, caught: bool, key: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Empirical epsilon of all answers and pairs of labels, by Clopper and Pearson; a planted bug rises above."""
        monkeypatch.setattr(randomised, "keep_probability", lambda t, e: keep_probability(t, e + more))
        per, epsilon = 40_000, 1.5
        values = torch.arange(3).repeat_interleave(per)
        answers = noisy(RandomisedResponse, values, outputs=3, epsilon=epsilon, key=key).compact(torch.arange(3 * per))
        counts = torch.stack([torch.bincount(answers[values == y].long(), minlength=3) for y in range(3)])
        bounds = [
            lower_bound(int(counts[y, r]), per, int(counts[x, r]), per)
            for y, x, r in product(range(3), repeat=3)
            if y != x
        ]
        assert (max(bounds) > epsilon) is caught
        assert max(bounds) > 0.9 * epsilon


def wanted_channel(task: str, outputs: int, epsilon: float) -> np.ndarray:
    """P(answer | label) from `keep_probability` and the definition."""
    keep = keep_probability(find_task(task)(outputs), epsilon)
    if task == "multiclass":
        return np.where(np.eye(outputs) == 1, keep, (1 - keep) / (outputs - 1))
    every = all_labels(task, outputs)
    return np.array([[np.prod(np.where(x == y, keep, 1 - keep)) for x in every] for y in every])


# -- Bayes' rule ----------------------------------------------------------------------------------


def slow_posterior(likelihood: np.ndarray, logits: np.ndarray, every: Iterable[np.ndarray], task: str) -> np.ndarray:
    """P(label | noisy label) over all labels a row can have, then the mean label: (K,)."""
    weights, labels = [], list(every)
    for label, likely in zip(labels, likelihood, strict=True):
        if task == "multiclass":
            prior = np.exp(logits[label.argmax()]) / np.exp(logits).sum()
        else:
            yes = 1 / (1 + np.exp(-logits))
            prior = np.prod(np.where(label == 1, yes, 1 - yes))
        weights.append(prior * likely)
    return np.array(weights) @ np.array(labels) / sum(weights)


def likelihood(labels: NoisyLabels, row: int) -> np.ndarray:
    """p(what was kept of the row | label) for every label, up to a factor."""
    task, outputs = labels.task.name, labels.task.outputs
    every = all_labels(task, outputs)
    if isinstance(labels, Alibi):
        b = noise_scale(find_task(task)(outputs), labels.epsilon)
        return np.array([stats.laplace.pdf(kept(labels)[row], loc=y, scale=b).prod() for y in every])
    answer = alibi.cells(labels.compact(torch.tensor([row])), labels.task)[0].numpy()
    index = next(i for i, y in enumerate(every) if (y == answer).all())
    return wanted_channel(task, outputs, labels.epsilon)[:, index]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("task", "outputs"), TASKS)
class TestPosterior:
    @settings(max_examples=15, deadline=None)
    @given(epsilon=st.floats(0.05, 8), scale=st.floats(0, 8), seed=st.integers(0, 10**6))
    def test_agrees_with_bayes(
        self, kind: Any, task: str, outputs: int, epsilon: float, scale: float, seed: int
    ) -> None:
        labels = noisy(kind, some_labels(task, outputs, 6, seed), task, outputs, epsilon=epsilon, key=seed + 1)
        logits = scale * torch.from_numpy(np.random.default_rng(seed).normal(size=(6, outputs)))
        rows = torch.tensor([3, 0, 5])
        fast = labels.targets(plan(rows), logits[rows]).numpy()
        every = all_labels(task, outputs)
        slow = [slow_posterior(likelihood(labels, r), logits[r].numpy(), every, task) for r in rows.tolist()]
        np.testing.assert_allclose(fast, slow, rtol=1e-9, atol=1e-12)

    def test_it_climbs_the_likelihood_of_the_noisy_label(self, kind: Any, task: str, outputs: int) -> None:
        """target - model is the gradient of log p(noisy label | model): the model's own belief is the right prior."""
        labels = noisy(kind, some_labels(task, outputs, 5), task, outputs)
        start = np.random.default_rng(1).normal(size=(5, outputs))
        logits = torch.from_numpy(start).requires_grad_()
        every = torch.from_numpy(np.array(all_labels(task, outputs)))  # (L, K)
        likely = torch.from_numpy(np.array([likelihood(labels, r) for r in range(5)]))  # (5, L)
        if task == "multiclass":
            believed, prior = logits.softmax(dim=1), logits.softmax(dim=1)
        else:
            believed = logits.sigmoid()
            yes = believed[:, None, :]
            prior = torch.where(every == 1, yes, 1 - yes).prod(dim=2)  # (5, L)
        (likely * prior).sum(dim=1).log().sum().backward()
        target = labels.targets(plan(torch.arange(5)), logits.detach())
        torch.testing.assert_close(target - believed.detach(), logits.grad)

    def test_the_prior_is_uniform_at_first(self, kind: Any, task: str, outputs: int) -> None:
        labels = noisy(kind, some_labels(task, outputs, 9), task, outputs, uniform_rounds=3)
        rows = torch.tensor([8, 1, 4])
        logits = torch.linspace(-4, 4, 3 * outputs, dtype=torch.float64).reshape(3, outputs)
        alone = labels.targets(plan(rows), torch.zeros_like(logits))
        for number in (1, 2, 3):
            assert torch.equal(labels.targets(plan(rows, number), logits), alone)
        assert torch.equal(labels.held_out(rows), alone)
        assert not torch.allclose(labels.targets(plan(rows, 4), logits), alone, atol=0.01)

    def test_the_labels_move_the_odds_by_epsilon_at_most(self, kind: Any, task: str, outputs: int) -> None:
        """Of one label against another; of one yes/no label of K against its opposite: epsilon/K."""
        epsilon = 1.41
        e = noisy(kind, some_labels(task, outputs, 4000), task, outputs, epsilon=epsilon).evidence
        moved = e.amax(dim=1) - e.amin(dim=1) if task == "multiclass" else outputs * e.abs().amax(dim=1)
        assert float(moved.max()) == pytest.approx(epsilon, rel=1e-12)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_targets_are_probabilities_whatever_the_logits(
        self, kind: Any, task: str, outputs: int, dtype: torch.dtype
    ) -> None:
        labels = noisy(kind, some_labels(task, outputs, 50), task, outputs)
        logits = 1e4 * torch.from_numpy(np.random.default_rng(0).normal(size=(50, outputs))).to(dtype)
        target = labels.targets(plan(torch.arange(50), 99), logits)
        assert target.dtype == dtype
        assert bool(((target >= 0) & (target <= 1)).all())
        if task == "multiclass":
            torch.testing.assert_close(target.sum(dim=1), torch.ones(50, dtype=dtype))

    def test_little_epsilon_leaves_nothing(self, kind: Any, task: str, outputs: int) -> None:
        """Two sets of labels that differ everywhere give the same targets: there is no other way to them."""
        values = some_labels(task, outputs, 50)
        others = (values + 1) % (outputs if task == "multiclass" else 2)
        one, other = (noisy(kind, v, task, outputs, epsilon=1e-6).held_out(torch.arange(50)) for v in (values, others))
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)

    def test_much_epsilon_gives_the_labels(self, kind: Any, task: str, outputs: int) -> None:
        values = some_labels(task, outputs, 50)
        target = noisy(kind, values, task, outputs, epsilon=300.0).held_out(torch.arange(50))
        torch.testing.assert_close(target, alibi.cells(values, find_task(task)(outputs)), rtol=0, atol=1e-6)


# -- which rows, which noise ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("task", "outputs"), TASKS)
class TestRowsAndKeys:
    def test_labels_of_other_rows_are_not_looked_at(self, kind: Any, task: str, outputs: int) -> None:
        values, train = some_labels(task, outputs, 30), torch.tensor([4, 21, 7])
        poisoned = torch.full_like(values, -7)  # not a label: reading one fails, or shows
        poisoned[train] = values[train]
        clean, other = (noisy(kind, v, task, outputs, rows=train) for v in (values, poisoned))
        assert torch.equal(clean.evidence, other.evidence)
        assert len(clean.evidence) == 3

    @pytest.mark.parametrize("use", ["targets", "held_out", "compact"])
    def test_and_cannot_be_asked_for(self, kind: Any, task: str, outputs: int, use: str) -> None:
        labels = noisy(kind, some_labels(task, outputs, 30), task, outputs, rows=torch.tensor([4, 21, 7]))
        asked = torch.tensor([7, 8])
        calls: dict[str, Callable[[], Tensor]] = {
            "targets": lambda: labels.targets(plan(asked), torch.zeros(2, outputs)),
            "held_out": lambda: labels.held_out(asked),
            "compact": lambda: labels.compact(asked),
        }
        with pytest.raises(GateError, match="the label of row 8 did not pass the mechanism"):
            calls[use]()

    def test_a_row_is_noised_alike_whoever_else_is(self, kind: Any, task: str, outputs: int) -> None:
        """Else one noise would stand on two rows' labels in two runs of a key, and their difference in the open."""
        values = some_labels(task, outputs, 30)
        everybody = noisy(kind, values, task, outputs)
        some = noisy(kind, values, task, outputs, rows=torch.tensor([21, 4, 4, 7]))
        rows = torch.tensor([4, 7, 21])
        assert torch.equal(some.about(rows), everybody.about(rows))

    def test_the_same_key_draws_the_same(self, kind: Any, task: str, outputs: int) -> None:
        values = some_labels(task, outputs, 400)
        one, again, other = (noisy(kind, values, task, outputs, key=k) for k in (KEY, KEY, KEY ^ (1 << 127)))
        assert torch.equal(one.evidence, again.evidence)
        assert not torch.equal(one.evidence, other.evidence)

    def test_torch_has_no_part_in_it(self, kind: Any, task: str, outputs: int) -> None:
        before = torch.random.get_rng_state()
        noisy(kind, some_labels(task, outputs, 40), task, outputs)
        assert torch.equal(torch.random.get_rng_state(), before)

    def test_another_epsilon_draws_other_noise(self, kind: Any, task: str, outputs: int) -> None:
        """Not the same noise on another scale: two equations would give the label."""
        values = some_labels(task, outputs, 4000)
        clean = alibi.cells(values, find_task(task)(outputs)).numpy()
        one, other = (noisy(kind, values, task, outputs, epsilon=e).held_out(torch.arange(4000)) for e in (1.0, 1.1))
        for y in (0, 1):  # given the label, what one run shows says nothing of what the other does
            assert abs(np.corrcoef(one.numpy()[clean == y], other.numpy()[clean == y])[0, 1]) < 0.1

    def test_no_object_keeps_the_labels(self, kind: Any, task: str, outputs: int) -> None:
        labels = noisy(kind, some_labels(task, outputs, 30), task, outputs)
        assert {f.name for f in fields(labels) if isinstance(getattr(labels, f.name), Tensor)} == {"evidence", "place"}
        assert "tensor" not in repr(labels)


def test_one_key_is_one_stream_per_purpose() -> None:
    facts = [
        ("alibi", 1.0, (9, 4)),
        ("randomised response", 1.0, (9, 4)),
        ("alibi", 1.5, (9, 4)),
        ("alibi", 1.0, (9, 5)),
    ]
    drawn = {noise_stream(KEY, *f).random() for f in facts}
    assert len(drawn) == len(facts)
    assert noise_stream(KEY, *facts[0]).random() in drawn


def test_held_out_rows_are_noised_once_and_change_nothing_else() -> None:
    values, train, validation = some_labels("multiclass", 4, 60), torch.arange(30), torch.arange(40, 60)
    for mechanism in MECHANISMS:
        chosen = LabelSettings(mechanism=mechanism, epsilon=1.0)  # type: ignore[arg-type]
        without = open_labels(values, find_task("multiclass")(4), train, chosen, KEY)
        having = open_labels(values, find_task("multiclass")(4), train, chosen, KEY, validation)
        assert torch.equal(having.held_out(train), without.held_out(train))
        assert torch.equal(having.held_out(validation), having.held_out(validation))
        assert having.held_out(validation).shape == (20, 4)
        with pytest.raises(GateError):
            without.held_out(validation)
        with pytest.raises(GateError):
            having.held_out(torch.tensor([35]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_held_out_score_is_a_line_in_the_true_accuracy(kind: Any) -> None:
    """So that the best round by noisy labels is the best round, up to the noise of the mean."""
    rows = torch.arange(60_000)
    values = some_labels("multiclass", 4, len(rows))
    target = noisy(kind, values, epsilon=1.41).held_out(rows)
    rng, scores, true = np.random.default_rng(3), [], np.linspace(0, 1, 6)
    for accuracy in true:
        right = torch.from_numpy(rng.random(len(rows)) < accuracy)
        predicted = torch.where(right, values, (values + torch.from_numpy(rng.integers(1, 4, len(rows)))) % 4)
        scores.append(float(target[rows, predicted].mean()))
    slope, start = np.polyfit(true, scores, 1)
    assert slope > 0.05
    np.testing.assert_allclose(scores, start + slope * true, atol=0.03 * slope)


# -- the form that travels ------------------------------------------------------------------------


class TestCompact:
    def test_classes_of_alibi_are_weights_in_bytes(self) -> None:
        labels, rows = noisy(Alibi, some_labels("multiclass", 4, 200)), torch.arange(5, 150)
        small_form = labels.compact(rows)
        assert (small_form.dtype, tuple(small_form.shape)) == (torch.uint8, (145, 4))
        read = Multiclass(4).expand(small_form, torch.float64)
        torch.testing.assert_close(read.sum(dim=1), torch.ones(145, dtype=torch.float64))
        torch.testing.assert_close(read, labels.held_out(rows), rtol=0, atol=1 / 255)

    def test_many_classes_keep_their_order(self) -> None:
        """At 1000 classes every probability is near 1/1000: bytes of the probability itself would all be zero."""
        labels = noisy(Alibi, some_labels("multiclass", 1000, 20), outputs=1000, epsilon=2.83)
        rows = torch.arange(20)
        read = Multiclass(1000).expand(labels.compact(rows), torch.float64)
        torch.testing.assert_close(read, labels.held_out(rows), rtol=0.05, atol=0)

    def test_classes_of_randomised_response_are_classes(self) -> None:
        for outputs, dtype in ((4, torch.uint8), (256, torch.uint8), (257, torch.int32)):
            values, rows = some_labels("multiclass", outputs, 300), torch.arange(300)
            labels = noisy(RandomisedResponse, values, outputs=outputs, epsilon=3.0)
            assert labels.compact(rows).dtype == dtype
            read = Multiclass(outputs).expand(labels.compact(rows), torch.float64)
            assert torch.equal(read.argmax(dim=1), labels.held_out(rows).argmax(dim=1))
            assert not torch.equal(labels.compact(rows).long(), values)

    @pytest.mark.parametrize(("task", "outputs"), TASKS[1:])
    def test_yes_or_no(self, task: str, outputs: int) -> None:
        values, rows = some_labels(task, outputs, 50), torch.arange(50)
        soft, hard = (noisy(kind, values, task, outputs, epsilon=3.0) for kind in KINDS)
        read = find_task(task)(outputs).expand(soft.compact(rows), torch.float64)
        torch.testing.assert_close(read, soft.held_out(rows), rtol=1e-3, atol=1e-3)
        read = find_task(task)(outputs).expand(hard.compact(rows), torch.float64)
        assert torch.equal(read, (hard.held_out(rows) > 0.5).double())

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize(("task", "outputs"), TASKS)
    def test_it_may_travel(self, kind: Any, task: str, outputs: int) -> None:
        compact = noisy(kind, some_labels(task, outputs, 9), task, outputs).compact(torch.arange(9))
        _, arrays = decode(encode({"run": "test"}, {"targets": compact}))
        assert torch.equal(arrays["targets"], compact)

    def test_plain_classes_are_read_as_before(self) -> None:
        read = Multiclass(3).expand(torch.tensor([2, 0], dtype=torch.uint8), torch.float32)
        assert read.tolist() == [[0, 0, 1], [1, 0, 0]]

    def test_a_row_nobody_filled_stays_zero(self) -> None:
        read = Multiclass(3).expand(torch.zeros(2, 3, dtype=torch.uint8), torch.float32)
        assert read.tolist() == [[0, 0, 0], [0, 0, 0]]


# -- settings -------------------------------------------------------------------------------------


class TestSettings:
    @pytest.mark.parametrize(
        ("values", "sentence"),
        [
            ({"mechanism": "alibi"}, "mechanism = 'alibi' needs an epsilon"),
            ({"mechanism": "randomised_response"}, "needs an epsilon"),
            ({"epsilon": 1.0}, "epsilon = 1.0 promises a protection that mechanism = 'none' does not give"),
            ({"mechanism": "alibi", "epsilon": 0}, "epsilon = 0 is not valid: input should be greater than 0"),
            ({"mechanism": "alibi", "epsilon": math.inf}, "epsilon = inf is not valid"),
            ({"mechanism": "alibi", "epsilon": 1, "uniform_rounds": -1}, "uniform_rounds = -1 is not valid"),
            ({"mechanism": "alibi", "epsilom": 1}, "did you mean 'epsilon'"),
            ({"mechanism": "alabi", "epsilon": 1}, "mechanism = 'alabi' is not valid"),
        ],
    )
    def test_refusals(self, values: dict[str, Any], sentence: str) -> None:
        with pytest.raises(ConfigError, match=sentence):
            build(LabelSettings, values, "labels")

    @pytest.mark.parametrize("mechanism", MECHANISMS)
    def test_numbers_cannot_be_protected(self, mechanism: Any) -> None:
        chosen = LabelSettings(mechanism=mechanism, epsilon=1.0)
        with pytest.raises(ConfigError, match="regression task are numbers without a bound"):
            open_labels(torch.zeros(5, 2), find_task("regression")(2), torch.arange(5), chosen, KEY)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
    def test_an_epsilon_that_is_none(self, kind: Any, epsilon: float) -> None:
        with pytest.raises(ConfigError, match="needs a finite epsilon above 0"):
            noisy(kind, torch.tensor([0, 1]), epsilon=epsilon)

    @pytest.mark.parametrize("kind", KINDS)
    @pytest.mark.parametrize("key", [-1, 0, 2**128])
    def test_a_key_that_is_none(self, kind: Any, key: int) -> None:
        with pytest.raises(ConfigError, match="key of the label noise"):
            noisy(kind, torch.tensor([0, 1]), key=key)

    @pytest.mark.parametrize("kind", KINDS)
    def test_one_class_has_nothing_to_hide(self, kind: Any) -> None:
        with pytest.raises(ConfigError, match="at least two classes"):
            noisy(kind, torch.tensor([0, 0]), outputs=1)

    def test_what_the_ledger_hears(self) -> None:
        values, rows = some_labels("multiclass", 4, 20), torch.arange(20)

        def opened(**chosen: Any) -> Labels:
            return open_labels(values, find_task("multiclass")(4), rows, LabelSettings(**chosen), KEY)

        plain = opened()
        assert isinstance(plain, PlainLabels)
        assert (plain.event.name, plain.event.parameters, plain.epsilon) == ("none", (), None)
        one = opened(mechanism="alibi", epsilon=2.0, uniform_rounds=7)
        assert isinstance(one, Alibi)
        assert (one.event.name, one.epsilon) == ("alibi", 2.0)
        wanted = {"epsilon": 2.0, "noise_std": math.sqrt(2), "outputs": 4.0, "uniform_rounds": 7.0}
        assert dict(one.event.parameters) == pytest.approx(wanted)
        other = opened(mechanism="randomised_response", epsilon=2.0, uniform_rounds=7)
        assert isinstance(other, RandomisedResponse)
        assert (other.event.name, other.epsilon) == ("randomised response", 2.0)
        wanted = {"epsilon": 2.0, "keep": math.e**2 / (math.e**2 + 3), "outputs": 4.0, "uniform_rounds": 7.0}
        assert dict(other.event.parameters) == pytest.approx(wanted)
        assert one.state() == other.state() == {}

    def test_plain_labels_are_what_they_were(self) -> None:
        values, rows = torch.tensor([2, 0, 1]), torch.tensor([2, 0])
        plain = open_labels(values, find_task("multiclass")(3), torch.arange(3), LabelSettings(), 0)
        assert plain.targets(plan(rows), torch.zeros(2, 3)).tolist() == [[0, 1, 0], [0, 0, 1]]
        assert plain.held_out(rows).tolist() == [[0, 1, 0], [0, 0, 1]]


# -- every method ---------------------------------------------------------------------------------


def protect(trainer: Trainer, labels: Labels) -> Trainer:
    """The same training on other labels."""
    trainer.coordinator = replace(trainer.coordinator, labels=labels)
    return trainer


def behind(federation: Federation, mechanism: str, epsilon: float, uniform_rounds: int = 2) -> Labels:
    chosen = LabelSettings(mechanism=mechanism, epsilon=epsilon, uniform_rounds=uniform_rounds)  # type: ignore[arg-type]
    return open_labels(federation.labels, federation.task, federation.split.train, chosen, KEY)


@pytest.mark.parametrize(("name", "mechanism"), [(n, m) for n, m in covering(MECHANISMS) if n in NAMES])
class TestEveryMethod:
    def test_it_learns(self, name: str, mechanism: str) -> None:
        federation = digits()
        once = "local_steps" not in METHODS[name].model_fields or name == "fu"  # one gradient per round, used once
        method, model = make(name, local_steps=1 if once else 20), ModelSettings(hidden=32, embedding=16)
        rounds, batch = (1, 2048) if name in AT_THE_OPENING else (60 if once else 10, 256)
        training = {"rounds": rounds, "evaluate_every": 0, "schedule": {"batch": batch}, "dtype": "float32"}
        trainer = open_trainer(federation, method, model=model, **training)
        run = protect(trainer, behind(federation, mechanism, 4.0, uniform_rounds=5)).train()
        assert run.result["test_score"] > 0.6  # chance is 0.1

    @pytest.mark.parametrize("task", ["multiclass", "binary", "multilabel"])
    def test_labels_reach_nobody_but_through_the_mechanism(self, name: str, mechanism: str, task: str) -> None:
        """Other labels behind the same evidence: every message is the same, byte for byte."""
        federation = small(task=task)
        labels = behind(federation, mechanism, 1.0)
        turned = (federation.labels + 1) % (federation.outputs if task == "multiclass" else 2)
        sent = []
        for truth in (federation.labels, turned):
            one = replace(federation, labels=truth)
            trainer = open_trainer(one, make(name, local_steps=2), rounds=4, evaluate_every=0)
            sent.append([p for one_round in rounds_of(protect(trainer, labels)) for p in one_round.payloads])
        assert sent[0] == sent[1]
        assert len(sent[0]) > 4


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_party_that_decoded_every_label_reads_noisy_ones(mechanism: str) -> None:
    """The attack of tests/reference/test_labels_leak.py: right no more often than the best guess from a noisy label."""
    federation, epsilon = small(classes=4, rows=1500), 1.0
    dual = torch.zeros(federation.rows, 4, dtype=torch.float64)
    method, rows = VIMADMMJ(), None
    trainer = open_trainer(federation, method, engine="loop", rounds=6, evaluate_every=0, schedule={"batch": 1500})
    for one_round in rounds_of(protect(trainer, behind(federation, mechanism, epsilon, uniform_rounds=99))):
        _, arrays = decode(one_round.down.everyone.payload)
        if "common.v" in arrays and rows is not None:
            dual[rows] = (dual[rows] - method.rho * arrays["common.v"]) / 2
            break  # the first reply: later ones also show what the model learnt from all rows
        rows = arrays["rows.0"].long()
    assert rows is not None
    right = (dual[rows].argmin(dim=1) == federation.labels[rows]).double().mean()
    most = keep_probability(find_task("multiclass")(4), epsilon)  # no mechanism of this epsilon allows a better guess
    assert float(right) < most + 4 * math.sqrt(most * (1 - most) / len(rows))
