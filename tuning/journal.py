"""The journal that a study is stored in by default: one file, one JSON line an operation, appended under a lock.

Optuna's own JournalFileBackend, but for two things. Its lock is a file that outlives a killed process, and every other
waits 30 s for it (optuna issue 5921), forever if the path was relative; ours is flock, which ends with the process.
And a process killed while it writes leaves half a line, which the next one's would be appended to, so that the journal
could not be read any more (optuna issue 5138): whoever holds the lock cuts it off first. What a lost line said, one
step of a trial that is dead, is done again. Left out: network file systems; they are for --storage.
"""

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock

JOURNAL = "journal.log"
CHUNK = 1 << 16


class FileLock(BaseJournalFileLock):
    """An exclusive lock on a file of its own, released by the system when its process ends, however it ends."""

    def __init__(self, path: str | Path) -> None:
        self._path = str(path)
        self._file: int | None = None

    def acquire(self, is_waiting: bool = True) -> bool:
        """Take the lock, waiting for it; without waiting return whether it was free."""
        file = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if is_waiting else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(file)
            return False
        except BaseException:
            os.close(file)
            raise
        self._file = file
        return True

    def release(self) -> None:
        """Give the lock back."""
        assert self._file is not None
        os.close(self._file)
        self._file = None

    def __enter__(self) -> "FileLock":
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Journal(JournalFileBackend):
    """A journal file whose half-written end is cut off before anything is appended."""

    def __init__(self, path: Path) -> None:
        self._own_lock = FileLock(f"{path}.flock")
        super().__init__(str(path), self._own_lock)

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Append lines, all on the disk when it returns."""
        text = "".join(json.dumps(log, separators=(",", ":")) + "\n" for log in logs)
        with self._own_lock:
            cut_tail(Path(self._file_path))
            with open(self._file_path, "ab") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())


def open_journal(path: Path) -> tuple[BaseStorage, int]:
    """Return the storage in a journal file, made if there is none, and the bytes of a broken end that were cut off.

    ValueError if a line before the end is no JSON: then the file is something else, or was edited.
    """
    path = path.absolute()
    with FileLock(f"{path}.flock"):
        n_cut = cut_tail(path) + cut_broken_line(path) if path.exists() else 0
    try:
        return JournalStorage(Journal(path)), n_cut
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is no journal of optuna's, or is damaged: {error}") from None


def cut_tail(path: Path) -> int:
    """Cut off what stands behind the last line's end; return how many bytes. The caller holds the lock."""
    with path.open("rb+") as file:
        size = end = file.seek(0, os.SEEK_END)
        while end > 0:
            start = max(0, end - CHUNK)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            file.truncate(end)
        return size - end


def cut_broken_line(path: Path) -> int:
    """Cut off the last line if it is no JSON, as after a loss of power; return how many bytes. The caller locks."""
    lines = path.read_bytes().splitlines(keepends=True)
    if not lines or is_json(lines[-1]):
        return 0
    os.truncate(path, sum(map(len, lines[:-1])))
    return len(lines[-1])


def is_json(line: bytes) -> bool:
    """Return whether a line is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
