"""Columns from SQL that somebody wrote into a configuration."""

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from quiver.errors import InvalidRequest
from quiver.spark.pipeline.config import OURS


def expression(rows: DataFrame, text: str, where: str) -> Column:
    """The column that `text` makes of rows; `where` it was written, for who must correct it."""
    try:
        column = sql.expr(text)
        _ = rows.select(column).columns  # Spark looks at it now, not when the plan is complete
    except PySparkException as error:
        raise InvalidRequest(f"{where}: {first_line(error)}") from None
    return column


def data(rows: DataFrame) -> list[str]:
    """The columns that are not the pipeline's own."""
    return [name for name in rows.columns if not name.startswith(OURS)]


def demand_columns(rows: DataFrame, names: tuple[str, ...], where: str) -> None:
    """Refuse names that rows do not have."""
    for name in names:
        if name not in rows.columns:
            raise InvalidRequest(
                f"{where}: there is no column {name!r}, only {', '.join(data(rows))}"
            )


def first(columns: list[Column]) -> Column:
    """The first of them that is not null; null if there are none."""
    return sql.coalesce(*columns, none())


def none(kind: Any = "string") -> Column:
    """A null of a type."""
    return sql.lit(None).cast(kind)


def quoted(name: str) -> str:
    """A column's name as SQL writes it, whatever is in it."""
    return f"`{name.replace('`', '``')}`"


def first_line(error: Exception) -> str:
    """What Spark says, without the plan that it shows after it."""
    return str(error).strip().partition("\n")[0].rstrip(".;")
