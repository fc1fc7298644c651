"""The authors whose documents are accepted: configured keys, and the keys that follow them by signed rotations."""

from __future__ import annotations

from collections.abc import Sequence

from shuffledp.collection.task.key_documents import Rotation
from shuffledp.collection.wire.keys import VerifyingKey
from shuffledp.errors import ParameterError


class TrustedAuthors:
    """Keys of authors; keys that are linked by rotations belong to the same author."""

    def __init__(self, keys: Sequence[VerifyingKey]) -> None:
        self._keys = {key.id: key for key in keys}
        self._followed_by: dict[str, str] = {}

    @property
    def keys(self) -> tuple[VerifyingKey, ...]:
        """All keys that may sign."""
        return tuple(self._keys.values())

    @property
    def newest_keys(self) -> tuple[VerifyingKey, ...]:
        """The keys that no other key follows."""
        return tuple(key for key in self._keys.values() if key.id not in self._followed_by)

    def follow(self, rotation: Rotation) -> bool:
        """Trust the new key of a rotation as the old one; False if it was known.

        ParameterError if another key follows the old one already, since one of the two rotations is not the author's.
        """
        old, new = rotation.old.id, rotation.new.id
        if self._followed_by.get(old) == new:
            return False
        if old in self._followed_by:
            raise ParameterError(
                f"The key {self._followed_by[old]} follows the author's key {old} already, so {new} cannot: one of the "
                "two rotations may be forged. Ask the author."
            )
        if new in self._keys_before(old):
            raise ParameterError(f"The key {new} precedes the author's key {old}, so it cannot follow it.")
        if new in self._followed_by.values():
            raise ParameterError(f"The key {new} follows another key already, so it cannot follow {old}, too.")
        self._followed_by[old] = new
        self._keys.setdefault(new, rotation.new)
        return True

    def are_same_author(self, first: VerifyingKey, second: VerifyingKey) -> bool:
        """Whether two keys are equal or linked by rotations."""
        return self._root(first.id) == self._root(second.id)

    def _root(self, key_id: str) -> str:
        """The first key of the author of a key."""
        return [key_id, *self._keys_before(key_id)][-1]

    def _keys_before(self, key_id: str) -> list[str]:
        """The ids of the keys of an author before a key, the latest first."""
        earlier = {new: old for old, new in self._followed_by.items()}
        before: list[str] = []
        while key_id in earlier:
            key_id = earlier[key_id]
            before.append(key_id)
        return before
