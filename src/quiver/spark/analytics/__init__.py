"""What the ledger and history of a queue add up to: an audit, and figures as DataFrames and as a report."""

from quiver.spark.analytics.auditing import audit
from quiver.spark.analytics.evidence import Evidence, gather
from quiver.spark.analytics.measuring import figures
from quiver.spark.analytics.reporting import Report, report

__all__ = ["Evidence", "Report", "audit", "figures", "gather", "report"]
