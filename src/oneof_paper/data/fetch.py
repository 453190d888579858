"""Download files over broken connections: resume where a download stopped, verify the checksum, then rename."""

import gzip
import http.client
import time
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable
from pathlib import Path

from oneof_paper.data.catalogue import find
from oneof_paper.data.verify import content_sha256

_CHUNK = 1 << 16
ATTEMPTS = 5  # in a row without a new byte
WAIT = 1.0  # seconds before the second attempt, doubled each time
SILENCE = 30.0  # seconds without a byte
TOTAL = 3600.0  # seconds for one file
_LONGEST_WAIT = 30.0  # seconds
Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all


def get(name: str, folder: Path, progress: Callable[[str], Progress]) -> list[Path]:
    """Download the files of a named data set that are not in the folder; return their paths."""
    named = find(name)
    if not named.files:
        raise ValueError(f"data set {name!r} comes with the package; there is nothing to get.")
    if not named.download:
        advice = f"get it from {named.address} and put {', '.join(named.files)} into {folder}"
        raise ValueError(f"data set {name!r} must be downloaded by hand; {advice}.")
    absent = [file for file in named.files if not (folder / file).is_file()]
    for file in absent:
        address = named.download + Path(file).name
        download(address, folder / file, named.checksums.get(file), progress(file))
    return [folder / file for file in absent]


def download(address: str, target: Path, sha256: str | None, progress: Progress) -> None:
    """Download one file to `target`, through `target`.part; if the checksum is wrong, remove the part and raise."""
    part = target.with_name(target.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    if part.is_symlink():
        raise ValueError(f"{part} must be a part of a download; it is a link. Delete it.")
    _download_part(address, part, progress)
    if sha256 is not None:
        try:
            checksum = content_sha256(part, target.name)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            checksum = "of no gzip file"
        if checksum != sha256:
            part.unlink()
            got = f"its SHA-256 is {checksum[:12]}..., not {sha256[:12]}..."
            remedy = "Nothing was kept: try again later, or get the file elsewhere."
            raise ValueError(f"{address} must serve the published file; {got}. {remedy}")
    part.replace(target)


def _download_part(address: str, part: Path, progress: Progress) -> None:
    """Send requests until the part is complete; one that brought bytes does not count among ATTEMPTS."""
    deadline = time.monotonic() + TOTAL
    failures = 0
    largest_size = _size(part)
    while True:
        try:
            return _request_rest(address, part, progress, deadline)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code not in (408, 429):
                raise ValueError(f"{address} must be there; the server answers {error.code} {error.reason}.") from error
            size = _size(part)
            failures = 0 if size > largest_size else failures + 1
            largest_size = max(largest_size, size)
            if failures >= ATTEMPTS or time.monotonic() > deadline:
                reason = " ".join(str(error).split()) or type(error).__name__
                got = f"{failures} attempts in a row brought nothing ({reason})"
                remedy = f"Run it again to go on from {size} bytes."
                raise ValueError(f"{address} must come whole; {got}. {remedy}") from error
            time.sleep(min(WAIT * 2**failures, _LONGEST_WAIT))


def _request_rest(address: str, part: Path, progress: Progress, deadline: float) -> None:
    """Request the bytes that the part lacks, once; raise OSError if the response ends too soon."""
    size_before = _size(part)
    request = urllib.request.Request(address, headers={"Accept-Encoding": "identity"})
    if size_before:
        request.add_header("Range", f"bytes={size_before}-")
    try:
        response = urllib.request.urlopen(request, timeout=SILENCE)
    except urllib.error.HTTPError as error:
        if error.code == 416 and size_before:  # there are no bytes after these: the part is complete, or too long
            if error.headers.get("Content-Range") == f"bytes */{size_before}":
                return
            part.unlink()
            raise OSError("the part was longer than the file; starting again") from error
        raise
    is_range = response.status == 206
    continues = (response.headers.get("Content-Range") or "").startswith(f"bytes {size_before}-")
    start = size_before if is_range and continues else 0  # a server that ignores Range sends all bytes again
    length = response.headers.get("Content-Length")
    total_size = start + int(length) if length and length.isdigit() else None
    with response, part.open("ab" if start else "wb") as file:
        if is_range and start == 0:
            raise OSError("the server sent another range than was asked for; starting again")
        while chunk := response.read(_CHUNK):
            file.write(chunk)
            progress(file.tell(), total_size)
            if time.monotonic() > deadline:
                raise TimeoutError("out of time")
        size = file.tell()
    if total_size is not None and size < total_size:
        raise ConnectionError(f"the connection ended at byte {size} of {total_size}")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
