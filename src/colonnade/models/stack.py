"""Stack: P networks of one architecture with a leading party axis, run as one.

Five ways to run the same forward pass, all with the same result:
    single   one party: a plain call; any nn.Module works
    layers   a Sequential of linear layers and activations: one batched product per layer
    vmap     everything else: `functional_call` under `vmap`
    each     one party after the other, where vmap cannot go or does not pay
    compiled as each, its passes in training compiled; on a GPU predictions of many rows, too, and parties side by side
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from colonnade.errors import ModelError
from colonnade.gpu import Recordings, parties_apart
from colonnade.models.computing import Computing, Pass, SharedPasses
from colonnade.models.copies import without_numbers
from colonnade.models.dropout import KeyedDropout

Way = Literal["single", "layers", "vmap", "each", "compiled"]
PASSES = SharedPasses()
AT_ONCE = 1024  # rows of a compiled prediction; fewer are predicted eagerly, since compiling takes seconds


class Mode(Enum):
    """Why a forward pass is made."""

    LEARN = "learn"  # batch statistics, dropout on, buffers updated
    UPLOAD = "upload"  # batch statistics, dropout off, buffers untouched: uploading must not teach
    PREDICT = "predict"  # running statistics, dropout off


def architecture_key(module: nn.Module) -> str:
    """What two networks must share to be stacked.

    Shapes alone are not enough: a ReLU and a Tanh party of equal shapes would silently run
    the same code. Nor is the printed form, where a network keeps a choice in a plain attribute.
    """
    tensors = [
        f"{name}:{tuple(t.shape)}:{t.dtype}:{t.requires_grad}"
        for name, t in [*module.named_parameters(), *module.named_buffers()]
    ]
    layers = [f"{name}:{_code_and_choices(layer)}" for name, layer in module.named_modules()]
    return f"{type(module).__module__}.{module!r}|{'|'.join(tensors + layers)}"


def portable_key(module: nn.Module) -> str:
    """The same in every process: names, printed form and shapes; for parties that run their networks at home."""
    tensors = [f"{name}:{tuple(t.shape)}:{t.dtype}" for name, t in module.state_dict().items()]
    return f"{type(module).__module__}.{type(module).__qualname__}|{module!r}|{'|'.join(tensors)}"


def _code_and_choices(layer: nn.Module) -> str:
    """What a forward pass may depend on besides tensors and inner layers; in doubt, two layers differ."""
    kind = type(layer)
    choices = {name: _said(value) for name, value in vars(layer).items() if name not in _OF_TORCH}
    hooks = [repr(hook) for those in (layer._forward_pre_hooks, layer._forward_hooks) for hook in those.values()]
    return f"{kind.__module__}.{kind.__qualname__}:{id(kind.forward)}:{sorted(choices.items())}{hooks or ''}"


# What torch itself keeps in a layer: tensors and layers, which are looked at elsewhere, and hooks.
_OF_TORCH = {*vars(nn.Module()), "_flat_weights", "_flat_weight_refs"}


def _said(value: object) -> str:
    """A choice in words that another one does not have; numbers that would be printed rounded, by their address."""
    if isinstance(value, (Tensor, np.ndarray)):
        return str(id(value))
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}{[_said(one) for one in value]}"
    if isinstance(value, dict):
        return str({repr(name): _said(one) for name, one in value.items()})
    return repr(value)


class Stack:
    """P networks of one architecture. Tensors are updated in place, never replaced."""

    gradients = True

    def __init__(
        self, modules: Sequence[nn.Module], way: Way | None = None, computing: Computing | None = None
    ) -> None:
        parameters, buffers = stack_module_state(list(modules))
        self.parameters: dict[str, Tensor] = {
            k: v.detach().requires_grad_(v.requires_grad)
            for k, v in parameters.items()  # frozen ones stay frozen
        }
        self.buffers: dict[str, Tensor] = {k: v.detach().clone() for k, v in buffers.items()}
        self.size = len(modules)
        self.computing = computing or Computing()
        self._skeletons = _Skeletons(modules[0])
        self._passes: dict[Mode, Pass] = {}  # compiled ones, from their first use on
        self._recordings = Recordings()  # of compiled passes that teach nothing
        self.way: Way = way if way is not None else self.best_guess()

    def best_guess(self) -> Way:
        """The way that needs no measurement to be right."""
        network, layered = self._skeletons.module, self._skeletons.layered
        if self.computing.compile and not layered:
            return "compiled"
        if self.size == 1:
            return "single"
        if layered:
            return "layers"
        # torch does not round convolutions under vmap on a CPU, and on a GPU rounded ones are slower grouped.
        apart = self.computing.precision == "bfloat16" and self.has_convolutions()
        return "each" if apart or why_not_vmap(network) else "vmap"

    def has_convolutions(self) -> bool:
        """Convolutions may run slower stacked than one by one; only a clock knows."""
        return has_convolutions(self._skeletons.module)

    @property
    def chain(self) -> list[tuple[str, nn.Module]] | None:
        """The plain layers one after the other, by name; None: it is no chain of such."""
        return list(self._skeletons.module._modules.items()) if self._skeletons.layered else None  # type: ignore[arg-type]

    def layers(self) -> list[tuple[str, nn.Module]]:
        """Every layer by name."""
        return list(self._skeletons.module.named_modules())

    def why_not_vmap(self) -> str | None:
        """The reason why single rows cannot be looked at, or None."""
        return why_not_vmap(self._skeletons.module)

    def skeleton(self, mode: Mode) -> tuple[nn.Module, bool]:
        """The network without numbers, and whether one of its tensors has two names."""
        return self._skeletons[mode], self._skeletons.tied

    def has_batch_statistics(self) -> bool:
        """Whether rows of a batch influence each other in training."""
        return any(isinstance(m, _BatchNorm) for m in self._skeletons.module.modules())

    def output(self, x: Tensor, mode: Mode) -> Tensor:
        """The embeddings, as a local model's output."""
        return self.forward(x, mode)

    def tensors(self) -> dict[str, Tensor]:
        """Parameters and buffers."""
        out = {f"parameter.{k}": v for k, v in self.parameters.items()}
        return out | {f"buffer.{k}": v for k, v in self.buffers.items()}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Put parameters and buffers back, in place.

        Raises:
            ModelError: they are of another network.
        """
        own = self.tensors()
        for name, value in tensors.items():
            if name not in own or own[name].shape != value.shape:
                got = tuple(own[name].shape[1:]) if name in own else "no such tensor"
                raise ModelError(
                    f"the saved network has {name!r} of shape {tuple(value.shape[1:])}, this one has {got}: it is not "
                    "the network of the run; pass the same encoders= again"
                )
            with torch.no_grad():
                own[name].copy_(value)

    def blank(self) -> Stack:
        """A copy with all numbers zero."""
        part = self.pick(range(self.size))
        part.restore({name: torch.zeros_like(value) for name, value in part.tensors().items()})
        return part

    def forward(self, x: Tensor, mode: Mode) -> Tensor:
        """x (P, B, ...) -> (P, B, d), in the dtype of x whatever the precision; of tokens in that of the weights."""
        if mode is not Mode.PREDICT and x.shape[1] == 1 and self.has_batch_statistics():
            raise ModelError("BatchNorm cannot learn from a batch of one row; use a larger batch")
        dtype = x.dtype if x.is_floating_point() else self._weights_dtype()
        with self.computing.switches(x.device):
            if self.way == "compiled" and mode is not Mode.PREDICT:
                return self._fast(x, mode).to(dtype)
            if self.way == "compiled" and x.is_cuda and x.shape[1] >= AT_ONCE:
                return self._in_pieces(x).to(dtype)
            with self.computing.rounding(x.device):
                return self._eager(x, mode).to(dtype)

    def _weights_dtype(self) -> torch.dtype:
        return next(value.dtype for value in self.parameters.values() if value.is_floating_point())

    def _eager(self, x: Tensor, mode: Mode) -> Tensor:
        skeleton = self._skeletons[mode]
        if self.way == "layers":
            return _layers(skeleton, self.parameters, x)
        tied, buffers = self._skeletons.tied, self._buffers_for(mode)
        if self.way == "vmap":

            def one(p: dict[str, Tensor], b: dict[str, Tensor], xi: Tensor) -> Tensor:
                return functional_call(skeleton, (p, b), (xi,), tie_weights=tied)  # type: ignore[no-any-return]

            return vmap(one)(self.parameters, buffers, x)
        outputs = []
        for k in range(self.size):
            parameters = {n: v[k] for n, v in self.parameters.items()}
            if self._skeletons.layered:
                outputs.append(_one_by_one(skeleton, parameters, x[k]))
            else:
                state = (parameters, {n: v[k] for n, v in buffers.items()})
                outputs.append(functional_call(skeleton, state, (x[k],), tie_weights=tied))
        return torch.stack(outputs)

    def _fast(self, x: Tensor, mode: Mode) -> Tensor:
        """Compiled; what teaches nothing as one recorded graph (local steps are recorded whole, models/graphs.py)."""
        if mode is Mode.LEARN or torch.is_grad_enabled():
            return self._compiled(x, mode)
        places = tuple(value.data_ptr() for value in (*self.parameters.values(), *self.buffers.values()))
        return self._recordings((mode, x.shape, x.dtype, places), lambda x: self._compiled(x, mode), x)

    def _in_pieces(self, x: Tensor) -> Tensor:
        """Predictions, compiled for one number of rows: they come in any number, and each would be compiled anew.

        The last piece begins with rows of the one before: rows that nobody asked about might change what is said of
        others, where a network looks at a batch.
        """
        outputs = []
        for start in range(0, x.shape[1], AT_ONCE):
            first = min(start, x.shape[1] - AT_ONCE)
            outputs.append(self._fast(x[:, first : first + AT_ONCE], Mode.PREDICT)[:, start - first :])
        return torch.cat(outputs, dim=1)

    def _compiled(self, x: Tensor, mode: Mode) -> Tensor:
        if mode not in self._passes:
            network = self._skeletons.module
            self._passes[mode] = PASSES.of(
                (architecture_key(network), mode), network, self._skeletons[mode], self.computing
            )
        run, buffers, outputs = self._passes[mode], self._buffers_for(mode), []
        slices = {name: value.unbind() for name, value in self.parameters.items()}  # backward: one stack each
        with parties_apart(x.device, self.size) as place:
            for k in range(self.size):
                own = {n: v[k] for n, v in slices.items()}, {n: v[k] for n, v in buffers.items()}
                with place(k):
                    outputs.append(run(*own, x[k]))
        return torch.stack(outputs)

    def _buffers_for(self, mode: Mode) -> dict[str, Tensor]:
        """Those that a pass may write to: only learning changes the stack's own."""
        return self.buffers if mode is Mode.LEARN else {k: v.clone() for k, v in self.buffers.items()}

    def to(self, device: torch.device | str, dtype: torch.dtype) -> Stack:
        """Move, once, before training; only floating buffers are cast."""

        def move(t: Tensor) -> Tensor:
            return t.detach().to(device, dtype if t.is_floating_point() else t.dtype)

        self.parameters = {k: move(v).requires_grad_(v.requires_grad) for k, v in self.parameters.items()}
        self.buffers = {k: move(v) for k, v in self.buffers.items()}
        return self

    def pick(self, index: Sequence[int]) -> Stack:
        """A copy with some of the parties; give it back with `put`."""
        part = copy.copy(self)
        part._recordings = Recordings()
        chosen = list(index)
        part.parameters = {
            k: v.detach()[chosen].clone().requires_grad_(v.requires_grad) for k, v in self.parameters.items()
        }
        part.buffers = {k: v[chosen].clone() for k, v in self.buffers.items()}
        part.size = len(chosen)
        if part.size == 1 and self.way in ("vmap", "each"):
            part.way = "single"
        return part

    def put(self, index: Sequence[int], part: Stack) -> None:
        """Write a picked copy back into its places."""
        with torch.no_grad():
            for mine, theirs in ((self.parameters, part.parameters), (self.buffers, part.buffers)):
                for name, value in theirs.items():
                    mine[name][list(index)] = value


