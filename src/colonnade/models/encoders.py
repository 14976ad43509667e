"""Local models by settings: networks from a party's columns to an embedding, ridge and trees. Parties may differ.

Any `nn.Module` may stand in for a network, any `Regressor` for a local model (`models/local.py`). A regressor may have
a name: a line in BUILT_IN, or an entry point `colonnade.local_models` of another package.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
import torch.nn.functional as F
from pydantic import AfterValidator, ConfigDict, Field, model_serializer, model_validator
from pydantic_core import PydanticCustomError
from torch import Tensor, nn

from colonnade.config import Settings
from colonnade.errors import ConfigError, ModelError
from colonnade.models import pooled
from colonnade.models.heads import HeadSettings
from colonnade.models.local import Regressor, check_local
from colonnade.models.resnet import ResNet, Stem, convolve, embed
from colonnade.models.ridge import Ridge, RidgeSettings
from colonnade.models.trees import Trees, TreeSettings
from colonnade.plugins import Table
from colonnade.randomness import seeded

NETWORKS = ("auto", "linear", "tanh", "mlp", "cnn", "resnet18", "resnet34")


def _known(name: str) -> str:
    """The name of a local model; those of other packages are not loaded for this."""
    if name not in NETWORKS and name not in REGRESSORS:
        known = [*NETWORKS, *REGRESSORS]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
        raise PydanticCustomError("local_model", "no local model has this name; {hint}", {"hint": hint})
    return name


Kind = Annotated[str, AfterValidator(_known)]


class LocalSettings(Settings):
    """What a party's local model is: the settings in which parties may differ."""

    encoder: Kind = Field(
        "auto",
        description="local model: linear, tanh (one layer), mlp, cnn, resnet18, resnet34; auto: cnn for (3, H, W) "
        "columns, else mlp; ridge: solved, no network; trees: boosted trees (extra trees); or one of an installed "
        "package",
    )
    hidden: int = Field(120, ge=1, description="hidden width of the mlp")
    embedding: int = Field(60, ge=1, description="width of the embedding a party sends")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout after the hidden layer of the mlp")
    stem: Stem = Field("large", description="first layers of a resnet: for photographs, or small ones for patches")
    scale_columns: Literal["auto", "always", "never"] = Field(
        "auto", description="standardise each party's columns; auto: unless the data set already is"
    )
    ridge: RidgeSettings = Field(RidgeSettings(), description="how ridge models are solved")
    trees: TreeSettings = Field(TreeSettings(), description="how boosted trees are grown")

    @property
    def gradients(self) -> bool:
        """Whether the local model is a network."""
        return self.encoder in NETWORKS


class PartySettings(LocalSettings):
    """[model.NAME]: what is different at the party NAME; only what was given is stored."""

    @model_validator(mode="before")
    @classmethod
    def _no_head(cls, given: Any) -> Any:
        """Refuse the one setting of [model] in which parties cannot differ, with its place."""
        if isinstance(given, Mapping) and "head" in given:
            raise PydanticCustomError(
                "common", "heads have one shape for all parties: set head in the [model] of the run"
            )
        return given

    @model_serializer(mode="plain")
    def given(self) -> dict[str, Any]:
        """What was given, and nothing of the defaults."""
        given = {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}
        return {k: v.model_dump(exclude_unset=True) if isinstance(v, Settings) else v for k, v in given.items()}


