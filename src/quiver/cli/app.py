"""The command tree. Each command's module imports what it needs when it runs, so that help is quick."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from quiver.cli import (
    access,
    audit,
    backup,
    bench,
    demonstrate,
    dlq,
    doctor,
    groups,
    ledger,
    pipeline,
    read,
    receive,
    report,
    seal,
    send,
    serve,
    sql,
    top,
    topics,
    transfer,
)
from quiver.cli.options import epilog
from quiver.cli.stdout import BROKEN_PIPE, forget_stdout


class Root(TyperGroup):
    """Lists commands as one meets them, and ends like any other program when nobody reads on."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, in the order of ORDER."""
        return sorted(super().list_commands(ctx), key=ORDER.index)

    def invoke(self, ctx: Any) -> Any:
        """Run the command; typer itself would make a broken pipe a failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            forget_stdout()
            raise typer.Exit(BROKEN_PIPE) from None


ORDER = ["topics", "send", "receive", "read", "groups", "seek", "dlq", "sql", "export", "import", "trace",
         "ledger", "audit", "report", "pipeline", "seal", "backup", "restore", "serve", "access", "top",
         "doctor", "bench", "demo"]  # fmt: skip

app = typer.Typer(
    name="quiver",
    cls=Root,
    help="Quiver: a durable message queue in a directory. It needs no server.",
    epilog=epilog(
        [
            "quiver topics create orders --max-attempts 3",
            "quiver send orders 'first order'",
            "quiver receive orders --follow",
        ],
        "Exit codes: 0 done · 1 not done, or doctor or audit found something · 2 the request is wrong · "
        "3 not possible now, try again later (queue or disk full, no answer from the node) · "
        "4 the directory needs a person (in use, damaged) · 130 interrupted.",
        "With --json stdout is JSON and nothing else: one document, or one line per message. An "
        'error is {"error": {"code": …, "message": …}}, the last line if some were printed before '
        "it; the same message goes to stderr.",
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        from quiver import __version__

        typer.echo(f"quiver {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version.")
    ] = False,
) -> None:
    """Quiver: a durable message queue in a directory. It needs no server."""


app.add_typer(topics.app, name="topics")
app.command("send", epilog=send.EPILOG)(send.send)
app.command("receive", epilog=receive.EPILOG)(receive.receive)
app.command("read", epilog=read.EPILOG)(read.read)
app.add_typer(groups.app, name="groups")
app.command("seek", epilog=groups.SEEK_EPILOG)(groups.seek)
app.add_typer(dlq.app, name="dlq")
app.command("sql", epilog=sql.EPILOG)(sql.sql)
app.command("export", epilog=transfer.EXPORT_EPILOG)(transfer.export)
app.command("import", epilog=transfer.IMPORT_EPILOG)(transfer.import_)
app.command("trace", epilog=ledger.TRACE_EPILOG)(ledger.trace)
app.command("ledger", epilog=ledger.LEDGER_EPILOG)(ledger.ledger)
app.add_typer(pipeline.app, name="pipeline")
app.command("audit", epilog=audit.EPILOG)(audit.audit)
app.command("report", epilog=report.EPILOG)(report.report)
app.command("seal", epilog=seal.EPILOG)(seal.seal)
app.command("backup", epilog=backup.EPILOG)(backup.backup)
app.command("restore", epilog=backup.RESTORE_EPILOG)(backup.restore)
app.command("serve", epilog=serve.EPILOG)(serve.serve)
app.add_typer(access.app, name="access")
app.command("top", epilog=top.EPILOG)(top.top)
app.command("doctor", epilog=doctor.EPILOG)(doctor.doctor)
app.command("bench", epilog=bench.EPILOG)(bench.bench)
app.command("demo", epilog=demonstrate.EPILOG)(demonstrate.demo)
