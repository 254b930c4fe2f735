"""The frozen values that everything else passes around.

Times named `*_at` and `now` are seconds of one monotonic clock; wall times are named `wall`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Metadata = tuple[tuple[str, str | bytes], ...]
"""gRPC metadata in wire order; values of keys that end in `-bin` are bytes."""


class Kind(StrEnum):
    """How sure a verdict is that asking again is pointless."""

    TRANSIENT = "transient"
    PERMANENT = "permanent"
    AMBIGUOUS = "ambiguous"


class Culprit(StrEnum):
    """What is at fault."""

    DEVICE = "device"
    PARAMETERS = "parameters"
    CLAIM = "claim"
    DRIVER = "driver"
    NODE = "node"
    API = "api"
    UNKNOWN = "unknown"


class WaitsFor(StrEnum):
    """What a failing claim waits for, where it is another claim's."""

    DEVICE = "device"  # another claim has it
    LOCK = "lock"  # another call has the driver's lock


class Surface(StrEnum):
    """Where an error came out; the names are those of the failure corpus."""

    CLAIM_ERROR = "claim_error"  # claims[uid].error of a response
    CALL_ERROR = "call_error"  # a gRPC status for the whole call
    TRANSPORT = "transport"  # no gRPC answer at all


class Transport(StrEnum):
    """What happened to a call that got no answer from the driver."""

    REFUSED = "refused"  # connect() refused: a socket without a listener
    GONE = "gone"  # no such socket
    RESET = "reset"  # connection or stream ended before the answer
    DEADLINE = "deadline"  # the time we or kubelet gave ran out
    PROTOCOL = "protocol"  # an answer that is not gRPC
    CANCELLED = "cancelled"  # whoever asked went away


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """A claim as kubelet names it in a call."""

    namespace: str
    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class Status:
    """A gRPC status that is not OK."""

    code: int
    message: str
    details: bytes | None = None  # grpc-status-details-bin
    trailers: Metadata = ()
    initial: Metadata = ()  # what came before it, when the answer was not trailers-only


@dataclass(frozen=True, slots=True)
class Failure:
    """One error of one attempt, before it is judged."""

    driver: str
    operation: str  # "prepare" | "unprepare"
    surface: Surface
    text: str  # as the driver sent it, uncut
    code: int | None = None  # gRPC code of a call error
    transport: Transport | None = None
    permanent_error: bool = False  # field 3 of KEP-5322, only with a text
    details: bytes | None = None  # grpc-status-details-bin of a call error
    claim: str = ""  # UID of the claim that failed; a driver's marker must name it


MATCHED = 200
"""Bytes of the words that a rule matched."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a failure means, and why we say so."""

    kind: Kind
    culprit: Culprit
    rule: str  # id of the rule that said so
    hint: str = ""  # for a person: what it means, what to do
    device: str | None = None  # the one that the rule finds in the text; see `blamed`
    explicit: bool = False  # the driver said permanent_error itself
    max_attempts: int | None = None  # per call, where a repeat is a risk; 1: never repeated
    waits_for: WaitsFor | None = None  # of another claim, as the rule has it
    retry_after: float | None = None  # seconds for which the driver asks not to be asked again
    where: str = ""  # the words of the text in which alone the device at fault may be named
    span: tuple[int, int] | None = None  # what the rule matched: [start, end) of the cleaned text
    matched: str = ""  # these words, cleaned and cut

    @property
    def permanent(self) -> bool:
        """True when asking again is pointless."""
        return self.kind is Kind.PERMANENT

    @property
    def blamed(self) -> str | None:
        """The device at fault as the text names it; a device that is only named is innocent."""
        return self.device if self.culprit is Culprit.DEVICE else None

    @property
    def single_attempt(self) -> bool:
        """True when the driver must be asked only once per call."""
        return self.max_attempts == 1


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What one attempt brought for one claim: an answer's bytes, or a failure and its verdict."""

    claim: ClaimRef
    entry: bytes | None = None  # the driver's own NodePrepareResourceResponse bytes
    failure: Failure | None = None
    verdict: Verdict | None = None
    status: Status | None = None  # set when the whole call failed
    devices: tuple[str, ...] = ()  # names of the devices in `entry`

    @property
    def ok(self) -> bool:
        """True when the driver prepared the claim."""
        return self.failure is None


class DeviceState(StrEnum):
    """State of one device of a pod in the record."""

    FAILED = "failed"
    PREPARED = "prepared"
    BLOCKED = "blocked"  # not at fault: something else of its pod or claim failed
    PENDING = "pending"  # its driver was not asked yet


@dataclass(frozen=True, slots=True)
class ClaimOutcome:
    """How a claim stood when a call was answered (or while it is being retried)."""

    claim: ClaimRef
    state: DeviceState  # FAILED, PREPARED or BLOCKED
    verdict: Verdict | None = None
    attempts: int = 0
    first_error: str = ""
    last_error: str = ""
    first_wall: float = 0.0  # unix seconds of the first and last error
    last_wall: float = 0.0
    held: bool = False  # answered from a held verdict, the driver was not asked
    devices: tuple[str, ...] = ()  # device names in the driver's answer, when prepared


@dataclass(frozen=True, slots=True)
class CallFact:
    """What happened in one call; goes sideways to logs, metrics and the reporter."""

    driver: str
    operation: str
    method: str
    outcomes: tuple[ClaimOutcome, ...]
    final: bool  # False: kubelet still waits, attempts go on
    wall: float  # unix seconds
    replied_at: float = 0.0  # monotonic, when the answer was handed to kubelet's connection
    duration: float = 0.0
    code: int = 0  # gRPC code of the answer
    trace_id: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """One allocated device of a claim, from the claim's status.allocation."""

    claim: ClaimRef
    request: str
    driver: str
    pool: str
    device: str
    share_id: str = ""
    admin_access: bool = False
    attributes: Mapping[str, str] = field(default_factory=dict)  # as its ResourceSlice has them
    parameters_from: str = ""  # who wrote its opaque parameters: claim, class, or "claim,class"
    device_class: str = ""  # of the request
