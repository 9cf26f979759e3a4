"""Who asks, and what they may do: principals, their tokens and keys, rules and quotas; and TLS.

`Guard` turns a request into a `Principal`; a door then asks the principal. `access` is the file that
both come from, `sigv4` the signatures of AWS, `quotas` the shares, `tls` the certificate, `watch` what
notices that a file has changed.
"""

from quiver.server.auth.access import FILE_NAME as ACCESS_FILE
from quiver.server.auth.guard import PRINCIPAL, Guard, Standing
from quiver.server.auth.principal import ANYBODY, EVERY_TOPIC, VERBS, Principal, Verb
from quiver.server.auth.tls import Certificate, Tls
from quiver.server.auth.watch import Watch

__all__ = [
    "ACCESS_FILE",
    "ANYBODY",
    "EVERY_TOPIC",
    "PRINCIPAL",
    "VERBS",
    "Certificate",
    "Guard",
    "Principal",
    "Standing",
    "Tls",
    "Verb",
    "Watch",
]
