"""Private keys from an external command, such as age or the tool of a KMS, that unwraps a file.

The command runs without a shell. It gets the wrapped file on standard input, or its path in place of ``{file}``, and
writes the key file to standard output, within limits of time and size. Its output is never logged or stored.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from shuffledp.collection.wire.keys import (
    MAX_KEY_BYTES,
    RoundKey,
    SealingKey,
    SigningKey,
    read_private,
    round_key_of,
)
from shuffledp.durable_files import open_regular
from shuffledp.errors import DataError

FILE = "{file}"
"""Stands for the path of the wrapped key in the arguments of a command."""
_SECONDS = 30.0


@dataclass(frozen=True)
class KeyReader:
    """Reads private keys: from plain files, or through a command that unwraps them."""

    command: tuple[str, ...] = ()
    seconds: float = _SECONDS

    def signing(self, path: Path) -> SigningKey:
        """The signing key of a file."""
        return (
            SigningKey.from_content(self._unwrapped(path), self._name(path)) if self.command else SigningKey.load(path)
        )

    def sealing(self, path: Path) -> SealingKey:
        """The sealing key of a file."""
        return (
            SealingKey.from_content(self._unwrapped(path), self._name(path)) if self.command else SealingKey.load(path)
        )

    def round_key(self, path: Path) -> RoundKey:
        """The round key of a file, of either suite."""
        return (
            round_key_of(self._unwrapped(path), self._name(path))
            if self.command
            else round_key_of(read_private(path), str(path))
        )

    def _name(self, path: Path) -> str:
        return f"the output of key_command for {path}"

    def _unwrapped(self, path: Path) -> bytes:
        """The output of the command for a file; DataError if it fails, takes too long, or writes too much."""
        program = self.command[0]
        arguments = [argument.replace(FILE, str(path)) for argument in self.command]
        try:
            with open_regular(path) as wrapped:
                process = subprocess.Popen(  # noqa: S603  # the operator's own command, without a shell
                    arguments,
                    stdin=wrapped,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,  # it may quote the key
                    start_new_session=True,
                )
        except OSError as error:
            what = f"Cannot run key_command ({program})" if error.filename != str(path) else "Cannot read the key"
            raise DataError(f"{what} for {path}: {error.strerror or error}.") from None
        try:
            with process.stdout or os.fdopen(os.open(os.devnull, os.O_RDONLY), "rb") as output:
                content = self._output(output, time.monotonic() + self.seconds)
            if content is None:
                raise DataError(f"key_command ({program}) did not finish within {self.seconds:g} s for {path}.")
            if len(content) > MAX_KEY_BYTES:
                raise DataError(f"key_command ({program}) wrote more than {MAX_KEY_BYTES:,} bytes for {path}.")
            try:
                status = process.wait(self.seconds)
            except subprocess.TimeoutExpired:
                raise DataError(
                    f"key_command ({program}) did not finish within {self.seconds:g} s for {path}."
                ) from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if status:
            raise DataError(
                f"key_command ({program}) failed with status {status} for {path}; run it by hand to see why."
            )
        return content

    @staticmethod
    def _output(output: IO[bytes], deadline: float) -> bytes | None:
        """All bytes, or slightly more than the maximum; None at the deadline."""
        content = b""
        while len(content) <= MAX_KEY_BYTES:
            ready, _, _ = select.select([output], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                return None
            part = os.read(output.fileno(), MAX_KEY_BYTES + 1)
            if not part:
                break
            content += part
        return content
