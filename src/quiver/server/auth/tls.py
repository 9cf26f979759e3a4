"""TLS for the node's port: the certificate it shows, which may be replaced while it runs."""

import ssl
import stat
from dataclasses import dataclass
from pathlib import Path

from quiver.errors import InvalidRequest
from quiver.server import logs


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files in PEM: the certificate with its chain, and its key."""

    cert: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """A server's context with TLS 1.2 and later; `InvalidRequest` says what is wrong with the files."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        made.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION
        made.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
        made.set_alpn_protocols(["http/1.1"])
        self.load_into(made)
        return made

    def load_into(self, context: ssl.SSLContext) -> None:
        """Make `context` show this certificate from now on."""
        try:
            if stat.S_IMODE(self.key.stat().st_mode) & stat.S_IRWXO:
                raise InvalidRequest(f"everybody can read the key {self.key}: chmod 600 {self.key}")
            # An empty password, so that an encrypted key is refused and nobody is asked for one.
            context.load_cert_chain(self.cert, self.key, password="")
        except ssl.SSLError as error:
            reason = (error.reason or "unknown").lower().replace("_", " ")
            raise InvalidRequest(
                f"the certificate {self.cert} and the key {self.key} cannot be used: {reason}. "
                "They must be PEM, belong together, and the key must not be encrypted"
            ) from None
        except OSError as error:
            raise InvalidRequest(
                f"cannot read the certificate {self.cert} or the key {self.key}: {error.strerror}"
            ) from None


class Tls:
    """A context that lives as long as the listener, and takes on new files for new connections."""

    def __init__(self, certificate: Certificate) -> None:
        self._certificate = certificate
        self.context = certificate.context()

    @property
    def files(self) -> list[Path]:
        """What to watch for changes."""
        return [self._certificate.cert, self._certificate.key]

    def refresh(self) -> None:
        """Take on the files as they are now; if they are wrong, raise and keep what there is.

        They are tried on another context first: a failed load would leave this one without a key.
        """
        self._certificate.context()
        self._certificate.load_into(self.context)
        logs.event("certificate read", file=str(self._certificate.cert))
