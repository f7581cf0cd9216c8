"""PartFolders: the directories of part files below one directory of a host.

A token is the unique name of a dataset's set of files. ``holders/`` has a locked file for each token that a living
process holds. `PartFolders.sweep` deletes the files of all other tokens, because their jobs are dead.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import IO, TypeVar

from singa_dask.fs.locks import create_locked, delete_unlocked

SAFE = re.compile(r"\w[\w.-]*", re.ASCII)
# a file whose name begins with a dot does not match, because it is not locked yet
HOLDER = re.compile(r"\w.*\.[0-9a-f]{16}\.lock")

T = TypeVar("T")

# (directory, token) -> locked file of this process
_HELD: dict[tuple[Path, str], IO[bytes]] = {}
_HOLDING = threading.Lock()


class PartFolders:
    """The directories of part files below ``root``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._holders = root / "holders"

    def path(self, token: str, name: str) -> Path:
        """Return the path of a file.

        Raises
        ------
        ValueError
            The token or the name is not a plain name, and could lead to another directory.
        """
        for part in (token, name):
            if not SAFE.fullmatch(part) or part == self._holders.name:
                raise ValueError(f"{part!r} is not a valid name of a part file")
        return self.root / token / name

    def write(self, token: str, name: str, write: Callable[[Path], T]) -> tuple[Path, T]:
        """Write a file with a function; return the path of the file and the function's result.

        The function may choose not to write the file.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        path = self.path(token, name)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f".{secrets.token_hex(4)}.{name}")
        try:
            result = write(temporary)
            if temporary.exists():
                os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
        return path, result

    def read(self, token: str, name: str, offset: int, length: int) -> bytes:
        """Return a range of a file; fewer bytes at the end of the file.

        Raises
        ------
        FileNotFoundError
        """
        with self.path(token, name).open("rb") as file:
            file.seek(offset)
            return file.read(length)

    # -- holders -----------------------------------------------------------------------------------

    def hold(self, token: str) -> bool:
        """Keep the files of a token until `drop` is called or this process ends.

        Returns False if this process already holds the token.
        """
        with _HOLDING:
            if (self.root, token) in _HELD:
                return False
            self._holders.mkdir(mode=0o700, parents=True, exist_ok=True)
            _HELD[self.root, token] = create_locked(self._holders / f"{token}.{secrets.token_hex(8)}.lock")
            return True

    def drop(self, token: str) -> None:
        """Delete the files of a token. Mapped files can still be read."""
        with _HOLDING:
            held = _HELD.pop((self.root, token), None)
        if held is not None:
            held.close()
        shutil.rmtree(self.path(token, "all").parent, ignore_errors=True)
        self._living()

    def sweep(self, live: Collection[str] = ()) -> list[str]:
        """Delete the files of dead tokens, and return these tokens.

        A token is dead if no living process holds it and it is not in ``live``.
        """
        held = self._living()
        left = [path.name for path in self.root.iterdir() if path.is_dir() and path.name != self._holders.name]
        dead = sorted(set(left) - held - set(live))
        for token in dead:
            shutil.rmtree(self.root / token, ignore_errors=True)
        return dead

    def _living(self) -> set[str]:
        """Return the tokens that living processes hold; delete the files of dead tokens in ``holders/``."""
        if not self._holders.is_dir():
            return set()
        holders = (path for path in self._holders.iterdir() if HOLDER.fullmatch(path.name))
        return {path.name.rsplit(".", 2)[0] for path in delete_unlocked(holders)}
