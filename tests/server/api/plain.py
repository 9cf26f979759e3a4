"""A reverse proxy that knows requests of HTTP and nothing else, as many do that stand before a service.

    python plain.py PORT [HOW]      HOW: strips | 400 | 404 | 501 | page

It `strips` what is meant for the next hop only (Connection, Upgrade), or answers a request that wants
another protocol by itself: with a status, or with a page. On stdout it says its own port.
"""

import http.client
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOPS = {"connection", "upgrade", "keep-alive", "te", "trailer", "transfer-encoding", "via"}
OWN = {"content-length", "host", "date", "server"}


class Plain(BaseHTTPRequestHandler):
    """One connection; each request goes on over a connection of its own."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    target = 0
    how = "strips"

    def do_GET(self) -> None:
        if "upgrade" in self.headers and self.how != "strips":
            status = 200 if self.how == "page" else int(self.how)
            self._answer(status, {"content-type": "text/html"}, b"<html>Hello</html>")
            return
        length = int(self.headers.get("content-length", "0"))
        body = self.rfile.read(length)
        said = {name: value for name, value in self.headers.items() if name.lower() not in HOPS}
        onward = http.client.HTTPConnection("127.0.0.1", self.target)
        try:
            onward.request(self.command, self.path, body, {**said, "Via": "1.1 plain"})
            got = onward.getresponse()
            fields = {
                name: value for name, value in got.headers.items() if name.lower() not in HOPS | OWN
            }
            self._answer(got.status, fields, got.read())
        except OSError:
            self._answer(502, {"content-type": "text/html"}, b"<html>Bad Gateway</html>")
        finally:
            onward.close()

    do_POST = do_GET  # noqa: N815  # as its base wants it

    def _answer(self, status: int, fields: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in {**fields, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        """Nobody reads it."""


def main() -> None:
    Plain.target = int(sys.argv[1])
    Plain.how = sys.argv[2] if len(sys.argv) > 2 else "strips"
    with ThreadingHTTPServer(("127.0.0.1", 0), Plain) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