class ModelSettings(LocalSettings):
    """The local models of the parties and the shape of their heads.

    A name that is no setting is a party's: `ModelSettings(hidden=64, telco={"hidden": 16})`, `[model.telco]` in TOML.
    """

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, PartySettings] = Field(init=False)

    head: HeadSettings = Field(HeadSettings(), description="heads: layers and dropout")

    @property
    def parties(self) -> dict[str, PartySettings]:
        """What is different at which party."""
        return dict(self.__pydantic_extra__ or {})

    def of(self, party: str) -> ModelSettings:
        """The settings of one party, its differences included."""
        different = self.parties.get(party)
        return self if different is None and not self.parties else self.with_own(different or PartySettings())

    def with_own(self, different: PartySettings) -> ModelSettings:
        """The settings of a party that differs in these; of a table inside, only what was given is different."""
        common = self._common()
        for name, value in different.given().items():
            inner = common[name]
            common[name] = inner.model_copy(update=value) if isinstance(inner, Settings) else value
        return ModelSettings(**common)

    def scales(self, scaled: bool) -> bool:
        """Whether columns are scaled; `scaled` says that they already are."""
        return not scaled if self.scale_columns == "auto" else self.scale_columns == "always"

    def apart(self, own: ModelSettings) -> str:
        """What keeps a party with settings `own` out of the group of others with an equal model; empty: nothing."""
        return "" if own.scale_columns == self.scale_columns else f"|columns {own.scale_columns} scaled"

    def only(self, names: Sequence[str]) -> ModelSettings:
        """The same, without what is different at other parties than these."""
        kept = {name: different for name, different in self.parties.items() if name in names}
        return ModelSettings(**self._common(), **kept)

    def _common(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).model_fields}

    def check_parties(self, names: Sequence[str]) -> None:
        """Refuse a table of settings whose name is no party's.

        Raises:
            ConfigError: with the setting or the party that was probably meant.
        """
        known = [*type(self).model_fields, *names]
        strange = next((name for name in self.parties if name not in names), None)
        if strange is not None:
            close = difflib.get_close_matches(strange, known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"parties: {', '.join(names)}"
            raise ConfigError(f"[model.{strange}]: {strange!r} is neither a setting of [model] nor a party; {hint}")


class ConvNet(nn.Module):
    """The small CNN of the paper's CIFAR experiments: four convolutions, one BatchNorm at the end."""

    def __init__(self, channels: int, embedding: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 64, 3, padding=1)
        self.conv4 = nn.Conv2d(64, 128, 3, padding=1)
        self.project = nn.Linear(128, embedding)
        self.norm = nn.BatchNorm1d(embedding)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, h, w) -> (B, embedding); patches are first enlarged to 32 x 32."""
        if pooled.serves(self.conv1, x):
            x = pooled.pooled_convolution(self.conv1, x)
        else:
            x = F.avg_pool2d(F.relu(convolve(self.conv1, F.interpolate(x, (32, 32)))), 2)
        for layer in (self.conv2, self.conv3):
            x = F.avg_pool2d(F.relu(layer(x)), 2)
        return embed(F.relu(self.conv4(x)), self.project, self.norm)


BUILT_IN: dict[str, Callable[[LocalSettings], Regressor]] = {  # encoders that are no networks
    "ridge": lambda settings: Ridge(settings.ridge),
    "trees": lambda settings: Trees(settings.trees),
}


def _wrong(name: str, make: Any) -> str:
    """What is wrong with a local model of another package; empty: nothing."""
    if name in NETWORKS:
        return "has the name of a built-in network; it needs another name"
    if not callable(make):
        return f"needs to be a class, or a function of LocalSettings, that makes a regressor; it is {make!r}"
    called = getattr(make, "name", None)
    return "" if called == name else f"calls itself {called!r}; the name of its entry point must be the same"


REGRESSORS: Table[Callable[[LocalSettings], Regressor]] = Table("colonnade.local_models", BUILT_IN, _wrong)


def build_local(settings: ModelSettings, shape: tuple[int, ...], seed: int, party: str) -> nn.Module | Regressor:
    """The local model of one party; `settings` are that party's."""
    if not settings.gradients:
        made = check_local(party, REGRESSORS[settings.encoder](settings))
        if isinstance(made, nn.Module):
            raise ModelError(f"encoder {settings.encoder!r} makes a network; pass networks of your own as encoders=")
        return made
    return build_encoder(settings, shape, seed, party)


def build_encoder(settings: ModelSettings, shape: tuple[int, ...], seed: int, party: str) -> nn.Module:
    """The local network of one party for columns of `shape`, its weights from the party's own stream."""
    return seeded(lambda: _build(settings, shape), seed, "encoder", party)


def _build(s: ModelSettings, shape: tuple[int, ...]) -> nn.Module:
    kind = s.encoder
    if kind not in NETWORKS:
        raise ModelError(f"encoder {kind!r} is no network; use encoder = 'linear' where gradients are needed")
    if kind == "auto":
        kind = "cnn" if len(shape) == 3 and min(shape[1:]) > 4 else "mlp"
    width = int(torch.Size(shape).numel())
    if kind == "linear":
        return nn.Sequential(nn.Flatten(), nn.Linear(width, s.embedding))
    if kind == "tanh":
        return nn.Sequential(nn.Flatten(), nn.Linear(width, s.embedding), nn.Tanh())
    if kind == "mlp":
        drop = [nn.Dropout(s.dropout)] if s.dropout else []
        first, last = nn.Linear(width, s.hidden), nn.Linear(s.hidden, s.embedding)
        return nn.Sequential(nn.Flatten(), first, nn.ReLU(), *drop, last, nn.ReLU())
    if len(shape) != 3:
        raise ModelError(f"encoder {kind!r} needs columns of shape (channels, height, width); these are {shape}")
    if kind == "cnn":
        return ConvNet(shape[0], s.embedding)
    return ResNet(shape[0], s.embedding, 18 if kind == "resnet18" else 34, s.stem)
