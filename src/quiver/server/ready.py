"""Whether the node on this machine is ready, asked from outside: for health checks."""

import http.client
import ipaddress
import json
import ssl

from quiver import limits
from quiver.server.config import NodeConfig

SECONDS_MAX = 2 * limits.READY_SECONDS_MAX  # the node itself says after half of it that it is not


def why_not(config: NodeConfig) -> str:
    """Why the node with this configuration cannot serve now; nothing if it can."""
    host, port = config.address
    if ipaddress.ip_address(host).is_unspecified:  # it listens everywhere, also here
        host = "::1" if ":" in host else "127.0.0.1"
    connection = _connection(config, host, port)
    try:
        connection.request("GET", "/health/ready", headers={"host": "localhost"})
        with connection.getresponse() as answer:
            content = answer.read(limits.HEAD_BYTES_MAX)
        if answer.status == http.client.OK:
            return ""
        detail = json.loads(content).get("detail", "")
    except (OSError, http.client.HTTPException, ValueError) as error:
        return f"there is no answer from {host}, port {port}: {error}"
    finally:
        connection.close()
    return f"the node is not ready: {detail}"


def _connection(config: NodeConfig, host: str, port: int) -> http.client.HTTPConnection:
    if config.tls is None:
        return http.client.HTTPConnection(host, port, timeout=SECONDS_MAX)
    context = ssl.create_default_context()
    context.check_hostname = False  # its certificate is for the names that others call it by
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=SECONDS_MAX, context=context)
