"""Local models: what a party holds. A network, a ridge regression, boosted trees, or a regressor of the user's own.

ADMM asks a party for one thing only: move your outputs on these rows towards a target, in least squares. A network
does so by gradient steps; anything else that can be moved will do as well, if the method asks for no gradients.

    LocalModel   of all parties of a cohort, with a leading party axis: `Stack` of networks, or `Regressors`
    Regressor    of one party, without gradients and without that axis: what a user writes

A regressor outputs as many numbers per row as the task has outputs: it needs no embedding and, at the party, no head.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from colonnade.errors import ModelError
from colonnade.layout import canonical
from colonnade.models.computing import Computing
from colonnade.models.stack import Mode, Way
from colonnade.randomness import key

L = TypeVar("L", bound="LocalModel")
LOCAL = "local."  # before the names of a regressor's tensors, in checkpoints and saved runs
PENDING = "pending."  # before those of a local model that are no part of the model yet: in checkpoints only


class LocalModel(Protocol):
    """The local models of a cohort, (P, ...) throughout. Names in `tensors` are those of checkpoints and saved runs."""

    gradients: bool  # whether its outputs can be differentiated: methods that need gradients refuse it otherwise
    way: Way  # how the parties are run, see `Stack`
    computing: Computing
    parameters: dict[str, Tensor]  # what gradient steps change; empty without gradients
    buffers: dict[str, Tensor]

    def output(self, x: Tensor, mode: Mode) -> Tensor:
        """x (P, B, ...) -> (P, B, d)."""

    def tensors(self) -> dict[str, Tensor]:
        """Everything that must survive a restart, by name, (P, ...)."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave."""

    def pick(self: L, index: Sequence[int]) -> L:
        """A copy with some of the parties; give it back with `put`."""

    def put(self, index: Sequence[int], part: Any) -> None:
        """Write a picked copy back into its places."""

    def blank(self: L) -> L:
        """A copy that knows nothing of any party's numbers."""


@runtime_checkable
class Regressor(Protocol):
    """The local model of one party, without gradients. Bring one as `encoders={"bank": MyRegressor()}`.

    It is copied before it is used (`copy.deepcopy`), opened, perhaps opened anew for more outputs where a method needs
    them, and after a restart opened again and restored. Equal calls must give equal numbers, or a resumed run would
    differ from one that was never interrupted.
    """

    def open(self, shape: tuple[int, ...], outputs: int, seed: int) -> None:
        """Prepare for columns of this shape per row and so many outputs; `seed` is the party's own."""

    def output(self, x: Tensor) -> Tensor:
        """x (B, ...) -> (B, outputs); also before the first `approach`."""

    def approach(self, x: Tensor, target: Tensor, weight: float, effort: int) -> None:
        """Move the outputs on these rows towards `target` (B, outputs): lower weight/(2B) |output(x) - target|^2.

        A round is about some rows only: what was learned about the others should stay. `effort` is the number of local
        steps that the method or the schedule asks for, at least 1; what a step is, is the regressor's to say.
        """

    def tensors(self) -> dict[str, Tensor]:
        """Everything that must survive a restart, by name; a text as `text_tensor(text)`. No pickle."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put back what `tensors` gave, after `open`."""


@runtime_checkable
class Explains(Protocol):
    """A regressor that says itself what each of its columns adds to its outputs; others are tried from outside."""

    def contributions(self, x: Tensor, start: Tensor) -> tuple[Tensor, Tensor]:
        """What each number of a row x (B, ...) adds to its outputs, and what it is added to.

        Args:
            x: rows.
            start: (...) the row from which to count; a model that counts from elsewhere does not use it, and says
                from where by an attribute `counts_from`.

        Returns:
            (B, ..., outputs), and (outputs,): their sum is `output(x)`.
        """


@runtime_checkable
class FitsWeighted(Protocol):
    """A regressor that can be fitted in weighted least squares; others are moved towards shorter targets instead."""

    def fit_weighted(self, x: Tensor, target: Tensor, weights: Tensor, effort: int | None) -> None:
        """Fit `target` (B, outputs) from nothing: lower the sum of weights * (output(x) - target)^2.

        Args:
            x: rows.
            target: of each row and output.
            weights: (B, outputs), none below 0.
            effort: local steps, where the schedule names a number; None: as many as the regressor finds right.
        """


@runtime_checkable
class StartsAgain(Protocol):
    """A regressor that need not be opened anew to begin from nothing."""

    def again(self, number: int) -> Regressor:
        """One of the same kind that has learned nothing; what it draws differs by `number`.

        It may take over what was prepared for the rows of the last fit.
        """


def shortened(target: Tensor, weights: Tensor) -> Tensor:
    """What to fit by plain least squares in place of a weighted target (B, outputs), starting from zero.

    With L the largest weight of an output, sum weights (f - target)^2 is at most L sum (f - weights target / L)^2 plus
    a constant, and equal at f = 0, so that whatever lowers the latter from there lowers the former.
    """
    most = weights.amax(dim=0).clamp(min=torch.finfo(weights.dtype).tiny)
    return target * (weights / most)


def text_tensor(text: str) -> Tensor:
    """A text (of a model file, of JSON) as a tensor that can be stored."""
    return torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8) if text else torch.zeros(0, dtype=torch.uint8)


