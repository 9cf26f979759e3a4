"""What the ledger and history of a queue add up to: an audit, and figures as DataFrames."""

from quiver.spark.analytics.audit import audit
from quiver.spark.analytics.evidence import Evidence, gather

__all__ = ["Evidence", "audit", "gather"]
