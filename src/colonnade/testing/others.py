"""What every task and every metric promises, as test classes for those of other packages (`testing/methods.py`)."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from colonnade.evaluate.metrics import Metric, find_metric, metrics_of
from colonnade.federation import Federation
from colonnade.fit import fit
from colonnade.tasks import Task, find_task, task_about

ROWS = 40


class TaskContract:
    """A kind of label: `task` is its class, `labels` about forty of its labels, as a user would give them."""

    task: ClassVar[type[Task]]
    labels: ClassVar[Any]

    def federation(self) -> Federation:
        """Two parties with random columns."""
        generator = torch.Generator().manual_seed(0)
        rows = len(self.labels)
        columns = {name: torch.randn(rows, 3, generator=generator) for name in ("one", "other")}
        return Federation.from_arrays(columns, self.labels, task=self.task.name)

    def drawn(self) -> tuple[Task, Tensor, Tensor]:
        """The task, random outputs (B, K) and the targets of the labels (B, K), as training has them."""
        federation = self.federation()
        task = federation.task
        targets = task.expand(task.compact(federation.labels), torch.float64)
        outputs = torch.randn(targets.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return task, outputs, targets

    def test_it_is_found_by_its_name(self) -> None:
        """A saved run names its task: without an entry point it could not be loaded."""
        assert find_task(self.task.name) is self.task

    def test_a_stored_run_gives_it_back(self) -> None:
        """What `about` says is enough to make it again."""
        task = self.federation().task
        again = task_about(task.about())
        assert again.about() == task.about()
        assert type(again) is self.task

    def test_the_slope_is_the_derivative_of_the_loss(self) -> None:
        """By automatic differentiation."""
        task, outputs, targets = self.drawn()
        outputs.requires_grad_()
        (expected,) = torch.autograd.grad(task.loss(outputs, targets), outputs)
        torch.testing.assert_close(task.slope(outputs.detach(), targets), expected, rtol=1e-8, atol=1e-8)

    def test_the_z_step_has_no_slope_left(self) -> None:
        """Of its own objective: slope(z) - dual + rho (z - total) = 0, since the objective is convex."""
        task, total, targets = self.drawn()
        dual = torch.randn(total.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        for rho in (0.1, 1.0, 10.0):
            z = task.prox(total, dual, targets, rho)
            left = task.slope(z, targets) - dual + rho * (z - total)
            assert float(left.abs().max()) < 1e-4 * max(1.0, rho), f"rho {rho}"

    def test_a_constant_guess_has_no_slope_on_average(self) -> None:
        """Whoever knows the shares only, cannot say anything better than `constant`."""
        task, _, targets = self.drawn()
        shares = task.shares(self.federation().labels)
        guess = task.constant(shares).double().expand(targets.shape)
        assert float(task.slope(guess, targets).mean(dim=0).abs().max()) < 1e-3

    def test_its_metrics_are_found(self) -> None:
        """And each is a number, or NaN where these rows do not define it."""
        federation = self.federation()
        task, outputs, _ = self.drawn()
        for metric in metrics_of(task):
            assert isinstance(metric(task, outputs, federation.labels), float)

    def test_its_metrics_prefer_a_model_that_knows_the_labels(self) -> None:
        """To a constant guess; the outputs are those of its own z-step, drawn to 0 a little. NaN is no answer."""
        task, truth = self.federation().task, self.federation().labels
        for metric in metrics_of(task):
            assert not gain(metric, task, truth) <= 0, f"{metric.name} says that a constant guess is as good"

    def test_it_trains_and_predicts(self) -> None:
        """With a method that needs its z-step."""
        federation = self.federation()
        run = fit(federation, "vimadmm", rounds=2, evaluate_every=1)
        rows = federation.select(federation.split.test)
        assert len(run.predict(rows)) == len(federation.split.test)
        assert run.score is not None


def gain(metric: Metric, task: Task, truth: Tensor) -> float:
    """How much better a model that knows the labels is than a constant guess, as the metric says."""
    targets = task.expand(task.compact(truth), torch.float64)
    known = task.prox(torch.zeros_like(targets), torch.zeros_like(targets), targets, 0.1)
    guess = task.constant(task.shares(truth)).double().expand(targets.shape)
    return metric.sign() * (metric(task, known, truth) - metric(task, guess, truth))


class MetricContract:
    """A metric: `metric` itself, `task` a task it is for, `outputs` (B, K) and `truth` as that task has them.

    About fifty random rows will do; outputs of classes should differ in how sure they are.
    """

    metric: ClassVar[Metric]
    task: ClassVar[Task]
    outputs: ClassVar[Tensor]
    truth: ClassVar[Tensor]

    def test_it_is_found_by_its_name(self) -> None:
        """A saved run names its metric."""
        assert find_metric(self.metric.name) == self.metric

    def test_it_belongs_to_its_task(self) -> None:
        """So that `training.metric` may name it."""
        assert self.metric in metrics_of(self.task)

    def test_it_prefers_a_model_that_knows_the_labels(self) -> None:
        """With `better` the wrong way round the worst round would be kept. NaN is no answer."""
        found = gain(self.metric, self.task, self.truth)
        assert not found <= 0, f"a constant guess is as good; is better = {self.metric.better!r} right?"

    def test_a_row_of_weight_two_counts_as_two_rows(self) -> None:
        """For the bootstrap, and for weights of a user."""
        weights = torch.arange(len(self.outputs)) % 3
        again = torch.arange(len(self.outputs)).repeat_interleave(weights)
        weighted = self.metric(self.task, self.outputs, self.truth, weights.double())
        repeated = self.metric(self.task, self.outputs[again], self.truth[again])
        torch.testing.assert_close(torch.tensor(weighted), torch.tensor(repeated), rtol=1e-6, atol=1e-9)

    def test_lines_of_weights_are_computed_apart(self) -> None:
        """One value per resample."""
        lines = torch.stack([torch.ones(len(self.outputs)), torch.arange(len(self.outputs)) % 2 + 1.0]).double()
        values = self.metric.values(self.task, self.outputs, self.truth, lines)
        alone = [self.metric(self.task, self.outputs, self.truth, line) for line in lines]
        torch.testing.assert_close(values.double(), torch.tensor(alone, dtype=torch.float64))

    def test_it_says_whether_it_asks_what_was_decided(self) -> None:
        """`decides`: a threshold of the user's then moves it, as it moves the accuracy; a calibration does not."""
        if not self.task.classes:  # numbers are no decisions
            return
        weights = torch.ones(1, len(self.outputs), dtype=torch.float64)
        value, bare = (
            self.metric.values(self.task, one, self.truth, weights).double()
            for one in (self.outputs, self._bare(self.outputs))
        )
        found = bool(torch.isclose(value, bare, rtol=1e-9, atol=1e-12))
        assert found == self.metric.decides, f"needed Metric(..., decides={found}); got {self.metric.decides}"

    def _bare(self, outputs: Tensor) -> Tensor:
        """Outputs (B, K) of the same decisions, from which nobody can tell how sure the model was."""
        codes = self.task.codes(outputs)
        if self.task.exclusive:
            return torch.nn.functional.one_hot(codes.to(torch.int64), outputs.shape[1]).to(outputs.dtype)
        return (2 * codes.reshape(outputs.shape) - 1).to(outputs.dtype)

    def test_outputs_that_are_not_finite_have_no_value(self) -> None:
        """A model that diverged is not judged."""
        spoilt = self.outputs.clone()
        spoilt[0] = torch.inf
        value = self.metric(self.task, spoilt, self.truth)
        assert value != value  # noqa: PLR0124 - NaN is the one number that differs from itself
