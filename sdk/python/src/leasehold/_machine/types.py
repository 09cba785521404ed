"""What goes into the machine, what comes out, and what it keeps."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, Union

MILLISECOND = 1_000_000
SECOND = 1_000_000_000

T = TypeVar("T")


class Problem(Protocol):
    """The part of a refusal that the machine looks at."""

    code: str
    outcome: str

    @property
    def reason(self) -> str | None: ...
    @property
    def recommended_retry_ms(self) -> int | None: ...
    @property
    def ticket(self) -> str | None: ...
    @property
    def leader(self) -> str | None: ...


class Key(NamedTuple):
    """Names one lease, session or acquire, or one request that was sent. It is never given to another."""

    place: int
    generation: int


class Slab(Generic[T]):
    """Numbered places that are used again under a new name; the one freed last comes first."""

    __slots__ = ("_free", "_places")

    def __init__(self) -> None:
        self._places: list[tuple[int, T | None]] = []
        self._free: list[int] = []

    def insert(self, value: T) -> Key:
        if self._free:
            index = self._free.pop()
            generation = self._places[index][0]
            self._places[index] = (generation, value)
            return Key(index, generation)
        self._places.append((1, value))
        return Key(len(self._places) - 1, 1)

    def get(self, key: Key) -> T | None:
        if key.place >= len(self._places):
            return None
        generation, value = self._places[key.place]
        return value if generation == key.generation else None

    def remove(self, key: Key) -> T | None:
        value = self.get(key)
        if value is None:
            return None
        self._places[key.place] = (key.generation + 1, None)
        self._free.append(key.place)
        return value

    def items(self) -> list[tuple[Key, T]]:
        return [
            (Key(index, generation), value) for index, (generation, value) in enumerate(self._places) if value is not None
        ]

    def __len__(self) -> int:
        return len(self._places) - len(self._free)


class State(enum.IntEnum):
    """What a holder may think of its lease."""

    VALID = 0
    JEOPARDY = 1
    """No renewal was confirmed for half of the ttl: stop now, no other owner can have it yet."""
    LOST = 2
    """Over. Somebody else may hold the lock."""


class Standing(NamedTuple):
    """A lease as far as the client knows it.

    The server counts the ttl from when it handled the request, which was after the request was sent. Counted from
    before the sending, the lease ends here earlier than there, however long the answer took.
    """

    since: int
    ttl: int

    @classmethod
    def counted(cls, sent: int, ttl: int, left: int) -> Standing:
        """The lease was said to stand for another ``left`` of its ``ttl``, in answer to a request sent at ``sent``."""
        return cls(sent - max(0, ttl - left), ttl)

    @property
    def jeopardy_at(self) -> int:
        """When the work must stop."""
        return self.since + self.ttl // 2

    @property
    def lapses_at(self) -> int:
        """When another may hold the lock."""
        return self.since + self.ttl

    def heartbeat_at(self, part: int) -> int:
        """When the next heartbeat must have gone out, at a part of the ttl."""
        return self.since + self.ttl // part

    def state(self, now: int) -> State:
        """What may be thought of it at this moment."""
        if now >= self.lapses_at:
            return State.LOST
        if now >= self.jeopardy_at:
            return State.JEOPARDY
        return State.VALID


@dataclass(frozen=True)
class Settings:
    """How patient a client is. Lengths are in nanoseconds."""

    patience: int = 10 * SECOND
    """How long a request is tried before its caller is told that no server could be reached; a wait is no part of it."""
    answer_timeout: int = 5 * SECOND
    """How long an answer may take, beyond the wait, before the request is sent again."""
    connect_timeout: int = 2 * SECOND
    backoff_first: int = 20 * MILLISECOND
    """The pause between two tries: doubled each time, and jittered."""
    backoff_max: int = 500 * MILLISECOND
    heartbeat_part: int = 3
    """A heartbeat goes out after this part of the ttl: 3, or 6 to survive longer outages."""


class Jitter:
    """Lengths that differ by chance, or for tests by nothing (``full``) or as much as they can (``least``)."""

    __slots__ = ("_part",)

    def __init__(self, kind: str = "random") -> None:
        self._part: Callable[[], int]
        if kind == "random":
            chance = random.Random()
            self._part = lambda: chance.randrange(1024)
        elif kind == "full":
            self._part = lambda: 1024
        elif kind == "least":
            self._part = lambda: 0
        else:
            raise ValueError(kind)

    def shortened(self, length: int) -> int:
        """Between four fifths of the length and all of it: never later than asked."""
        return length - length // 5 * (1024 - self._part()) // 1024

    def spread(self, length: int) -> int:
        """Between half of the length and all of it."""
        half = length // 2
        return half + half * self._part() // 1024


def doubled(first: int, tries: int, most: int) -> int:
    """Grows from ``first`` by doubling, up to ``most``."""
    return min(first << min(tries, 16), most)


class Wait(NamedTuple):
    """How long to wait for what is not free; ``None`` is for ever, zero is not at all."""

    length: int | None

    @property
    def is_never(self) -> bool:
        return self.length == 0


NEVER = Wait(0)
FOREVER = Wait(None)


@dataclass(frozen=True)
class Ask:
    """What is asked for, as far as time is concerned.

    A lease of its own (a session is one that nothing stands under yet), or with ``session`` a grant under that
    session: renewed with it, lost with it.
    """

    ttl: int
    wait: Wait = NEVER
    is_kept: bool = True
    session: Key | None = None


@dataclass(frozen=True)
class Request:
    """``acquire`` (always under the same request id for one key), ``renew`` or ``release``."""

    kind: str
    wait: Wait = NEVER
    ticket: str | None = None


RENEW = Request("renew")
RELEASE = Request("release")


class Failure(enum.Enum):
    """Why no answer came."""

    UNSENT = "unsent"
    """The request never left."""
    UNKNOWN = "unknown"
    """It may have been carried out."""


@dataclass(frozen=True)
class Granted:
    ttl: int
    left: int


@dataclass(frozen=True)
class Renewed:
    ttl: int
    left: int


@dataclass(frozen=True)
class Released:
    pass


@dataclass(frozen=True)
class Refusal:
    problem: Problem


Answer = Union[Granted, Renewed, Released, Refusal]


class News(enum.Enum):
    """What is told about a lease that goes on."""

    GRANTED = "granted"
    RENEWED = "renewed"
    JEOPARDY = "jeopardy"
    """Stop."""
    GAVE_UP = "gave_up"
    """No answer came to an acquire. What it may have got is being given back."""


class Loss(enum.Enum):
    LAPSED = "lapse"
    """The ttl is over."""
    TOLD = "server"
    """The server said so."""
    SESSION_CLOSED = "session"
    """The session it stood under was closed."""


@dataclass(frozen=True)
class Ended:
    """How it ended.

    ``refused``, ``unreachable``, ``lost`` (``loss`` says how), ``released``, ``not_released`` (the lease was over
    before), ``release_unanswered``, or ``forgotten``: an abandoned acquire has left nothing behind.
    """

    kind: str
    loss: Loss | None = None
    problem: Problem | None = None

    def of_what_stood_under(self) -> Ended:
        if self.kind == "lost":
            return self
        return lost(Loss.SESSION_CLOSED)


def lost(loss: Loss, problem: Problem | None = None) -> Ended:
    return Ended("lost", loss, problem)


FORGOTTEN = Ended("forgotten")


@dataclass(frozen=True)
class Connect:
    """Make a connection to this server, say ``up`` or ``down``, and let the one before go."""

    link: int
    address: str


@dataclass(frozen=True)
class Send:
    """Send this on the connection; ``answer`` or ``failed`` must follow, unless the connection breaks."""

    call: Key
    key: Key
    request: Request


@dataclass(frozen=True)
class Cancel:
    """The answer is of no interest any more. One must follow all the same."""

    call: Key
    key: Key


@dataclass(frozen=True)
class Tell:
    """Something changed for the one who asked."""

    key: Key
    news: News
    standing: Standing | None = None


@dataclass(frozen=True)
class End:
    """It is over, and the machine has forgotten the key."""

    key: Key
    data: Any
    how: Ended


Action = Union[Connect, Send, Cancel, Tell, End]


@dataclass
class Acquiring:
    give_up: int | None
    """When the caller is told that no answer came."""
    wait_until: int | None
    ticket: str | None = None
    is_in_doubt: bool = False
    """Something was sent of which nobody knows what came."""
    tries: int = 0
    next: int | None = None
    """When to send again: after a failure, or because the answer is overdue."""
    last: Problem | None = None


@dataclass
class Beat:
    """The next heartbeat, and the ones that were sent since the last that was confirmed."""

    at: int | None
    """``None``: none is wanted."""
    tries: int = 0
    first_sent: int | None = None


@dataclass
class Held:
    standing: Standing
    sent: int
    """When the request was sent that the standing is the answer to."""
    beat: Beat


@dataclass
class Confirming:
    """Granted, but so long ago that it must be confirmed before anybody relies on it."""

    acquiring: Acquiring
    held: Held


@dataclass
class Jeopardy:
    """Nothing is renewed any more."""

    standing: Standing


@dataclass
class Joined:
    """Held under a session."""


@dataclass
class Releasing:
    until: int
    """After that the lease is over anyway."""
    is_quiet: bool
    """Nobody asked for it: it cleans up."""
    is_in_doubt: bool = False
    tries: int = 0
    next: int | None = None


@dataclass
class Abandoned:
    """Nobody wants it any more; what it may have got must not stay behind."""

    until: int
    tries: int = 0
    next: int | None = None


Phase = Union[Acquiring, Confirming, Held, Jeopardy, Joined, Releasing, Abandoned]


@dataclass
class Entry:
    data: Any
    ask: Ask
    phase: Phase
    is_kept: bool
    timer: int | None = None
    """When it is next looked at."""
    call: Key | None = None
    """The request that was sent last, if its answer is still to come."""
    is_in_line: bool = False
    """It has something to send and waits for a connection."""
    members: set[Key] = field(default_factory=set)
    denied: Problem | None = None
    """Why the last renewal was not let in. If nothing better comes, that is how the lease was lost."""

    def due_at(self) -> int | None:
        """When something must be done about it, whatever else happens."""
        phase = self.phase
        # What waits for a connection is sent when there is one, not at a time.
        if isinstance(phase, Held):
            return earliest(phase.standing.jeopardy_at, None if self.is_in_line else phase.beat.at)
        if isinstance(phase, Acquiring):
            return earliest(phase.give_up, None if self.is_in_line else phase.next)
        if isinstance(phase, Confirming):
            return earliest(phase.acquiring.next, None if self.is_in_line else phase.held.beat.at)
        if isinstance(phase, Jeopardy):
            return phase.standing.lapses_at
        if isinstance(phase, Joined):
            return None
        return earliest(phase.until, None if self.is_in_line else phase.next)

    def standing(self) -> Standing | None:
        """The lease as it stands, while it is held."""
        if isinstance(self.phase, (Held, Jeopardy)):
            return self.phase.standing
        return None


@dataclass
class Call:
    """A request on its way."""

    key: Key
    sent: int
    link: int


def earliest(one: int | None, other: int | None) -> int | None:
    if one is None:
        return other
    if other is None:
        return one
    return min(one, other)


LEARNED_MAX = 16
"""More servers than that nobody runs, and one that lies about the leader fills no memory."""


class Servers:
    """Which server to talk to."""

    def __init__(self, addresses: list[str]) -> None:
        if not addresses:
            raise ValueError("a client has at least one server")
        self._addresses = list(addresses)
        self._current = 0

    @property
    def current(self) -> str:
        return self._addresses[self._current]

    def __len__(self) -> int:
        return len(self._addresses)

    def rotate(self) -> None:
        self._current = (self._current + 1) % len(self._addresses)

    def follow(self, hint: str) -> bool:
        """Goes to the server that is said to lead; false if it is the one we talk to."""
        hint = hint.rstrip("/")
        if "://" not in hint and "://" in self.current:
            hint = self.current.split("://", 1)[0] + "://" + hint
        if hint in self._addresses:
            at = self._addresses.index(hint)
            if at == self._current:
                return False
            self._current = at
            return True
        if len(self._addresses) >= LEARNED_MAX:
            return False
        self._addresses.append(hint)
        self._current = len(self._addresses) - 1
        return True
