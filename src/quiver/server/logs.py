"""What a node tells on stderr: a line an event, in JSON or for people.

Events have a name and facts. Bodies, headers, query strings and credentials are no facts.
"""

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final

from quiver.server.config import LogConfig

LOGGER: Final = logging.getLogger("quiver.server")
CONTROL: Final = re.compile("[\x00-\x1f\x7f-\x9f]")  # a path may have them, and make up lines


def event(name: str, *, level: int = logging.INFO, **facts: Any) -> None:
    """Something happened."""
    LOGGER.log(level, name, extra={"facts": facts})


def failure(name: str, error: BaseException, **facts: Any) -> None:
    """Something went wrong that nobody expected; the trace goes with it."""
    LOGGER.error(name, exc_info=error, extra={"facts": facts})


def begin(config: LogConfig) -> None:
    """Send everything that is logged in this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    text = config.format == "text" or (config.format == "auto" and sys.stderr.isatty())
    handler.setFormatter(Text() if text else Json())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    LOGGER.setLevel(config.level.upper())
    logging.getLogger("opentelemetry").setLevel(logging.ERROR)  # it quotes headers in warnings
    logging.captureWarnings(True)


class Json(logging.Formatter):
    """A line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        told = {
            "time": _time(record).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            **_told(record),
        }
        if record.exc_info:
            told["trace"] = self.formatException(record.exc_info)
        return json.dumps(told, ensure_ascii=False, default=str)


class Text(logging.Formatter):
    """A line for people."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and the trace if there is one."""
        told = _told(record)
        facts = " ".join(f"{name}={value}" for name, value in told.items() if name != "event")
        line = f"{_time(record):%H:%M:%S} {record.levelname.lower():7} {told['event']}  {facts}"
        line = CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), line)
        if record.exc_info:
            line += "\n" + self.formatException(record.exc_info)
        return line


def _time(record: logging.LogRecord) -> datetime:
    return datetime.fromtimestamp(record.created, UTC)


def _told(record: logging.LogRecord) -> dict[str, Any]:
    facts = getattr(record, "facts", None)
    if facts is not None:
        return {"event": record.msg, **facts}
    return {"event": "log", "logger": record.name, "message": record.getMessage()}