def tensor_text(tensor: Tensor) -> str:
    """The inverse of `text_tensor`."""
    return tensor.cpu().numpy().tobytes().decode()


def check_local(party: str, model: object) -> nn.Module | Regressor:
    """A network or a regressor as it is; anything else is refused by what it lacks."""
    if isinstance(model, (nn.Module, Regressor)):
        return model
    lacks = [name for name in ("open", "output", "approach", "tensors", "restore") if not hasattr(model, name)]
    raise ModelError(
        f"the local model of party {party!r} must be an nn.Module or a regressor with open, output, approach, tensors "
        f"and restore (documentation, page 'Networks, trees, your own'); {type(model).__name__} "
        f"lacks {', '.join(lacks)}"
    )


def open_regressor(
    model: Regressor, party: str, shape: tuple[int, ...], outputs: int, seed: int, dtype: torch.dtype
) -> None:
    """Open a party's regressor, with its own part of the run's seed.

    Raises:
        ModelError: it cannot be opened for such columns.
    """
    try:
        model.open(shape, outputs, key(seed, "local model", party) >> 66)
        Regressors([party], [model], outputs).output(torch.zeros(1, 2, *shape, dtype=dtype), Mode.PREDICT)
    except ModelError:
        raise
    except Exception as error:  # whatever a user's own code may raise
        raise ModelError(
            f"the local model of party {party!r} cannot be opened for columns of shape {shape}: "
            f"{type(error).__name__}: {error}"
        ) from error


class Regressors:
    """One regressor per party of a cohort, run one after the other. Only equal kinds share a cohort."""

    gradients = False
    way: Way = "each"

    def __init__(self, names: Sequence[str], members: Sequence[Regressor], outputs: int) -> None:
        self.names, self.outputs = tuple(names), outputs
        self.members = [copy.deepcopy(member) for member in members]
        self._first = [copy.deepcopy(member) for member in members]  # as they were opened
        self.computing = Computing()
        self.parameters: dict[str, Tensor] = {}
        self.buffers: dict[str, Tensor] = {}

    def widened(self, shape: tuple[int, ...], outputs: int, seed: int, dtype: torch.dtype) -> Regressors:
        """The same, opened anew for so many outputs; `seed` is the run's."""
        members = [copy.deepcopy(member) for member in self._first]
        for party, member in zip(self.names, members, strict=True):
            open_regressor(member, party, shape, outputs, seed, dtype)
        return Regressors(self.names, members, outputs)

    def output(self, x: Tensor, mode: Mode) -> Tensor:
        """Every party's outputs; a regressor does not ask why."""
        with torch.no_grad():
            parts = [self._one(k, member.output(x[k]), x) for k, member in enumerate(self.members)]
        return torch.stack(parts)

    def _one(self, k: int, out: object, x: Tensor) -> Tensor:
        wanted = (x.shape[1], self.outputs)
        if not isinstance(out, Tensor) or tuple(out.shape) != wanted:
            got = f"shape {tuple(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            raise ModelError(
                f"the local model of party {self.names[k]!r} gave {got} for {x.shape[1]} rows; it must give a tensor "
                f"of shape {wanted}"
            )
        return out.to(x)

    def approach(
        self,
        x: Tensor,
        target: Tensor,
        weight: Sequence[float],
        effort: Sequence[int],
        held: Tensor | None = None,
    ) -> None:
        """Move each party's outputs towards its target (P, B, d); who has no effort to make stays as it is.

        `held` (P, B) says which rows a party holds; it is shown no others.
        """
        with torch.no_grad():
            for k, member in enumerate(self.members):
                mine = slice(None) if held is None else held[k]
                if effort[k] > 0 and len(x[k][mine]):
                    member.approach(x[k][mine], target[k][mine], weight[k], effort[k])

    def tensors(self) -> dict[str, Tensor]:
        """What the regressors say must survive, with the party axis."""
        found = [member.tensors() for member in self.members]
        return {LOCAL + name: canonical(torch.stack([one[name].detach() for one in found])) for name in found[0]}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Hand each regressor its own.

        Raises:
            ModelError: they are of a network, or of another regressor.
        """
        odd = next((name for name in tensors if not name.startswith(LOCAL)), None)
        if odd is not None:
            raise ModelError(
                f"party {self.names[0]!r}: the saved model has {odd!r}, which is a network's: this is not the local "
                "model of the run; pass the same encoders= again"
            )
        own = {name.removeprefix(LOCAL): value for name, value in tensors.items()}
        for k, member in enumerate(self.members):
            try:
                member.restore({name: canonical(value[k]) for name, value in own.items()})
            except KeyError as error:
                raise ModelError(
                    f"party {self.names[k]!r}: the saved local model has no {error}: this is not the local model of "
                    "the run; give the settings of [model] and the encoders= of the training"
                ) from None

    def pick(self, index: Sequence[int]) -> Regressors:
        """Copies of some of the regressors."""
        part = copy.copy(self)
        part.names = tuple(self.names[k] for k in index)
        part.members = [copy.deepcopy(self.members[k]) for k in index]
        part._first = [self._first[k] for k in index]
        return part

    def put(self, index: Sequence[int], part: Regressors) -> None:
        """Take picked copies in place of those they were made of."""
        for place, member in zip(index, part.members, strict=True):
            self.members[place] = member

    def blank(self) -> Regressors:
        """Regressors that have seen no row."""
        return Regressors(self.names, self._first, self.outputs)