class _Skeletons(dict[Mode, nn.Module]):
    """The structure of a network in each mode, without numbers: copied when first needed, since copies take long."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    @functools.cached_property
    def tied(self) -> bool:
        """Whether one tensor has two names: looking for such names takes a third of a pass through a small network."""
        named = (self.module.named_parameters, self.module.named_buffers)
        places = [tensor for names in named for _, tensor in names(remove_duplicate=False)]
        return len({id(tensor) for tensor in places}) < len(places)

    @functools.cached_property
    def layered(self) -> bool:
        """Whether it is a chain of plain layers, of which `_layers` and `_one_by_one` read nothing but their kinds."""
        return _is_layered(self.module) and not self.tied

    def __missing__(self, mode: Mode) -> nn.Module:
        self[mode] = self.module if self.layered else _skeleton(self.module, mode)
        return self[mode]


def _skeleton(module: nn.Module, mode: Mode) -> nn.Module:
    skeleton = without_numbers(module).train(mode is not Mode.PREDICT)
    if mode is Mode.UPLOAD:
        for layer in skeleton.modules():
            if isinstance(layer, KeyedDropout):
                layer.eval()
    return skeleton


def has_convolutions(network: nn.Module) -> bool:
    """Whether one of its layers is a convolution."""
    return any(isinstance(layer, nn.modules.conv._ConvNd) for layer in network.modules())


def why_not_vmap(module: nn.Module) -> str | None:
    """The reason why a network cannot be stacked, or None."""
    for name, layer in module.named_modules():
        if isinstance(layer, _BatchNorm) and layer.momentum is None:
            return f"{name}: BatchNorm with momentum=None reads its counter as a Python number"
        if isinstance(layer, nn.RNNBase):
            return f"{name}: {type(layer).__name__} has no batching rule"
        if layer._forward_pre_hooks or "parametrizations" in dict(layer.named_children()):
            return f"{name}: hooks and parametrizations (spectral_norm, weight_norm) keep state outside its buffers"
    return None


_LAYERS = (nn.Flatten, nn.Linear, nn.ReLU, nn.Tanh, nn.Identity)


def _is_layered(module: nn.Module) -> bool:
    return type(module) is nn.Sequential and all(
        type(layer) in _LAYERS
        and not (isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) != (1, -1))
        and not (layer._forward_hooks or layer._forward_pre_hooks)
        for layer in module
    )


def _layers(module: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    """A Sequential, one batched product per layer: bias and product in one kernel, ReLU in place."""
    owned = False  # whether x is ours to overwrite
    for name, layer in module._modules.items():  # `named_children` leaves out a layer that comes again
        if isinstance(layer, nn.Flatten):
            x = x.flatten(2)
        elif isinstance(layer, nn.Linear):
            weight = parameters[f"{name}.weight"].mT  # (P, in, out)
            bias = parameters.get(f"{name}.bias")
            x = torch.bmm(x, weight) if bias is None else torch.baddbmm(bias.unsqueeze(1), x, weight)
            owned = True
        elif isinstance(layer, nn.ReLU):
            x = x.relu_() if owned else x.relu()
        elif isinstance(layer, nn.Tanh):
            x = x.tanh()
    return x


def _one_by_one(module: nn.Module, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
    """A Sequential of one party: what its layers compute, without the third of the time that calling them takes."""
    for name, layer in module._modules.items():
        if isinstance(layer, nn.Flatten):
            x = x.flatten(1)
        elif isinstance(layer, nn.Linear):
            x = functional.linear(x, parameters[f"{name}.weight"], parameters.get(f"{name}.bias"))
        elif isinstance(layer, nn.ReLU):
            x = x.relu()
        elif isinstance(layer, nn.Tanh):
            x = x.tanh()
    return x
