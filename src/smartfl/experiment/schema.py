"""The experiment: everything that decides a result, and nothing else (workers and devices do not)."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from smartfl.digest import digest
from smartfl.errors import UserError
from smartfl.registry import check_finite, explain

DEFAULT_NAMES = {"model": "mlp", "aggregator": "smartfl", "attack": "none"}  # of tables that give no name


class Table(BaseModel):
    """A TOML table whose keys are all known."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Named(BaseModel):
    """A TOML table with a name; further keys are settings of whatever the name stands for."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    name: str

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class ProxySettings(Table):
    """The server's own samples, drawn from the training data before the clients get the rest."""

    size: int = Field(128, ge=0, lt=1 << 31, description="number of samples")
    imbalance: float = Field(1.0, ge=1, description="largest class over smallest; 1 draws uniformly")
    missing: int = Field(0, ge=0, description="classes, drawn at random, of which the server has no sample")
    held_out: Literal["needed", "always"] = Field(
        "needed", description="needed: rules without proxy data train on all samples, as in the paper"
    )


class DataSettings(Table):
    """Which data, and how the clients share them."""

    dataset: str = "digits"
    clients: int = Field(80, ge=1, le=1_000_000)
    partition: str = "feddf"
    alpha: float = Field(0.1, gt=0, description="Dirichlet concentration; small = every client sees few classes")
    shards_per_client: int = Field(2, ge=1, le=1_000_000)
    augment: bool = Field(False, description="crop and flip on clients, never on proxy data")
    options: dict[str, Any] = Field(default_factory=dict, description="settings of the dataset")
    proxy: ProxySettings = ProxySettings()


class ClientSettings(BaseModel):
    """How clients train; further keys are settings of the algorithm."""

    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    algorithm: str = "plain"
    optimizer: Literal["adam", "sgd"] = "adam"
    lr: float = Field(1e-3, gt=0)
    momentum: float = Field(0.0, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    batch_size: int = Field(32, ge=1, lt=1 << 31)
    epochs: int = Field(1, ge=1, lt=1 << 31)
    participation: float = Field(0.4, gt=0, le=1)
    warn_after: float = Field(300, gt=0, description="seconds after which a client that has not answered is named")
    timeout: float | None = Field(None, gt=0, description="seconds after which it is left out of the round")

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class AttackSettings(Named):
    """Who lies, and how; further keys are settings of the attack."""

    name: str = DEFAULT_NAMES["attack"]
    rate: float = Field(0.0, ge=0, le=1, description="share of all clients that are compromised")
    who: Literal["fixed", "per_round"] = Field("fixed", description="per_round draws among the cohort each round")
    since: int = Field(1, ge=1, description="round in which they begin; until then they are honest")
    report: Literal["honest", "max", "median"] | int = Field("honest", description="sample count attackers report")

    @field_validator("report", mode="before")
    @classmethod
    def _count_or_word(cls, value: Any) -> Any:
        if value in ("honest", "max", "median") or (isinstance(value, int) and value >= 0):
            return value
        raise ValueError("accepted are honest, max, median and whole numbers from 0 on")

    @model_validator(mode="after")
    def _rate_and_name_agree(self) -> AttackSettings:
        if self.name != "none" and self.rate == 0:
            unsure = f" (attack.{next(iter(self.settings))} is another setting)" if self.settings else ""
            raise ValueError(f"attack.rate must be above 0 for the attack '{self.name}'{unsure}")
        if self.name == "none" and self.rate > 0:
            raise ValueError("attack.name must be given when attack.rate is above 0")
        if self.name == "none" and self.since > 1:
            raise ValueError("attack.name must be given when attack.since is above 1")
        return self


class Experiment(Table):
    """A complete description of a training run; equal experiments give bit-identical results."""

    name: str = Field("experiment", pattern=r"^[A-Za-z0-9._-]+$")
    seed: int = Field(0, ge=0, lt=1 << 63)
    rounds: int = Field(20, ge=1, lt=1_000_000, description="checkpoints have six digits for them")
    evaluate_every: int = Field(1, ge=1, lt=1 << 63)
    checkpoint_every: int = Field(1, ge=1, lt=1 << 63)
    data: DataSettings = DataSettings()
    model: tuple[Named, ...] = (Named(name="mlp"),)
    client: ClientSettings = ClientSettings()
    attack: AttackSettings = AttackSettings()
    aggregator: Named = Named(name="smartfl")
    code: dict[str, str] = Field(
        default_factory=dict, description="checksums of code that is not ours, by the name that loads it; written by us"
    )

    @field_validator("model", mode="before")
    @classmethod
    def _one_or_many(cls, value: Any) -> Any:
        many = value if isinstance(value, list | tuple) else (value,)
        return [{"name": DEFAULT_NAMES["model"], **one} if isinstance(one, dict) else one for one in many]

    @field_validator("aggregator", mode="before")
    @classmethod
    def _with_name(cls, value: Any) -> Any:
        return {"name": DEFAULT_NAMES["aggregator"], **value} if isinstance(value, dict) else value

    @field_validator("model")
    @classmethod
    def _at_least_one(cls, value: tuple[Named, ...]) -> tuple[Named, ...]:
        if not value:
            raise ValueError("at least one model is needed")
        return value

    @model_validator(mode="after")
    def _somebody_attacks(self) -> Experiment:
        if self.attack.since > self.rounds:
            raise ValueError(f"attack.since = {self.attack.since} is after the last of {self.rounds} rounds")
        return self

    @classmethod
    def of(cls, tables: dict[str, Any]) -> Experiment:
        """An experiment from plain tables; a mistake is one sentence that names the setting."""
        check_finite(tables, "")
        try:
            return cls.model_validate(tables)
        except ValidationError as error:
            raise UserError(_explain(error)) from error

    @property
    def cohort_size(self) -> int:
        """m = max(1, round(participation · clients))."""
        return max(1, round(self.client.participation * self.data.clients))

    def tables(self) -> dict[str, Any]:
        """The experiment as plain TOML-ready tables; a single model is a table, several are a list."""
        tables = self.model_dump(mode="json")
        if len(self.model) == 1:
            tables["model"] = tables["model"][0]
        # What came later and is not used is not written: the digest of an older record stays what it was.
        if not self.code:
            del tables["code"]
        for key in ("warn_after", "timeout"):
            if tables["client"][key] == ClientSettings.model_fields[key].default:
                del tables["client"][key]
        return tables

    @property
    def digest(self) -> str:
        """Ten hex digits that change with any setting that decides a result, and with no other."""
        return digest(self.tables())

    @property
    def trajectory(self) -> str:
        """The digest without the number of rounds: a round never depends on how many follow."""
        return self.model_copy(update={"rounds": 1}).digest


def _explain(error: ValidationError) -> str:
    """The first mistake as one sentence, with the keys that the table in question accepts."""
    location = [part for part in error.errors()[0]["loc"] if isinstance(part, str)]
    table: type[BaseModel] = Experiment
    for part in location[:-1]:
        annotation = table.model_fields[part].annotation if part in table.model_fields else None
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            break
        table = annotation
    return explain(error, "", list(table.model_fields))
