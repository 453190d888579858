"""Read labelling guidelines, which the review shows beside the rows."""

from pathlib import Path

from oneof.storage.regular import check_regular

_MAX_BYTES = 1 << 20


def read_guidelines(path: Path) -> str:
    """Return the text of a guidelines file; raise ValueError if it is not a text of reasonable length."""
    check_regular(path)
    with path.open("rb") as file:
        content = file.read(_MAX_BYTES + 1)
    if len(content) > _MAX_BYTES:
        raise ValueError(f"--guidelines must be a file of at most {_MAX_BYTES:,} bytes; {path} is longer. Shorten it.")
    try:
        return content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"--guidelines must be a text file in UTF-8; {path} is not (byte {error.start}). Save it as UTF-8 text."
        ) from error
