"""Sums of gradients in which no row counts for more than a norm: clipped row by row, then added.

    g_i = gradient of row i's own loss in all parameters that learn, of encoder and head together
    sum_i g_i min(1, C / |g_i|)

Chains of linear layers need no gradient of a single row: of a layer with input a_i and slope d_i at its output it is
a_i d_i', its squared norm |a_i|^2 |d_i|^2, and that of the bias |d_i|^2. So norms come from what a backward pass has
anyway, and one product per layer adds the clipped rows up ("ghost clipping"). Other networks get the gradients of
some rows at a time from `torch.func`; each row then goes through its network alone, whatever the network does.

Norms, factors and sums are in float64: how they are rounded is then far below any noise (`privacy/by_row.py`). A row
whose gradient is not finite counts nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from colonnade.errors import ModelError
from colonnade.models.cohort import Cohort
from colonnade.models.dropout import KeyedDropout
from colonnade.models.heads import apply_heads
from colonnade.models.stack import Mode, Stack

ROWS = {"cpu": 512, "cuda": 8192}  # of each party that go through a chain at once: what fits a CPU's cache
CELLS = 1 << 25  # numbers of single rows' gradients that are in memory at once
Sums = dict[int, Tensor]  # by the id of a parameter, (P, ...) in float64


@dataclass(frozen=True)
class Batch:
    """Rows of each party of a cohort, and which of them are there: parties may have drawn fewer than others."""

    x: Tensor = field(repr=False)  # (P, B, ...)
    targets: Tensor = field(repr=False)  # (P, B, K)
    here: Tensor = field(repr=False)  # (P, B) bool

    def split(self, rows: int) -> Iterator[Batch]:
        """In pieces of at most so many rows."""
        parts = zip(self.x.split(rows, 1), self.targets.split(rows, 1), self.here.split(rows, 1), strict=True)
        return (Batch(*part) for part in parts)


def clipped_sums(cohort: Cohort, batch: Batch, norm: float) -> list[Tensor]:
    """The sums of clipped gradients (P, ...) in float64, of the parameters of heads and encoders in their order."""
    parameters = cohort.trained(("head", "encoder"))
    sums: Sums = {id(p): torch.zeros(p.shape, dtype=torch.float64, device=p.device) for p in parameters}
    chain = _chain(cohort)
    size = 0 if chain is not None else sum(p[0].numel() for p in parameters) * len(cohort.names)
    rows = ROWS.get(batch.x.device.type, 4096) if chain is not None else max(1, CELLS // max(1, size))
    for part in batch.split(rows):
        if chain is not None:
            _add_chain(chain, cohort, part, norm, sums)
        else:
            _add_each(cohort, part, norm, sums)
    return [sums[id(p)] for p in parameters]


def check_network(cohort: Cohort) -> None:
    """Refuse local models whose training the clipping of single rows would not bound.

    Raises:
        ModelError: with the party, the layer and the reason.
    """
    party = cohort.names[0]
    if len(cohort.schema.train.unique()) < len(cohort.schema.train):
        raise ModelError(
            "privacy.unit = 'row': a training row stands there more than once, and would be drawn and clipped as so "
            "many rows; name each row once"
        )
    if not isinstance(cohort.encoder, Stack):
        raise ModelError(
            f"privacy.unit = 'row' clips the gradient of every row, and the local model of party {party!r} has none "
            "(it is trees, ridge, or a regressor of its own); give it a network (encoder = 'tanh', 'mlp' or 'linear')"
        )
    for name, layer in cohort.encoder.layers():
        why = _mixes_rows(layer)
        if why:
            kind = type(layer).__name__
            raise ModelError(f"privacy.unit = 'row': layer {name!r} of party {party!r} is {kind}, {why}; leave it out")
    if _chain(cohort) is None and (reason := cohort.encoder.why_not_vmap()):
        raise ModelError(f"privacy.unit = 'row' needs the gradient of every row; party {party!r}: {reason}")
    head = cohort.schema.head
    if head.layers > 1 and head.dropout:
        raise ModelError(
            f"privacy.unit = 'row': model.head.dropout = {head.dropout:g}: which numbers it leaves out follows from a "
            "row's place in the batch, so that one row more changes what others add; set it to 0"
        )


def _mixes_rows(layer: nn.Module) -> str:
    """Why one row more or less would change what other rows add; empty: it does not."""
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return "which mixes rows: one row changes what all others of its batch add (GroupNorm and LayerNorm do not)"
    if isinstance(layer, nn.modules.instancenorm._InstanceNorm) and layer.track_running_stats:
        return "which keeps statistics of the training rows without noise (track_running_stats=False does not)"
    if isinstance(layer, KeyedDropout):
        return (
            "whose choice follows from a row's place in the batch, so that one row more changes what others add "
            "(weight decay and the noise itself regularise)"
        )
    return ""


def is_chain(cohort: Cohort) -> bool:
    """Whether encoder and head are a chain of linear layers, whose rows need no gradients of their own."""
    return _chain(cohort) is not None


# -- chains of linear layers --------------------------------------------------------------------


@dataclass(frozen=True)
class _Linear:
    """A linear layer with what of it learns."""

    weight: Tensor = field(repr=False)  # (P, in, out)
    bias: Tensor | None = field(repr=False)  # (P, 1, out)
    learns: tuple[Tensor | None, Tensor | None]  # the parameters themselves, weight and bias; None: frozen, or none
    turned: bool  # the parameter is (P, out, in)


_Link = _Linear | type[nn.Module]  # what is no linear layer is known by its kind


def _chain(cohort: Cohort) -> list[_Link] | None:
    """The layers of encoder and head, one after the other; None: the encoder is no such chain."""
    encoder = cohort.encoder
    if not isinstance(encoder, Stack) or (layers := encoder.chain) is None:
        return None
    if len(cohort.columns.shape) > 3 and not isinstance(layers[0][1], nn.Flatten):
        return None  # its linear layers are applied to parts of a row
    links: list[_Link] = []
    for name, layer in layers:
        if not isinstance(layer, nn.Linear):
            links.append(type(layer))
            continue
        weight, bias = encoder.parameters[f"{name}.weight"], encoder.parameters.get(f"{name}.bias")
        shown = None if bias is None else bias.detach().unsqueeze(1)
        links.append(_Linear(weight.detach().mT, shown, (_learning(weight), _learning(bias)), turned=True))
    count = sum(name.startswith("weight") for name in cohort.head)
    for i in range(count):
        weight, bias = cohort.head[f"weight.{i}"], cohort.head.get(f"bias.{i}")
        shown = None if bias is None else bias.detach()
        links.append(_Linear(weight.detach(), shown, (_learning(weight), _learning(bias)), turned=False))
        links += [nn.ReLU] if i < count - 1 else []
    return links


def _learning(parameter: Tensor | None) -> Tensor | None:
    return parameter if parameter is not None and parameter.requires_grad else None


@torch.no_grad()
def _add_chain(chain: list[_Link], cohort: Cohort, batch: Batch, norm: float, sums: Sums) -> None:
    """Forward, backward, norms, and one product per layer."""
    outputs = [batch.x.flatten(2)]
    for link in chain:
        outputs.append(_forward(link, outputs[-1]))
    slope = cohort.schema.task.slope(outputs[-1], batch.targets)
    pairs: list[tuple[_Linear, Tensor, Tensor]] = []  # layer, its input, the slope at its output
    for place in range(len(chain) - 1, -1, -1):
        link = chain[place]
        if isinstance(link, _Linear):
            pairs.append((link, outputs[place], slope))
        if any(isinstance(before, _Linear) for before in chain[:place]):
            slope = _backward(link, slope, outputs[place + 1])
    squares = torch.zeros(batch.here.shape, dtype=torch.float64, device=batch.here.device)
    for link, a, d in pairs:
        ahead = sum(_square(a) if i == 0 else 1.0 for i, p in enumerate(link.learns) if p is not None)
        squares += ahead * _square(d)
    factor = _factors(squares, batch.here, norm)
    odd = ~torch.isfinite(squares)
    if bool(odd.any()):  # 0 times infinity would be no number
        pairs = [(link, a.masked_fill(odd.unsqueeze(2), 0), d.masked_fill(odd.unsqueeze(2), 0)) for link, a, d in pairs]
    for link, a, d in pairs:
        inputs, slopes = a.double(), d.double().mul_(factor.unsqueeze(2))
        weight, bias = link.learns
        if weight is not None:
            sums[id(weight)] += torch.bmm(slopes.mT, inputs) if link.turned else torch.bmm(inputs.mT, slopes)
        if bias is not None:
            sums[id(bias)] += slopes.sum(dim=1).reshape(bias.shape)


def _forward(link: _Link, x: Tensor) -> Tensor:
    if isinstance(link, _Linear):
        return torch.bmm(x, link.weight) if link.bias is None else torch.baddbmm(link.bias, x, link.weight)
    if link is nn.ReLU:
        return x.relu()
    return x.tanh() if link is nn.Tanh else x  # the columns are flat already


def _backward(link: _Link, slope: Tensor, output: Tensor) -> Tensor:
    if isinstance(link, _Linear):
        return torch.bmm(slope, link.weight.mT)
    if link is nn.ReLU:
        return slope * (output > 0)
    return slope * (1 - output.square()) if link is nn.Tanh else slope


def _square(values: Tensor) -> Tensor:
    """(P, B) squared norms of (P, B, n) in float64."""
    norms: Tensor = torch.linalg.vector_norm(values, dim=2, dtype=torch.float64)
    return norms.square_()


def _factors(squares: Tensor, here: Tensor, norm: float) -> Tensor:
    """(P, B) what each row's gradient is multiplied with; 0 for rows that are not there, or not finite."""
    factor = (norm / squares.sqrt().clamp(min=1e-150)).clamp(max=1.0)
    return torch.where(here & torch.isfinite(squares), factor, 0.0)


