"""An object store on this host that speaks as much of S3 as ``pyarrow.fs`` asks for. Keys are no paths: there
are no folders, and nothing is renamed.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import BinaryIO
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class ObjectStore(ThreadingHTTPServer):
    """``objects`` by bucket and key. It refuses all requests once ``is_refusing``."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Requests)
        self.objects: dict[str, bytes] = {}
        self.parts: dict[str, dict[int, bytes]] = {}
        self.is_refusing = False

    def uri(self, key: str) -> str:
        """Where ``key`` of the bucket is, for who has no settings in the environment."""
        settings = f"endpoint_override=127.0.0.1:{self.server_port}&scheme=http&region=here"
        return f"s3://somebody:secret@bucket/{key}?{settings}"


@contextmanager
def object_store() -> Iterator[ObjectStore]:
    store = ObjectStore()
    thread = threading.Thread(target=store.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield store
    finally:
        store.shutdown()
        thread.join()
        store.server_close()


class _Requests(BaseHTTPRequestHandler):
    server: ObjectStore
    protocol_version = "HTTP/1.1"

    def parse_request(self) -> bool:
        is_read = super().parse_request()
        if is_read and self.server.is_refusing:
            self.close_connection = True
            self._answer(403)
        return is_read and not self.server.is_refusing

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, body: bytes = b"", length: int | None = None, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length is None else length))
        self.end_headers()
        self.wfile.write(body)

    def _asked(self) -> tuple[str, dict[str, str]]:
        parts = urlsplit(self.path)
        key = unquote(parts.path).removeprefix("/")
        asked = parse_qs(parts.query, keep_blank_values=True)
        return key, {name: values[0] for name, values in asked.items()}

    def _body(self) -> bytes:
        """In chunks of HTTP or of S3, which are written alike, or whole."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            body = io.BytesIO(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        else:
            body = io.BytesIO(_joined(self.rfile))
        is_s3 = "aws-chunked" in self.headers.get("Content-Encoding", "")
        return _joined(body) if is_s3 else body.read()

    def do_HEAD(self) -> None:
        key, _ = self._asked()
        found = self.server.objects.get(key)
        if found is not None:
            self._answer(200, length=len(found), Last_Modified=formatdate(0, usegmt=True), ETag='"e"')
        else:
            self._answer(200 if key.rstrip("/") == "bucket" else 404)

    def do_GET(self) -> None:
        key, asked = self._asked()
        if "list-type" in asked:
            return self._list(key.rstrip("/"), asked.get("prefix", ""), asked.get("delimiter"))
        found = self.server.objects.get(key)
        if found is None:
            return self._answer(404)
        begin, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
        part = found[int(begin) : int(last) + 1 if last else None]
        where = f"bytes {begin}-{int(begin) + len(part) - 1}/{len(found)}"
        self._answer(206, part, ETag='"e"', Content_Range=where)

    def _list(self, bucket: str, prefix: str, delimiter: str | None) -> None:
        keys, folders = [], set()
        for key, value in sorted(self.server.objects.items()):
            name = key.removeprefix(f"{bucket}/")
            if name.startswith(prefix):
                rest = name[len(prefix) :]
                if delimiter and delimiter in rest:
                    folders.add(prefix + rest[: rest.index(delimiter) + 1])
                else:
                    keys.append((name, len(value)))
        listed = "".join(
            f"<Contents><Key>{escape(name)}</Key><Size>{size}</Size>"
            "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
            for name, size in keys
        )
        listed += "".join(
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders)
        )
        about = f"<Name>{bucket}</Name><KeyCount>{len(keys) + len(folders)}</KeyCount>"
        self._xml(f"<ListBucketResult>{about}<IsTruncated>false</IsTruncated>{listed}</ListBucketResult>")

    def _xml(self, text: str) -> None:
        self._answer(200, f'<?xml version="1.0"?>{text}'.encode(), Content_Type="application/xml")

    def do_PUT(self) -> None:
        key, asked = self._asked()
        body = self._body()
        if "uploadId" in asked:
            self.server.parts[asked["uploadId"]][int(asked["partNumber"])] = body
        elif source := self.headers.get("x-amz-copy-source"):
            self.server.objects[key] = self.server.objects[unquote(source).strip("/")]
            return self._xml("<CopyObjectResult><ETag>e</ETag></CopyObjectResult>")
        elif key.rstrip("/") != "bucket":
            self.server.objects[key] = body
        self._answer(200, ETag='"e"')

    def do_POST(self) -> None:
        key, asked = self._asked()
        self._body()
        if "uploads" in asked:
            self.server.parts[key] = {}
            return self._xml(
                "<InitiateMultipartUploadResult>"
                f"<UploadId>{escape(key)}</UploadId></InitiateMultipartUploadResult>"
            )
        parts = self.server.parts.pop(asked["uploadId"])
        self.server.objects[key] = b"".join(parts[number] for number in sorted(parts))
        self._xml("<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>")

    def do_DELETE(self) -> None:
        key, asked = self._asked()
        self.server.parts.pop(asked.get("uploadId", ""), None)
        self.server.objects.pop(key, None)
        self._answer(204)


def _joined(chunks: BinaryIO) -> bytes:
    """What is in chunks, each with its size before it; trailers are passed over."""
    whole = []
    while size := int(chunks.readline().split(b";")[0], 16):
        whole.append(chunks.read(size))
        chunks.readline()
    while chunks.readline().strip():
        pass
    return b"".join(whole)
