"""A child process whose output is kept and echoed, and which is always ended; knows no server."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence

_KEPT_LINES = 4000


class LoggedProcess:
    """A running child in its own session, so that a terminal's Ctrl-C reaches only its parent.

    It is asked to end when the thread that started it ends, however that came about.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        echo: Callable[[str], None] | None = None,
    ) -> None:
        self._echo = echo
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        if shutil.which(command[0]) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
        self._child = subprocess.Popen(
            [*_ends_with_parent(), *command],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def log(self) -> str:
        """The last lines it wrote; all of them once it has ended."""
        if self.poll() is not None:
            self._reader.join(timeout=5)
        return "\n".join(list(self._lines))

    def poll(self) -> int | None:
        """The exit code, or None while it runs."""
        return self._child.poll()

    def wait(self, timeout: float | None = None) -> int:
        """The exit code; subprocess.TimeoutExpired after `timeout` seconds."""
        return self._child.wait(timeout)

    def terminate(self) -> None:
        """Asks it to finish; nothing if it has."""
        if self.poll() is None:
            self._child.terminate()

    def stop(self, grace: float) -> int:
        """Asks, waits up to `grace` seconds, then kills the whole session; the exit code."""
        self.terminate()
        try:
            return self.wait(grace)
        except subprocess.TimeoutExpired:
            os.killpg(self.pid, signal.SIGKILL)
            return self.wait()

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            self._lines.append(line.rstrip("\n"))
            if self._echo is not None:
                self._echo(line)


def _ends_with_parent() -> list[str]:
    """The command that makes the kernel send SIGTERM when the parent is gone; part of Debian."""
    program = shutil.which("setpriv")
    return [program, "--pdeathsig", "TERM", "--"] if program else []
