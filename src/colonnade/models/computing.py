"""How networks compute: in which precision, and whether their passes in training are compiled.

Weights, optimiser states, heads and whatever travels keep the run's dtype in every precision; it is the networks'
products and convolutions that are rounded:
    float32   all 24 bits; the reference
    tf32      float32 numbers, of which a GPU's matrix units read 11 bits
    bfloat16  inputs and outputs of products and convolutions keep 8 bits, sums are float32
torch keeps such choices in global switches whose defaults differ (convolutions read 11 bits unless told not to), so
they are set here for as long as a network runs, and put back.
"""

from __future__ import annotations

import contextlib
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call

from colonnade.errors import ConfigError, ModelError

Precision = Literal["float32", "tf32", "bfloat16"]
Tensors = Mapping[str, Tensor]
Pass = Callable[[Tensors, Tensors, Tensor], Tensor]  # parameters, buffers and columns of one party: embedding

SHAPES_AT_MOST = 1024  # compiled variants in one process: networks times column shapes times batch sizes
KEPT = 64  # compiled passes that later runs of a process find again


@dataclass(frozen=True)
class Computing:
    """How the networks of a run compute."""

    precision: Precision = "float32"
    compile: bool = False

    def check(self, dtype: torch.dtype, device: torch.device) -> None:
        """Refuse what these numbers or this device do not have.

        Raises:
            ConfigError: the precision means nothing here.
        """
        if self.precision != "float32" and dtype != torch.float32:
            raise ConfigError(
                f"training.precision = {self.precision!r} rounds float32 numbers, and training.dtype is "
                f"{str(dtype).removeprefix('torch.')!r}; use dtype = 'float32', or leave precision out"
            )
        if self.precision == "tf32" and device.type != "cuda":
            raise ConfigError(
                f"training.precision = 'tf32' is a mode of NVIDIA GPUs, and the device is {str(device)!r}; "
                "use precision = 'float32' or 'bfloat16' here"
            )

    def switches(self, device: torch.device) -> contextlib.AbstractContextManager[None]:
        """torch's global switches as this precision needs them, for forward and backward passes alike."""
        return self._switched() if device.type == "cuda" else contextlib.nullcontext()

    @contextlib.contextmanager
    def _switched(self) -> Iterator[None]:
        cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
        before = cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark
        # The timed choice of a convolution's kernel may differ after a restart: not for the eager reference.
        cudnn.allow_tf32 = matmul.allow_tf32 = self.precision == "tf32"
        cudnn.benchmark = self.compile
        try:
            yield
        finally:
            cudnn.allow_tf32, matmul.allow_tf32, cudnn.benchmark = before

    def rounding(self, device: torch.device) -> contextlib.AbstractContextManager[object]:
        """Forward passes inside it round as this precision does, whatever the caller has switched on."""
        on = self.precision == "bfloat16"
        if not on and not torch.is_autocast_enabled(device.type):
            return contextlib.nullcontext()
        # A cache of rounded weights would outlive the step in which a captured graph made it.
        return torch.autocast(device.type, torch.bfloat16, enabled=on, cache_enabled=False)


def compiled(skeleton: nn.Module, computing: Computing) -> Pass:
    """The forward pass of one party, compiled on first use for each shape; its backward pass with it."""
    # Matrix units read channels last; plain float32 does not run on them.
    reorder = _channels_last if computing.precision != "float32" else _as_it_is

    def one(parameters: Tensors, buffers: Tensors, x: Tensor) -> Tensor:
        ordered = {name: reorder(value) for name, value in parameters.items()}
        with computing.rounding(x.device):
            return functional_call(skeleton, (ordered, dict(buffers)), (reorder(x),))  # type: ignore[no-any-return]

    # The limits are counted over all stacks of a process, and the default of 8 is less than CIFAR's patches need.
    limits = torch._dynamo.config
    limits.recompile_limit = max(limits.recompile_limit, SHAPES_AT_MOST)
    limits.accumulated_recompile_limit = max(limits.accumulated_recompile_limit, SHAPES_AT_MOST)
    run: Pass = torch.compile(one, dynamic=False, fullgraph=True)

    def once(parameters: Tensors, buffers: Tensors, x: Tensor) -> Tensor:
        try:
            with warnings.catch_warnings():  # torch's compiler warns of its own parts, and of slices without gradient
                warnings.simplefilter("ignore")
                return run(parameters, buffers, x)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = " ".join(str(error).strip().split("\n\n")[0].split())
            raise ModelError(
                f"the network {type(skeleton).__name__} cannot be compiled here: {reason}; use training.compile = false"
            ) from None

    return once


class SharedPasses:
    """Compiled passes by what they are of: a second run with a network like the first's compiles nothing."""

    def __init__(self) -> None:
        self._known: OrderedDict[object, tuple[nn.Module, Pass]] = OrderedDict()

    def of(self, key: object, network: nn.Module, skeleton: nn.Module, computing: Computing) -> Pass:
        """The pass of a network; `key` holds what two networks must share for one pass to serve both.

        The network is kept with its pass: a key names parts of it by their addresses, which nothing else may get.
        """
        whole = key, computing
        if whole not in self._known:
            self._known[whole] = network, compiled(skeleton, computing)
            if len(self._known) > KEPT:
                self._known.popitem(last=False)
        self._known.move_to_end(whole)
        return self._known[whole][1]


def _channels_last(value: Tensor) -> Tensor:
    return value.contiguous(memory_format=torch.channels_last) if value.dim() == 4 else value


def _as_it_is(value: Tensor) -> Tensor:
    return value
