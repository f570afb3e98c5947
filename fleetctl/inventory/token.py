"""Find the cluster's token where Ray itself looks for it. A token is never shown, logged or written anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fleetctl.errors import InventoryError

TOKEN_VARIABLE = "RAY_AUTH_TOKEN"  # noqa: S105
PATH_VARIABLE = "RAY_AUTH_TOKEN_PATH"
DEFAULT_PATH = ".ray/auth_token"


def find_token(environ: Mapping[str, str], home: Path) -> str | None:
    """Return the token, or None: RAY_AUTH_TOKEN, then the file RAY_AUTH_TOKEN_PATH names, then ~/.ray/auth_token.

    Raises InventoryError when the named file cannot be read or holds nothing, or when the token cannot be sent.
    """
    if token := environ.get(TOKEN_VARIABLE, "").strip():
        return _sendable(token, TOKEN_VARIABLE)
    if named := environ.get(PATH_VARIABLE, "").strip():
        return _sendable(_read(Path(named).expanduser()), PATH_VARIABLE)
    default = home / DEFAULT_PATH
    if not default.is_file():
        return None
    return _sendable(_read(default), str(default))


def without_token(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a Ray that must send no token, not even the one it finds by itself."""
    kept = {name: value for name, value in environ.items() if name not in (TOKEN_VARIABLE, PATH_VARIABLE)}
    return {**kept, "RAY_AUTH_MODE": "disabled"}


def _read(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InventoryError(f"the token file {path} cannot be read: {reason}",
                             hint=f"{TOKEN_VARIABLE} wins over {PATH_VARIABLE}, and that over ~/{DEFAULT_PATH}"
                             ) from None
    if not token:
        raise InventoryError(f"the token file {path} is empty", hint="write the cluster's token into it, or remove it")
    return token


def _sendable(token: str, source: str) -> str:
    """Refuse what no HTTP header can carry, without showing it."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise InventoryError(f"the token from {source} holds spaces or characters no HTTP header can carry",
                             hint="a token is one line of plain letters, digits and signs")
    return token
