"""Which changes from one version of a schema to the next are possible, and which have to be explained.

A reader of the newest version must be able to use every older message:

- a column that is new may be null, or `migrate` says what it is in old messages;
- a column keeps its type, or gets a wider one, or `migrate` says how it is converted;
- a column that was allowed to be null and is so no longer: `migrate` says what it is instead;
- a column may go.

Everything else is refused before anything runs.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from quiver.errors import InvalidRequest
from quiver.spark.pipeline.config import Version, demand_free
from quiver.spark.pipeline.expressions import first_line

# What Spark calls a type, and those into which every value of it fits.
WIDER: Final = {
    "tinyint": {"smallint", "int", "bigint", "float", "double"},
    "smallint": {"int", "bigint", "float", "double"},
    "int": {"bigint", "double"},
    "float": {"double"},
    "date": {"timestamp"},
}


@dataclass(frozen=True)
class TableShape:
    """A version with its columns."""

    name: str
    columns: StructType
    migrate: dict[str, str]


def shapes(versions: dict[str, Version]) -> list[TableShape]:
    """All versions, oldest first; each can be made from the one before."""
    found = [
        TableShape(name, parse(version.schema, f"version {name}"), version.migrate)
        for name, version in versions.items()
    ]
    if found[0].migrate:
        raise InvalidRequest(f"version {found[0].name} is the oldest: there is nothing to migrate")
    for old, new in pairwise(found):
        _demand_step(old, new)
    return found


def parse(schema: str, what: str) -> StructType:
    """The columns that a schema names."""
    try:
        columns = StructType.fromDDL(schema)
    except PySparkException as error:
        raise InvalidRequest(
            f"the schema of {what} is not understood: {first_line(error)}. "
            "It is written as in CREATE TABLE: id STRING NOT NULL, cents BIGINT"
        ) from None
    if not isinstance(columns, StructType) or not columns.fields:
        raise InvalidRequest(f"the schema of {what} has no columns, such as: id STRING NOT NULL")
    for name in columns.names:
        demand_free(name)
    if len(set(columns.names)) < len(columns.names):
        raise InvalidRequest(f"the schema of {what} names a column twice")
    return columns


def fits(old: Any, new: Any) -> bool:
    """Whether every value of one type is one of the other."""
    mine, theirs = old.simpleString(), new.simpleString()
    return mine == theirs or theirs in WIDER.get(mine, ())


def _demand_step(old: TableShape, new: TableShape) -> None:
    step = f"from version {old.name} to {new.name}"
    for name in new.migrate:
        if name not in new.columns.names:
            raise InvalidRequest(f"{step}: migrate has {name!r}, which version {new.name} has not")
    for field in new.columns.fields:
        say = f"say what it is in old messages: migrate.{field.name} in version {new.name}"
        if field.name in new.migrate:
            continue
        if field.name not in old.columns.names:
            if not field.nullable:
                raise InvalidRequest(f"{step}: {field.name!r} is new and NOT NULL; {say}")
            continue
        before = old.columns[field.name]
        if not fits(before.dataType, field.dataType):
            types = f"{before.dataType.simpleString()} to {field.dataType.simpleString()}"
            raise InvalidRequest(f"{step}: {field.name!r} goes from {types}; {say}")
        if before.nullable and not field.nullable:
            raise InvalidRequest(f"{step}: {field.name!r} may be null no longer; {say}")
