"""A client of the query protocol: forms out, XML in, checked by nothing but the standard library."""

from http.client import HTTPConnection
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit
from xml.etree import ElementTree as ET

NS = "{http://queue.amazonaws.com/doc/2012-11-05/}"


class QueryError(Exception):
    def __init__(self, status: int, kind: str, code: str, message: str) -> None:
        super().__init__(f"{status} {code}: {message}")
        self.status, self.kind, self.code, self.message = status, kind, code, message


class Query:
    def __init__(self, url: str) -> None:
        self._address = urlsplit(url).netloc
        self._connection = HTTPConnection(self._address, timeout=40)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def raw(
        self, method: str, path: str, body: str | bytes = "", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers in lower case, and body."""
        self._connection.request(method, path, body, headers or {})
        answer = self._connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        content = answer.read()
        self._connection.close()  # it may be long until the next request
        return answer.status, found, content

    def __call__(self, action: str, path: str = "/", **fields: Any) -> ET.Element:
        """The result of an action; dots in names of fields are written as `__`."""
        form = {"Action": action, "Version": "2012-11-05"}
        form |= {name.replace("__", "."): str(value) for name, value in fields.items()}
        return self.parsed(
            *self.raw(
                "POST",
                urlsplit(path).path,
                urlencode(form),
                {"content-type": "application/x-www-form-urlencoded"},
            )
        )

    def get(self, url: str, **fields: Any) -> ET.Element:
        """A GET on a queue's own URL."""
        query = urlencode({name.replace("__", "."): value for name, value in fields.items()})
        return self.parsed(*self.raw("GET", f"{urlsplit(url).path}?{query}"))

    @staticmethod
    def parsed(status: int, headers: dict[str, str], body: bytes) -> ET.Element:
        assert headers["content-type"] == "text/xml"
        assert headers["x-amzn-requestid"]
        root = ET.fromstring(body)
        for element in root.iter():
            assert element.tag.startswith(NS), element.tag
            element.tag = element.tag.removeprefix(NS)
        if status != 200:
            assert root.tag == "ErrorResponse"
            assert root.findtext("RequestId")
            error = root.find("Error")
            assert error is not None
            raise QueryError(
                status,
                error.findtext("Type") or "",
                error.findtext("Code") or "",
                error.findtext("Message") or "",
            )
        assert root.findtext("ResponseMetadata/RequestId")
        result = root.find(root.tag.replace("Response", "Result"))
        return root if result is None else result
