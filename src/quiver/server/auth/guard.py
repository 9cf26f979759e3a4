"""The guard at the door: from the credentials of a request to a principal."""

from starlette.types import Scope

from quiver.server.auth.principal import ANYBODY, Principal


class Guard:
    """Knows the principals. Without any, everybody is `ANYBODY`, who may do everything."""

    @property
    def open(self) -> bool:
        """No credentials are configured; such a node listens on loopback only."""
        return True

    def by_token(self, scope: Scope) -> Principal:
        """Who sent this request, by its `Authorization: Bearer` header."""
        return ANYBODY

    def by_signature(self, scope: Scope, body: bytes) -> Principal:
        """Who signed this request and this body, by AWS Signature Version 4."""
        return ANYBODY
