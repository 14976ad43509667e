"""Code of the user's own: a folder's run of other code is not taken for the one that is asked for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import colonnade as cn
from colonnade.engines.own_code import own_code
from colonnade.errors import RunError
from colonnade.fit import resume
from colonnade.methods import make_method
from colonnade.report.record import grouped
from tests.federations import small
from tests.site import inside, install

SHORT: dict[str, Any] = {"rounds": 2, "evaluate_every": 1, "progress": False}
SHAPES = {"party_0": (5,), "party_1": (5,)}


class Plain(nn.Module):
    def __init__(self, width: int, act: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.layer = nn.Linear(width, 4)
        self.act = act

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if self.act is None else self.act(self.layer(x))


class Bent(Plain):
    """The same tensors, another forward pass."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.layer(x))


def plain(party: str, shape: tuple[int, ...]) -> nn.Module:
    return Plain(shape[0])


def bent(party: str, shape: tuple[int, ...]) -> nn.Module:
    return Bent(shape[0])


def compared(encoders: Any, out: Path) -> list[str]:
    return [run.id for run in cn.compare(small(), ["vimadmm"], seeds=[0, 1], encoders=encoders, out=out, **SHORT).runs]


def validated(encoders: Any, out: Path) -> list[str]:
    return [run.id for run in cn.cross_validate(small(), "vimadmm", folds=2, encoders=encoders, out=out, **SHORT).runs]


def tuned(encoders: Any, out: Path) -> float:
    return cn.tune(small(), "vimadmm", trials=1, encoders=encoders, out=out, **SHORT).score


@pytest.mark.parametrize("ask", [compared, validated, tuned])
@pytest.mark.parametrize("before", [plain, None])
def test_a_folder_with_runs_of_another_network_is_refused(ask: Callable[..., Any], before: Any, tmp_path: Path) -> None:
    first = ask(before, tmp_path / "out")
    assert ask(before, tmp_path / "out") == first
    with pytest.raises(RunError, match=r"(runs?|search) of .*other (code|terms).*choose another --out"):
        ask(bent, tmp_path / "out")


def test_a_folder_with_runs_that_began_with_other_numbers_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    first, other = ({name: Plain(5) for name in small().names} for _ in range(2))
    compared(first, tmp_path / "out")
    compared(first, tmp_path / "out")
    with pytest.raises(
        RunError, match=r"party 'party_0' began with other numbers; a function encoders\(party, shape\)"
    ):
        compared(other, tmp_path / "out")


def test_a_run_does_not_go_on_with_another_network(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def stop(now: Any) -> None:
        raise Enough

    options: dict[str, Any] = {"rounds": 4, "evaluate_every": 0, "checkpoint_every": 1, "out": tmp_path / "run"}
    with pytest.raises(Enough):
        cn.fit(small(), "vimadmm", encoders=plain, watch=stop, **options)
    with pytest.raises(RunError, match=r"cannot go on: the local model of party 'party_0' was another one"):
        resume(tmp_path / "run", small(), encoders=bent)
    assert resume(tmp_path / "run", small(), encoders=plain).result["rounds"] == 4


def test_reading_a_run_with_another_network_is_warned_of(tmp_path: Path) -> None:
    cn.fit(small(), "vimadmm", encoders=plain, out=tmp_path / "run", **SHORT)
    cn.Run.load(tmp_path / "run", encoders=plain)
    with pytest.warns(UserWarning, match=r"may predict otherwise than it did: the local model of party 'party_0'"):
        cn.Run.load(tmp_path / "run", encoders=bent)


def test_runs_of_two_networks_are_no_two_seeds_of_one_experiment() -> None:
    runs = [cn.fit(small(), "vimadmm", encoders=make, seed=seed, **SHORT) for make in (plain, bent) for seed in (0, 1)]
    groups = grouped([run.record() for run in runs])
    assert [len(group.records) for group in groups] == [2, 2]
    assert groups[0].label != groups[1].label


@pytest.mark.parametrize(
    "other",
    [
        lambda: Plain(5, torch.tanh),
        lambda: nn.Sequential(Plain(5), nn.Dropout(0.1)),
        lambda: Plain(5).requires_grad_(requires_grad=False),
        lambda: Bent(5),
    ],
)
def test_what_a_network_does_is_in_its_digest(other: Callable[[], nn.Module]) -> None:
    method = make_method("vimadmm")
    usual = own_code(method, SHAPES, plain, 0)
    assert usual == own_code(method, SHAPES, plain, 1)
    assert usual != own_code(method, SHAPES, lambda party, shape: other(), 0)


METHOD = '''"""A slope."""
{comment}
from colonnade.methods.vafl import VAFL


def halved(value):
    return value / {by}


class Halved(VAFL):
    """VAFL, and halves."""

    name = "halved"

    def predict(self, state, uploads):
        return halved(super().predict(state, uploads))
'''
COMPARE = """
import colonnade as cn
from colonnade.testing import small
try:
    found = cn.compare(small(), ["halved"], seeds=1, rounds=2, evaluate_every=1, out="out", progress=False)
    print(found.runs[0].id, found.runs[0].metrics["log_loss"]["test"])
except cn.ColonnadeError as error:
    print("refused:", error)
"""


def test_a_folder_with_runs_of_a_method_that_was_edited_is_refused(tmp_path: Path) -> None:
    install(tmp_path, "halved", {"colonnade.methods": {"halved": "halved:Halved"}})
    said = []
    for comment, by in (("", 2), ("# why", 2), ("", 3)):
        (tmp_path / "halved.py").write_text(METHOD.format(comment=comment, by=by), encoding="utf-8")
        said.append(inside(tmp_path, tmp_path, f"import warnings; warnings.simplefilter('ignore')\n{COMPARE}"))
    assert said[0] == said[1], "a comment changes nothing"
    assert "refused:" not in said[0]
    assert "halved-0 holds a run of other code: the code of its method has changed; choose another --out" in said[2]


def test_our_own_code_leaves_no_digest() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = cn.fit(small(), "vimadmm", **SHORT)
    assert "own_code" not in run.about
