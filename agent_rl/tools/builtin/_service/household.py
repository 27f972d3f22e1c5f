"""A household: rooms, some with furniture that has to be opened, and things that lie somewhere in it.

{"rooms": {"kitchen": {"furniture": "drawer"}, "office": {}}, "things": {"cup": {"at": "kitchen"}}}

The database contains only where things are; the agent's location and the open furniture are state of the episode.
"""

from __future__ import annotations

from agent_rl.errors import ToolError
from agent_rl.tools.builtin._service import Domain
from agent_rl.tools.builtin._service.records import Records

__all__ = ["DOMAIN", "HAND"]

HAND = "hand"
"""Location of a thing that the agent has taken."""


class Household(Domain):
    """The household's tools."""

    def __init__(self, records: Records) -> None:
        super().__init__(records)
        self._room = ""
        self._open = False

    def go(self, room: str) -> str:
        """Go to a room.

        Args:
            room: name of the room
        """
        self.records.get("rooms", room)
        self._room, self._open = room, False
        furniture = self._furniture()
        return f"There is a closed {furniture}." if furniture else "There is nothing to open."

    def open(self, furniture: str) -> str:
        """Open what stands in the room, and see what is in it.

        Args:
            furniture: its name
        """
        if furniture != self._furniture():
            raise ToolError(f"there is no {furniture} here")
        self._open = True
        return f"In it: {', '.join(self._here()) or 'nothing'}."

    def take(self, thing: str) -> str:
        """Take a thing that you see.

        Args:
            thing: its name
        """
        if thing not in self._here():
            raise ToolError(f"you see no {thing}")
        self.records.edit("things", thing)["at"] = HAND
        return f"You have the {thing}."

    def put(self, thing: str) -> str:
        """Put a thing that you have into the room.

        Args:
            thing: its name
        """
        if self.records.get("things", thing)["at"] != HAND:
            raise ToolError(f"you do not have the {thing}")
        if not self._room or (self._furniture() and not self._open):
            raise ToolError("there is no open place for it here")
        self.records.edit("things", thing)["at"] = self._room
        return f"The {thing} is in the {self._room}."

    def _furniture(self) -> str:
        """Return the room's furniture, or ""."""
        room = self.records.find("rooms", self._room) or {}
        return str(room.get("furniture", ""))

    def _here(self) -> list[str]:
        """Return the things that the agent sees."""
        if self._furniture() and not self._open:
            return []
        return [name for name, thing in self.records.items("things") if thing["at"] == self._room]


DOMAIN = Household
