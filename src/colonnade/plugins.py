"""Tables of methods, tasks, metrics, mechanisms and local models: built in, and of other installed packages.

A package offers one by an entry point whose name is the name that users write:

    [project.entry-points."colonnade.methods"]
    my_method = "my_package:MyMethod"

Entry points are looked up once, on the first question, and what they point to is loaded when it is asked for by name. A
package that cannot be loaded costs only itself: one sentence names it. Built-in names cannot be taken.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any, Generic, TypeVar

from colonnade.errors import ConfigError, PluginLeftOut

T = TypeVar("T")


class Table(Mapping[str, T], Generic[T]):
    """What there is of one kind, by name. Asking for a name that is there but cannot be loaded is a `ConfigError`."""

    def __init__(self, group: str, builtin: Mapping[str, T], check: Callable[[str, Any], str]) -> None:
        """A table.

        Args:
            group: of the entry points, e.g. `colonnade.methods`.
            builtin: what comes with this package.
            check: what is wrong with an offered thing of that name; empty: nothing.
        """
        self.group, self.builtin, self._check = group, builtin, check
        self._loaded: dict[str, T] = {}

    @cached_property
    def offered(self) -> dict[str, list[EntryPoint]]:
        """The entry points of other packages by name, without those that take a built-in one."""
        found: dict[str, list[EntryPoint]] = {}
        for point in _installed(tuple(sys.path))(group=self.group):
            if point.name in self.builtin:
                told = (
                    f"the package {_package(point)} offers {point.name!r} as one of its {self.group}, a built-in name"
                )
                warnings.warn(f"{told}; it is left out: it needs another name", PluginLeftOut, stacklevel=2)
            elif point not in found.setdefault(point.name, []):  # a path that is searched twice gives it twice
                found[point.name].append(point)
        return found

    def __getitem__(self, name: str) -> T:
        offered = self.offered
        if name in self.builtin:
            return self.builtin[name]
        if name not in self._loaded:
            self._loaded[name] = self._load(name, offered[name])
        return self._loaded[name]

    def __contains__(self, name: object) -> bool:
        return name in self.builtin or name in self.offered  # without loading it

    def __iter__(self) -> Iterator[str]:
        return iter([*self.builtin, *self.offered])

    def __len__(self) -> int:
        return len(self.builtin) + len(self.offered)

    def usable(self) -> dict[str, T]:
        """Everything that can be loaded; a warning for what cannot."""
        found = dict(self.builtin)
        for name in self.offered:
            try:
                found[name] = self[name]
            except ConfigError as error:
                warnings.warn(str(error), PluginLeftOut, stacklevel=2)
        return found

    def _load(self, name: str, points: list[EntryPoint]) -> T:
        packages = sorted({_package(point) for point in points})
        if len(packages) > 1:
            raise ConfigError(
                f"{name!r} of {self.group} is offered by {' and '.join(packages)}; remove one of these packages"
            )
        try:
            thing: Any = points[0].load()
        except Exception as error:  # whatever a stranger's module does when it is imported
            wrong = f"cannot be loaded ({type(error).__name__}: {' '.join(str(error).split())})"
        else:
            wrong = self._check(name, thing)
        if wrong:
            raise ConfigError(
                f"{name!r} of {self.group}, from the package {packages[0]}, {wrong}; repair or remove that package"
            )
        found: T = thing
        return found


@lru_cache(maxsize=1)
def _installed(path: tuple[str, ...]) -> Callable[..., EntryPoints]:
    """What selects from all entry points: to read the metadata of every package takes 25 ms, and every table asks."""
    return entry_points().select


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
