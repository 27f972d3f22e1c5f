"""A household in which a thing must be found and brought to a room: episodes of six to twelve turns.

The thing is inside a piece of furniture in one of three rooms, among other things. The agent sees a room's furniture
only from inside the room, and its content only when it is open. The pairs of thing and room in test rows occur in no
other row.
"""

import itertools
import random
from contextlib import suppress

from agent_rl import Environment
from agent_rl.errors import ToolError

SEARCHED = ("kitchen", "bath", "cellar")
"""The rooms with furniture, in the order in which the expert searches them."""
TARGETS = ("office", "porch", "attic", "garage", "hall", "studio", "shop", "yard")
FURNITURE = ("drawer", "chest", "box", "basket", "trunk", "cabinet", "locker", "crate")
THINGS = (
    "apple", "bag", "ball", "belt", "book", "bowl", "brush", "candle", "card", "clock", "coat", "coin",
    "cup", "fork", "hat", "key", "knife", "lamp", "pen", "plate", "rope", "shoe", "spoon", "towel",
)  # fmt: skip
ROWS = {"train": 6000, "test": 500}
HAND = "hand"
"""Place of a thing that the agent has taken."""


class Household(Environment):
    """Find the thing, and bring it to the room."""

    milestone = 0.0
    """Reward of a turn in which the agent first sees the thing, has it, or puts it where it belongs."""

    def rows(self, split, seed):
        pairs = list(itertools.product(THINGS, TARGETS))
        random.Random(seed).shuffle(pairs)
        quarter = len(pairs) // 4
        pairs = pairs[:quarter] if split == "test" else pairs[quarter:]
        draw = random.Random(f"{seed}/{split}")
        for _ in range(ROWS[split]):
            thing, target = draw.choice(pairs)
            things = [thing, *draw.sample([other for other in THINGS if other != thing], 2)]
            yield {
                "prompt": f"Bring the {thing} to the {target}.",
                "thing": thing,
                "target": target,
                "furniture": dict(zip(SEARCHED, draw.sample(FURNITURE, 3), strict=True)),
                "places": {each: draw.choice(SEARCHED) for each in sorted(things)},
            }

    def reset(self, thing, target, furniture, places, **row):
        self.thing, self.target, self.furniture, self.places = thing, target, furniture, places
        self.right_places = {**places, thing: target}
        self.room, self.is_open, self.reached = "", False, set()

    def go(self, room: str) -> str:
        """Go to a room.

        Args:
            room: name of the room
        """
        if room not in (*SEARCHED, *TARGETS):
            raise ToolError(f"there is no {room!r} among the rooms")
        self.room, self.is_open = room, False
        furniture = self.furniture.get(room)
        return f"There is a closed {furniture}." if furniture else "There is nothing to open."

    def open(self, furniture: str) -> str:
        """Open what stands in the room, and see what is in it.

        Args:
            furniture: its name
        """
        if furniture != self.furniture.get(self.room, ""):
            raise ToolError(f"there is no {furniture} here")
        self.is_open = True
        self._reach("seen", self.thing in self._seen())
        return f"In it: {', '.join(self._seen()) or 'nothing'}."

    def take(self, thing: str) -> str:
        """Take a thing that you see.

        Args:
            thing: its name
        """
        if thing not in self._seen():
            raise ToolError(f"you see no {thing}")
        self.places[thing] = HAND
        self._reach("taken", thing == self.thing)
        return f"You have the {thing}."

    def put(self, thing: str) -> str:
        """Put a thing that you have into the room.

        Args:
            thing: its name
        """
        if thing not in self.places:
            raise ToolError(f"there is no {thing!r} among the things")
        if self.places[thing] != HAND:
            raise ToolError(f"you do not have the {thing}")
        if not self.room or (self.room in self.furniture and not self.is_open):
            raise ToolError("there is no open place for it here")
        self.places[thing] = self.room
        self._reach("brought", self.places[self.thing] == self.target)
        return f"The {thing} is in the {self.room}."

    def get_reward(self):
        return float(self.answer is not None and self.places == self.right_places)

    def state_key(self):
        carried = [thing for thing, place in self.places.items() if place == HAND]
        return {"room": self.room, "is_open": self.is_open, "seen": self._seen(), "carried": carried}

    def solve(self):
        for room in SEARCHED:
            self.go(room)
            self.open(self.furniture[room])
            with suppress(ToolError):  # a tiny model learns to read a refusal, but not to recognize a thing in a list
                self.take(self.thing)
                break
        self.go(self.target)
        self.put(self.thing)
        return "done"

    def _seen(self):
        if self.room in self.furniture and not self.is_open:
            return []
        return [thing for thing, place in self.places.items() if place == self.room]

    def _reach(self, milestone, is_reached):
        if is_reached and milestone not in self.reached:
            self.reached.add(milestone)
            self.reward_turn(self.milestone)


class Milestones(Household):
    """Find the thing, and bring it to the room."""

    milestone = 0.1
