"""Column plans as a file: skops, never pickle; only types that a plan is made of are ever loaded.

The file is a zip with a description in JSON. Before anything of it is built, every type that it names is held against
`TRUSTED`; skops itself would also build any other estimator of scikit-learn.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Any

from colonnade.config import build
from colonnade.data.column_settings import OneColumn
from colonnade.data.columns import ColumnPlan
from colonnade.data.features import LevelFeature, NumberFeature, from_plain, to_plain
from colonnade.errors import ConfigError, DataError
from colonnade.extras import ONE_READER, need

SCHEMA = "schema.json"  # where a skops file says what it holds

# (module, class, how skops builds it): what a fitted plan is made of, and nothing else. Plans are plain values and
# arrays; those of earlier versions held three estimators of scikit-learn.
TRUSTED = {
    *(("builtins", name, f"{name.title()}Node") for name in ("dict", "list", "tuple", "slice")),
    ("builtins", "str", "JsonNode"),  # text, numbers, true and false, None
    ("builtins", "str", "TypeNode"),  # the type of the keys of a dict
    ("numpy", "ndarray", "NdArrayNode"),
    *(("numpy", name, "NdArrayNode") for name in ("float64", "int64", "bool", "bool_")),
    *(("numpy", name, "TypeNode") for name in ("float64", "int64")),
    ("sklearn.compose._column_transformer", "ColumnTransformer", "ObjectNode"),
    ("sklearn.preprocessing._data", "StandardScaler", "ObjectNode"),
    ("sklearn.preprocessing._encoders", "OneHotEncoder", "ObjectNode"),
}
BROKEN = (
    zipfile.BadZipFile,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    ImportError,
    ConfigError,
)


def check_can_store() -> None:
    """Say before a training what would stop it from being saved; without loading the library, which takes a while."""
    if find_spec("skops") is None:
        need("skops", extra="tables", purpose="keeping how tables became numbers")


def to_bytes(plans: Mapping[str, ColumnPlan]) -> bytes:
    """The plans of some parties as a file."""
    skops = need("skops.io", extra="tables", purpose="keeping how tables became numbers")
    facts = {party: _facts(plan) for party, plan in plans.items()}
    content: bytes = skops.dumps(facts, compression=zipfile.ZIP_DEFLATED)
    return content


def from_bytes(content: bytes) -> dict[str, ColumnPlan]:
    """The plans in a file.

    Raises:
        DataError: it is damaged, names a type that no plan is made of, or skops is not installed.
    """
    skops = need("skops.io", extra="tables", purpose="reading how tables became numbers")
    try:
        for found in _types(json.loads(zipfile.ZipFile(io.BytesIO(content)).read(SCHEMA))):
            if found not in TRUSTED:
                module, name, _ = found
                raise DataError(f"it holds a {module}.{name}, which no preprocessing of ours contains; do not use it")
        with ONE_READER:
            facts = skops.loads(content)
        return {party: _plan(str(party), **parts) for party, parts in facts.items()}
    except BROKEN as error:
        raise DataError(f"it is damaged ({type(error).__name__}: {error})") from None


def _facts(plan: ColumnPlan) -> dict[str, Any]:
    """A plan as plain values."""
    return {
        "features": [to_plain(feature) for feature in plan.features],
        "dates": dict(plan.dates),
        "said": {name: one.model_dump(mode="json", exclude_unset=True) for name, one in plan.said.items()},
        "id": plan.id,
        "label": plan.label,
        "aside": plan.aside,
    }


def _plan(party: str, **facts: Any) -> ColumnPlan:
    weights = facts.get("weights")  # earlier versions kept only that, or nothing
    aside = tuple(facts.get("aside", () if weights is None else (weights,)))
    beside = (facts["id"], facts["label"], aside)
    if "transformer" in facts:
        return ColumnPlan(party, _features_of_before(**facts), {}, {}, *beside)
    said = {name: build(OneColumn, one, name) for name, one in facts["said"].items()}
    return ColumnPlan(party, tuple(map(from_plain, facts["features"])), dict(facts["dates"]), said, *beside)


def _features_of_before(
    numbers: Any, categories: Any, constant: Any, transformer: Any, **_: Any
) -> tuple[NumberFeature | LevelFeature, ...]:
    """What a plan of earlier versions did: standardised numbers and one-hot levels, and no value may be empty."""
    features: list[NumberFeature | LevelFeature] = []
    if numbers:
        scaler = transformer.named_transformers_["numbers"]
        for name, mean, scale, flat in zip(numbers, scaler.mean_, scaler.scale_, constant, strict=False):
            features.append(NumberFeature(name, "", float(mean), float(scale), refuses=True, constant=bool(flat)))
    if categories:
        known = transformer.named_transformers_["categories"].categories_
        for (name, kind), texts in zip(categories.items(), known, strict=True):
            features.append(LevelFeature(name, "", kind, tuple(map(str, texts)), refuses=True))
    return tuple(features)


def _types(node: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Every type that a description of a skops file names, and how it would be built."""
    if isinstance(node, dict):
        if any(key in node for key in ("__class__", "__module__", "__loader__")):
            yield node.get("__module__"), node.get("__class__"), node.get("__loader__")
        for value in node.values():
            yield from _types(value)
    elif isinstance(node, list):
        for value in node:
            yield from _types(value)
