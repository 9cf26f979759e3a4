"""What `pipeline.toml` may say: one table for each stage. Expressions are Spark SQL."""

from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from quiver import limits, toml
from quiver.client import arguments
from quiver.errors import InvalidRequest
from quiver.model.units import milliseconds
from quiver.spark.options import absolute
from quiver.toml import Section

Names = tuple[str, ...]
SomeNames = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
Expressions = dict[str, str]  # a name, and the SQL that makes it
Settings = dict[str, str | int | float | bool]  # those of Spark
NONE: Any = msgspec.field(default_factory=dict)
OURS: Final = "_"  # names that begin so are the pipeline's own


class Extract(Section, frozen=True):
    """Topics that are read, from `start` on at first, then from where the checkpoint says."""

    url: str
    topics: SomeNames
    start: str = "earliest"
    max_rows: Annotated[int, msgspec.Meta(ge=1)] = limits.PIPELINE_BATCH_ROWS  # of a topic
    max_bytes: Annotated[int, msgspec.Meta(ge=1)] = limits.PIPELINE_BATCH_BYTES


class Version(Section, frozen=True):
    """The columns of a version, as in CREATE TABLE, and how they come from the version before."""

    schema: str
    migrate: Expressions = NONE


class Transform(Section, frozen=True):
    """Bodies become columns of the newest version, which is the last one in the file.

    `version` says of a message which one it has; none means the oldest. A row for which a check is false
    is a bad row.
    """

    versions: Annotated[dict[str, Version], msgspec.Meta(min_length=1)]
    version: str = "headers['version']"
    checks: Expressions = NONE


class Dedup(Section, frozen=True):
    """Of rows with equal columns `by`, only the first is kept, for so long."""

    by: SomeNames
    within: str


class Reference(Section, frozen=True):
    """A table that does not change while the pipeline runs. What has no match stays without, or is bad."""

    name: str
    path: str
    on: SomeNames
    format: Literal["parquet", "json", "csv"] = "parquet"
    schema: str | None = None
    required: bool = False


class Stream(Section, frozen=True):
    """Another topic, whose message for a row comes before or after it, but `within` a time."""

    topic: str
    schema: str
    on: SomeNames
    within: str
    required: bool = False


class Enrich(Section, frozen=True):
    """Done in this order: without duplicates, with reference data, with another stream, more columns."""

    dedup: Dedup | None = None
    reference: tuple[Reference, ...] = ()
    stream: Stream | None = None
    columns: Expressions = NONE


class Parquet(Section, frozen=True):
    """A folder of Parquet files."""

    path: str
    partition_by: Names = ()


class TopicConfig(Section, frozen=True):
    """A topic whose bodies are the rows as JSON. Without a URL it is in the queue that is read."""

    topic: str
    url: str | None = None
    key: str | None = None


class Load(Section, frozen=True):
    """Where good rows go: to files, to a topic, or to both."""

    parquet: Parquet | None = None
    topic: TopicConfig | None = None

    def __post_init__(self) -> None:
        if self.parquet is None and self.topic is None:
            raise ValueError("say where good rows go: [load.parquet], [load.topic], or both")


class Config(Section, frozen=True):
    """A pipeline. Its name and its checkpoint belong together: they say what was done already."""

    name: str
    checkpoint: str
    extract: Extract
    transform: Transform
    load: Load
    enrich: Enrich = Enrich()
    every: str = "1s"  # a batch begins, if there is something new
    dead_letters: str | None = None  # the topic of bad rows; <name>.dead if not said
    spark: Settings = NONE

    def __post_init__(self) -> None:
        try:
            self._check()
        except InvalidRequest as error:
            raise ValueError(str(error)) from None

    @property
    def dead_topic(self) -> str:
        """Where bad rows go."""
        return self.dead_letters or f"{self.name}.dead"

    def _check(self) -> None:
        arguments.name(self.name, "name")
        topics = [*self.extract.topics, self.dead_topic]
        if self.enrich.stream is not None:
            topics.append(self.enrich.stream.topic)
        if (load := self.load.topic) is not None:
            arguments.name(load.topic, "topic")
            if absolute(load.url or self.extract.url) == absolute(self.extract.url):
                topics.append(load.topic)
        for topic in topics:
            arguments.name(topic, "topic")
        if len(set(topics)) < len(topics):
            raise InvalidRequest("a topic is named twice: each is read, or written, once")
        milliseconds(self.every, "every")
        for part in (self.enrich.dedup, self.enrich.stream):
            if part is not None:
                milliseconds(part.within, "within")
        for name in self.enrich.columns:
            demand_free(name)


def demand_free(name: str) -> None:
    """Refuse a name for a column that is kept for the pipeline."""
    if name.startswith(OURS):
        raise InvalidRequest(
            f"a column may not be called {name!r}: names with {OURS} first are ours"
        )


def load(path: Path) -> Config:
    """The pipeline that a file describes."""
    return toml.checked(toml.read(path), Config, str(path))


def make(told: dict[str, Any]) -> Config:
    """The pipeline that a dictionary describes, with the keys of the file."""
    return toml.checked(told, Config, "the pipeline")
