"""KEEPS: the only package that opens files.

A data directory is flat but for one folder, and holds

    quiver.lock                        who owns the directory (`lock`)
    wal-<first index>.log              the log, a file after the other (`wal`, `logfile`, `frame`)
    confirmed                          up to where the log is known to be on disk (`mark`)
    snapshot-<index>.snap              the core's state after that entry (`snapshot`)
    ledger-<first>-<last>.parquet      what happened to messages in these entries (`ledger`)
    <topic>@<…>.parquet                messages that have left the log (`segment`, `parquet`)
    vote                               a node of a cluster: whom it has voted for (`vote`)
    node                               a node of a cluster: which one it is (`identity`)
    staging/*.arrow                    what others leave for the owner to take (`staging`)
    *.tmp                              a file being made; only a crash leaves one behind

Indexes in names have 20 digits, so names sort as numbers do. `codec` turns commands and state
into bytes, `files` is the only door to the operating system and `system` says what its calls are
there, `doctor` looks at all of it and changes nothing.

To open a directory: take the lock, `snapshot.clean`, `snapshot.load`, `Wal.open`, `Wal.replay`; for a node
with peers `Wal.scan` in place of `Wal.replay`. Formats have two versions, and the second one is written by
such nodes only.
"""