# -- any other network --------------------------------------------------------------------------


def _add_each(cohort: Cohort, batch: Batch, norm: float, sums: Sums) -> None:
    """The gradient of every row by itself; all rows of all parties at once."""
    learning, fixed = _states(cohort)
    gradients = vmap(vmap(grad(_loss(cohort)), (None, None, 0, 0)))(learning, fixed, batch.x, batch.targets)
    squares = torch.zeros(batch.here.shape, dtype=torch.float64, device=batch.here.device)
    for value in gradients.values():
        squares += _square(value.detach().flatten(2))
    factor = _factors(squares, batch.here, norm)
    named = {**{f"encoder.{k}": v for k, v in cohort.encoder.parameters.items()},
             **{f"head.{k}": v for k, v in cohort.head.items()}}  # fmt: skip
    for name, value in gradients.items():
        flat = torch.where((factor > 0).unsqueeze(2), value.detach().flatten(2).double(), 0.0)
        sums[id(named[name])] += torch.bmm(factor.unsqueeze(1), flat).reshape(named[name].shape)


def _states(cohort: Cohort) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What learns and what does not, (P, ...) by name."""
    if not isinstance(cohort.encoder, Stack):
        raise ModelError(f"the local model of party {cohort.names[0]!r} has no gradients")
    every = {f"encoder.{k}": v for k, v in cohort.encoder.parameters.items()}
    every |= {f"head.{k}": v for k, v in cohort.head.items()}
    fixed = {k: v.detach() for k, v in every.items() if not v.requires_grad}
    fixed |= {f"buffer.{k}": v for k, v in cohort.encoder.buffers.items()}
    return {k: v.detach() for k, v in every.items() if v.requires_grad}, fixed


def _loss(cohort: Cohort) -> Callable[[dict[str, Tensor], dict[str, Tensor], Tensor, Tensor], Tensor]:
    """The loss of one row (...), (K) of one party."""
    task, encoder = cohort.schema.task, cohort.encoder
    if not isinstance(encoder, Stack):
        raise ModelError(f"the local model of party {cohort.names[0]!r} has no gradients")
    skeleton, tied = encoder.skeleton(Mode.LEARN)

    def loss(learning: dict[str, Tensor], fixed: dict[str, Tensor], x: Tensor, target: Tensor) -> Tensor:
        every = learning | fixed
        state = {k.partition(".")[2]: v for k, v in every.items() if not k.startswith("head.")}
        head = {k.removeprefix("head."): v.unsqueeze(0) for k, v in every.items() if k.startswith("head.")}
        embedding = functional_call(skeleton, state, (x.unsqueeze(0),), tie_weights=tied)
        return task.loss(apply_heads(head, embedding.unsqueeze(0))[0], target.unsqueeze(0))

    return loss
