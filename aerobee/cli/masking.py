"""Takes secrets out of texts that leave the machine. No I/O.

Two ways, both always: the value behind a name that sounds like a secret goes, and so does every
secret that is known by its value, wherever it stands.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MASK = "***"
WORDS = r"secret|passwd|password|passphrase|token|credential|signature|private_?key|api_?key"
NAME = re.compile(f"(?:{WORDS}|authenticationUser)", re.IGNORECASE)
PAIR = re.compile(
    rf"""((?:{WORDS})[\w.-]{{0,64}}\\*["']?\s*[:=]\s*)"""
    r"""(\\+"[^"\n]*"?|"(?:[^"\\]|\\.)*"?|'[^'\n]*'?|[^\s,;}&"']+)""",
    re.IGNORECASE,
)
IN_ADDRESS = re.compile(r"(://[^\s/:@]*:)[^\s/@]+@")
IN_HEADER = re.compile(r"\b((?:Bearer|Basic)\s+)[\w.~+/=-]+", re.IGNORECASE)
KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL
)
SHORTEST = 4
"""Characters of a secret that is looked for by its value: shorter ones are in many words."""


def sounds_secret(name: str) -> bool:
    """Whether a setting of this name holds a secret."""
    return NAME.search(name.replace("-", "_")) is not None


class Masking:
    """Masks texts; `known` are secrets by their values."""

    def __init__(self, known: Iterable[str]) -> None:
        wanted = {secret for secret in known if len(secret) >= SHORTEST and secret != MASK}
        longest_first = sorted(wanted, key=len, reverse=True)
        self._known = re.compile("|".join(map(re.escape, longest_first))) if wanted else None

    def text(self, text: str) -> str:
        """A text without secrets."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        text = KEY_BLOCK.sub(MASK, text)
        text = PAIR.sub(lambda match: f"{match[1]}{MASK}", text)
        return IN_HEADER.sub(rf"\g<1>{MASK}", IN_ADDRESS.sub(rf"\g<1>{MASK}@", text))

    def settings(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Settings with the values of secrets masked; whether one is set is still to be seen."""
        return {
            name: MASK if value and sounds_secret(name) else self.text(value)
            for name, value in settings.items()
        }

    def tree(self, value: Any) -> Any:
        """A JSON document with the values of secrets masked."""
        if isinstance(value, dict):
            return {
                key: MASK if item and sounds_secret(str(key)) else self.tree(item)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.tree(item) for item in value]
        return self.text(value) if isinstance(value, str) else value
