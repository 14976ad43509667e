"""`import colonnade` shows exactly what `__all__` promises, and opens without any extra installed."""

import __future__

import subprocess
import sys
from importlib import metadata
from types import ModuleType

import pytest

import colonnade

MOST_NAMES = 23
EXTRAS = (
    "typer", "rich", "matplotlib", "jinja2", "pandas", "pyarrow", "PIL",
    "nats", "cryptography", "private_set_intersection", "optuna", "skops",
)  # fmt: skip


def visible(door: ModuleType) -> set[str]:
    """Public names, without the submodules that Python binds by itself when something imports them."""
    promised = set(door.__all__)
    for name in promised:
        getattr(door, name)  # a name that is loaded on first use is bound now
    return {
        name
        for name, value in vars(door).items()
        if not name.startswith("_")
        and not isinstance(value, __future__._Feature)
        and (name in promised or not (isinstance(value, ModuleType) and value.__name__ == f"{door.__name__}.{name}"))
    }


def door_complaints(door: ModuleType) -> list[str]:
    promised = set(door.__all__) - {"__version__"}
    try:
        shown = visible(door)
    except AttributeError as error:
        return [f"__all__ promises what is not there: {error}"]
    complaints = [f"visible but not in __all__: {name}" for name in sorted(shown - promised)]
    if len(door.__all__) != len(set(door.__all__)):
        complaints.append("__all__ names something twice")
    if len(promised) > MOST_NAMES:
        complaints.append(f"{len(promised)} names; more than {MOST_NAMES} need a reason in CHANGELOG.md")
    return complaints


def make_door(names: list[str], **members: object) -> ModuleType:
    door = ModuleType("door")
    door.__dict__.update(members, __all__=names)
    return door


def test_the_front_door_is_exactly_what_we_say() -> None:
    assert door_complaints(colonnade) == []


def test_the_version_is_the_installed_one() -> None:
    assert colonnade.__version__ == metadata.version("colonnade")


def test_the_front_door_opens_without_extras() -> None:
    block = f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r})); import colonnade"
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_the_cli_extra_one_sentence_says_what_to_install() -> None:
    block = "import sys; sys.modules['typer'] = None; from colonnade.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", block], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'colonnade[cli]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "door",
    [
        make_door(["fit"], fit=len, stray=len),
        make_door(["fit"], fit=len, np=sys),  # an imported library is visible too
        make_door(["fit", "gone"], fit=len),
        make_door(["fit", "fit"], fit=len),
        make_door([f"n{i}" for i in range(24)], **{f"n{i}": i for i in range(24)}),
    ],
    ids=["stray", "library", "missing", "twice", "crowded"],
)
def test_a_wrong_front_door_is_seen(door: ModuleType) -> None:
    assert door_complaints(door)


def test_a_right_front_door_is_left_alone() -> None:
    inside = ModuleType("door.inside")
    assert door_complaints(make_door(["__version__", "fit"], __version__="1", fit=len, inside=inside, _hidden=1)) == []
