"""A tensor's place in memory is part of the contract: no method can make a run that differs after a restart.

Products of row-major and column-major tensors round differently on some processors only, so these tests do not wait
for a processor that shows it: methods are made to answer in odd layouts on purpose, and the numbers must not change.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from colonnade import layout
from colonnade.errors import LayoutError
from colonnade.fit import fit, resume
from colonnade.layout import ALIGNMENT, canonical, is_canonical
from colonnade.methods import make_method
from colonnade.methods.base import Reply
from colonnade.privacy.sealed import Upload, unwrap
from colonnade.wire.codec import decode, encode
from tests.contracts.registry import CLOSELY, EVERY, covering, fitting, make
from tests.contracts.test_saved_runs import interrupt
from tests.federations import small
from tests.trainers import ENGINES, TINY, open_trainer, rounds_of, untimed

OPTIONS: dict[str, Any] = {
    "rounds": 7,
    "evaluate_every": 2,
    "model": TINY,
    "checkpoint_every": 1,
    "dtype": "float32",
    "schedule": {"batch": 20},
}


def odd(value: Tensor) -> Tensor:
    """The same numbers, column-major and at an unaligned address; where torch sees no difference, aligned."""
    hidden = value.dim() > 1 and 1 in value.shape[-2:]  # any stride of a single row or column counts as contiguous
    room = torch.empty(value.numel() + ALIGNMENT, dtype=value.dtype, device=value.device)
    room = room[:-ALIGNMENT] if hidden else room[1 : 1 - ALIGNMENT]
    turned = value.mT.contiguous() if value.dim() > 1 else value
    moved = room.view(turned.shape).copy_(turned)
    return moved.mT if value.dim() > 1 else moved


def all_odd(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: odd(value) for name, value in values.items()}


def scramble(patch: pytest.MonkeyPatch, kind: type[Any]) -> None:
    """Make a method leave everything it hands over in odd layouts: state, reply, upload and memory."""
    coordinate: Callable[..., Reply] = kind.coordinate
    speak: Callable[..., Upload] = kind.upload
    learn: Callable[..., None] = kind.learn

    def odd_coordinate(self: Any, state: dict[str, Tensor], *rest: Any) -> Reply:
        reply = coordinate(self, state, *rest)
        state.update(all_odd(state))
        return replace(reply, common=all_odd(reply.common), own=tuple(map(all_odd, reply.own)))

    def odd_upload(self: Any, *rest: Any) -> Upload:
        return Upload(all_odd(unwrap(speak(self, *rest))))

    def odd_learn(self: Any, cohort: Any, *rest: Any) -> None:
        learn(self, cohort, *rest)
        cohort.memory.update(all_odd(cohort.memory))
        for state in cohort.optimiser.values():
            state.update(all_odd(state))

    patch.setattr(kind, "coordinate", odd_coordinate)
    patch.setattr(kind, "upload", odd_upload)
    patch.setattr(kind, "learn", odd_learn)


# With several outputs and with one: tensors of one column have hidden layouts. Every method in one of these ways.
WAYS = [f"{engine} {task}" for engine in ENGINES for task in ("multiclass", "binary")]


@pytest.mark.parametrize(("name", "way"), covering(WAYS))
def test_odd_layouts_change_no_bit(name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, task = way.split()
    federation, method = fitting(name, small(task=task)), make(name, local_steps=2)
    plain = fit(federation, method, engine=engine, **OPTIONS)
    with monkeypatch.context() as patch:
        scramble(patch, type(method))
        with pytest.raises(KeyboardInterrupt):
            fit(federation, method, engine=engine, out=tmp_path / "run", watch=interrupt(4), **OPTIONS)
        again = resume(tmp_path / "run", federation)
    assert again.fingerprint() == plain.fingerprint()
    assert untimed(again.history) == untimed(plain.history)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_yes_no_run_resumes_to_the_same_bits(engine: str, tmp_path: Path) -> None:
    """Heads of one output come out of a solve column-major, which torch calls contiguous: this run ended otherwise."""
    options = {**OPTIONS, "rounds": 4, "evaluate_every": 1, "model": {"hidden": 8}, "schedule": {"batch": 1024}}
    federation, method = small(widths=(3, 3), rows=240, task="binary"), make_method("vimadmm")
    plain = fit(federation, method, engine=engine, **options)
    with pytest.raises(KeyboardInterrupt):
        fit(federation, method, engine=engine, out=tmp_path / "run", watch=interrupt(2), **options)
    assert resume(tmp_path / "run", federation).fingerprint() == plain.fingerprint()


def test_debug_mode_finds_what_nobody_made_canonical(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: state that is changed behind the coordinator's back is named."""
    trainer = open_trainer(small(), make("vimadmm"), dtype="float32", rounds=3)
    assert layout.DEBUG, "tests run in debug mode"
    next(rounds_of(trainer))
    trainer.coordinator.state["dual"] = odd(trainer.coordinator.state["dual"])
    with pytest.raises(LayoutError, match=r"the coordinator: tensor 'state.dual' .* strides"):
        trainer.coordinator.request()
    monkeypatch.setattr(layout, "DEBUG", False)
    assert trainer.coordinator.request()[0].number == 1


