"""Downloads that survive broken connections: resume where they stopped, verify, then rename into place."""

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
ATTEMPTS = 5  # in a row that bring nothing
WAIT = 1.0  # seconds before the second attempt, doubled each time
SILENCE = 30.0  # seconds without a byte
TOTAL = 3600.0  # seconds for one file
Progress = Callable[[int, int | None], None]  # bytes so far, bytes in all


def get(name: str, folder: Path, progress: Callable[[str], Progress]) -> list[Path]:
    """Download the files of a named set that are not in the folder; gives the paths of those that came."""
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
    """Bring one file to `target` by way of `target`.part; a wrong checksum removes the part and is an error."""
    part = target.with_name(target.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    if part.is_symlink():
        raise ValueError(f"{part} must be a part of a download; it is a link. Delete it.")
    _persist(address, part, progress)
    try:
        found = sha256 and content_sha256(part, target.name)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        found = "of no gzip file"
    if sha256 and found != sha256:
        part.unlink()
        got = f"its SHA-256 is {str(found)[:12]}..., not {sha256[:12]}..."
        remedy = "Nothing was kept: try again later, or get the file elsewhere."
        raise ValueError(f"{address} must serve the published file; {got}. {remedy}")
    part.replace(target)


def _persist(address: str, part: Path, progress: Progress) -> None:
    """Try until the part is whole; an attempt that brought bytes is not counted among ATTEMPTS."""
    end, failures, most = time.monotonic() + TOTAL, 0, _size(part)
    while True:
        try:
            return _attempt(address, part, progress, end)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, urllib.error.HTTPError) and error.code < 500 and error.code not in (408, 429):
                raise ValueError(f"{address} must be there; the server answers {error.code} {error.reason}.") from error
            failures, most = 0 if _size(part) > most else failures + 1, max(most, _size(part))
            if failures >= ATTEMPTS or time.monotonic() > end:
                reason = " ".join(str(error).split()) or type(error).__name__
                got = f"{failures} attempts in a row brought nothing ({reason})"
                remedy = f"Run it again to go on from {_size(part)} bytes."
                raise ValueError(f"{address} must come whole; {got}. {remedy}") from error
            time.sleep(min(WAIT * 2**failures, 30.0))


def _attempt(address: str, part: Path, progress: Progress, end: float) -> None:
    """One request for what is still missing; raises OSError where it ends too soon."""
    have = _size(part)
    request = urllib.request.Request(address, headers={"Accept-Encoding": "identity"})
    if have:
        request.add_header("Range", f"bytes={have}-")
    try:
        response = urllib.request.urlopen(request, timeout=SILENCE)
    except urllib.error.HTTPError as error:
        if error.code == 416 and have:  # nothing beyond what we have: whole, or longer than the file
            if error.headers.get("Content-Range") == f"bytes */{have}":
                return
            part.unlink()
            raise OSError("the part was longer than the file; starting again") from error
        raise
    goes_on = (response.headers.get("Content-Range") or "").startswith(f"bytes {have}-")
    start = have if response.status == 206 and goes_on else 0
    length = response.headers.get("Content-Length")
    whole = start + int(length) if length and length.isdigit() else None
    # a server that ignores Range sends everything anew
    with response, part.open("ab" if start else "wb") as file:
        if response.status == 206 and start == 0:
            raise OSError("the server sent another range than was asked for; starting again")
        while chunk := response.read(_CHUNK):
            file.write(chunk)
            progress(file.tell(), whole)
            if time.monotonic() > end:
                raise TimeoutError("out of time")
        size = file.tell()
    if whole is not None and size < whole:
        raise ConnectionError(f"the connection ended at byte {size} of {whole}")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
