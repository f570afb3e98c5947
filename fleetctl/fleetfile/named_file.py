"""A file named in a fleet file: found relative to the file that names it, and only inside the same checkout."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass

from fleetctl.documents.position import Path
from fleetctl.errors import FleetFileError
from fleetctl.fleetfile.file_tree import FileTree, allowed_in_checkout
from fleetctl.fleetfile.nodes import Document
from fleetctl.fleetfile.sources import MAX_FILE_BYTES, SourceBytes, nearest_file, read_file, why_unreadable


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A name at `path` of a document, relative to the file that holds it. `code` = the code of its problems."""

    document: Document
    path: Path
    text: str
    code: str

    @property
    def file(self) -> str:
        """The path of the file, relative to the working directory."""
        return posixpath.normpath(posixpath.join(posixpath.dirname(self._written_in), self.text))

    @property
    def place(self) -> str:
        """Where the name is written: `file:line:column`."""
        return str(self.document.place(self.path))

    def refused(self, message: str, *, code: str = "", allowed: str | None = None, suggestion: str | None = None
                ) -> FleetFileError:
        """Return the error for this name."""
        return FleetFileError([self.document.problem(code or self.code, self.path, message, allowed=allowed,
                                                     suggestion=suggestion)])

    def find(self, tree: FileTree, given: str) -> str:
        """Return the identity of the file; raises FleetFileError, which reveals nothing outside the checkout.

        `given` = the file named by the user; it determines the checkout.
        """
        if "://" in self.text or posixpath.isabs(self.text) or not self.text.isprintable():
            raise self.refused(f'"{self.text}" is not a path relative to this file',
                               allowed="a file in the same checkout; nothing is fetched")
        try:
            if not tree.in_checkout(self.file, given):
                raise self.refused(f'"{self.text}" leads outside the checkout', allowed=allowed_in_checkout(given))
            if tree.is_folder(self.file):
                raise self.refused(f"{self.file} is a folder", allowed="a file")
            if not tree.is_file(self.file):
                raise self.refused(f"no such file: {self.file}", suggestion=self._nearest(tree))
            return tree.identity(self.file)
        except OSError as error:
            raise self._unreadable(error) from None

    def read(self, tree: FileTree, most: int = MAX_FILE_BYTES) -> SourceBytes:
        """Return the whole file; raises FleetFileError if it cannot be read or has more than `most` bytes."""
        try:
            return read_file(self.file, tree, most=most)
        except OSError as error:
            raise self._unreadable(error) from None

    @property
    def _written_in(self) -> str:
        return self.document.place(self.path).file

    def _unreadable(self, error: OSError) -> FleetFileError:
        return self.refused(f"{self.file}: {why_unreadable(error)}")

    def _nearest(self, tree: FileTree) -> str | None:
        """Return the most similar file name in the same folder, in the form of this name."""
        found = nearest_file(self.file, tree, posixpath.relpath(self._written_in, posixpath.dirname(self.file) or "."))
        return posixpath.join(posixpath.dirname(self.text), posixpath.basename(found)) if found else None