class TestCanonical:
    def test_a_canonical_tensor_is_left_where_it_is(self) -> None:
        value = torch.randn(3, 5)
        assert canonical(value).data_ptr() == value.data_ptr()

    @pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 5), (5, 1), (2, 5, 1), (2, 1, 5)])
    def test_an_odd_one_is_copied(self, shape: tuple[int, ...]) -> None:
        value = torch.randn(shape)
        assert not is_canonical(odd(value))
        assert is_canonical(canonical(odd(value)))
        assert torch.equal(canonical(odd(value)), value)

    def test_a_message_is_read_into_canonical_tensors(self) -> None:
        arrays = {f"a{n}": torch.randn(n, 3, dtype=torch.float64) for n in range(1, 40)}
        read = decode(encode({"kind": "TRAIN"}, arrays))[1]
        assert all(value.data_ptr() % ALIGNMENT == 0 for value in read.values())
        assert all(torch.equal(read[name], value) for name, value in arrays.items())


def test_resuming_with_other_threads_warns_by_name(tmp_path: Path) -> None:
    federation, method = small(), make("vimadmm")
    with pytest.raises(KeyboardInterrupt):
        fit(federation, method, out=tmp_path / "run", watch=interrupt(OPTIONS["rounds"] - 1), **OPTIONS)
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    try:
        with pytest.warns(UserWarning, match=f"threads {before} there, {before + 1} here"):
            resume(tmp_path / "run", federation)
    finally:
        torch.set_num_threads(before)


# -- other instruction sets -----------------------------------------------------------------------

INSTRUCTIONS = {  # besides those of this processor, under which all other tests of restarts run
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    "plain": {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
}
SCRIPT = """
import sys
from pathlib import Path
from colonnade.fit import fit, resume
from colonnade.run import Run
from tests.contracts.registry import fitting, make
from tests.contracts.test_layout import OPTIONS
from tests.contracts.test_saved_runs import interrupt
from tests.federations import digits
wide = {**OPTIONS, "rounds": 5, "model": {"hidden": 12, "embedding": 6}, "schedule": {"batch": 512}}
for name in sys.argv[2:]:
    federation, method = fitting(name, digits(parties=2)), make(name, local_steps=2)
    whole = fit(federation, method, **wide)
    folder = Path(sys.argv[1]) / name
    try:
        fit(federation, method, out=folder, watch=interrupt(3), **wide)
    except KeyboardInterrupt:
        pass
    print(name, resume(folder, federation).fingerprint() == whole.fingerprint())
"""


@pytest.mark.parametrize(("start", "instructions"), list(enumerate(INSTRUCTIONS)))
def test_restarts_are_identical_under_other_instruction_sets(start: int, instructions: str, tmp_path: Path) -> None:
    """Digits, two parties, hidden 12, embedding 6, batch 512: the case in which an AMD processor showed the fault.

    Every method with one of the sets, the two of the paper with both.
    """
    names = [name for at, name in enumerate(EVERY) if at % len(INSTRUCTIONS) == start or name in CLOSELY[:2]]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), *names],
        cwd=root, env={**os.environ, **INSTRUCTIONS[instructions]}, capture_output=True, text=True,
        timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == names
    assert [line for line in lines if not line.endswith("True")] == []
