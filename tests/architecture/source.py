"""Reading the package without importing it: files, imports, and the full names of what the code uses."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "colonnade"
LAYOUT = {  # tokens that are no code
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass(frozen=True)
class Import:
    """One imported name, dotted and absolute; `late` means inside a function, or for the type checker only."""

    target: str
    line: int
    late: bool


@dataclass(frozen=True)
class Source:
    """One file of the package; `path` is relative to it, as in `methods/vimadmm.py`."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """All of the tree: several tests look at each, and walking takes longer than looking."""
        return tuple(ast.walk(self.tree))

    @property
    def unit(self) -> str:
        """The folder or top-level module this file belongs to."""
        return PurePosixPath(self.path).parts[0].removesuffix(".py")

    @cached_property
    def imports(self) -> list[Import]:
        return list(self._imports_below(self.tree, late=False))

    def _imports_below(self, node: ast.AST, *, late: bool) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, child.lineno, late) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                origin = self._absolute(child)
                yield from (Import(f"{origin}.{alias.name}", child.lineno, late) for alias in child.names)
            elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                yield from self._imports_below(ast.Module(child.body, []), late=True)
                yield from self._imports_below(ast.Module(child.orelse, []), late=late)
            else:
                inside = late or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                yield from self._imports_below(child, late=inside)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        here = PurePosixPath("colonnade", self.path).parts
        return ".".join([*here[: len(here) - node.level], *([node.module] if node.module else [])])

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Local name -> full name, for everything imported: `np` -> `numpy`, `randn` -> `torch.randn`."""
        known: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top = alias.name.split(".")[0]
                    known[alias.asname or top] = alias.name if alias.asname else top
            elif isinstance(node, ast.ImportFrom):
                known |= {alias.asname or alias.name: f"{self._absolute(node)}.{alias.name}" for alias in node.names}
        return known

    def full_name(self, node: ast.AST) -> str | None:
        """`np.random.seed` -> `numpy.random.seed`; None for anything that does not start at an import."""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id)
        if isinstance(node, ast.Attribute):
            origin = self.full_name(node.value)
            return f"{origin}.{node.attr}" if origin else None
        return None

    @cached_property
    def uses(self) -> list[tuple[str, ast.expr]]:
        """Every dotted use of something imported, with its node."""
        named = [node for node in self.nodes if isinstance(node, (ast.Name, ast.Attribute))]
        return [(name, node) for node in named if (name := self.full_name(node))]

    def at(self, line: int, complaint: str) -> str:
        return f"src/colonnade/{self.path}:{line} {complaint}"

    @property
    def code_lines(self) -> int:
        """Lines that hold code: no blank lines, comments or docstrings."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        lines = {n for token in tokens if token.type not in LAYOUT for n in range(token.start[0], token.end[0] + 1)}
        texts = {n for node in self.nodes if _is_text(node) for n in range(node.lineno, node.end_lineno + 1)}
        return len(lines - texts)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


@cache
def package() -> list[Source]:
    """Every Python file of the package, read and parsed once."""
    return [Source(path.relative_to(PACKAGE).as_posix(), path.read_text()) for path in sorted(PACKAGE.rglob("*.py"))]


def lines(complaints: Iterable[str]) -> str:
    """All complaints below each other: an assertion message that hides none of them."""
    return "".join(f"\n{complaint}" for complaint in complaints)
