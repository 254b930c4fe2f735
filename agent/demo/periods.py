"""Periods of the stand-in kubelet: those of the real one, and the shorter ones of the demo."""

from __future__ import annotations

from dataclasses import dataclass

REAL_RESYNC = (60.0, 90.0)
SHORTENED_BY = 20
"""The demo's kubelet asks again after 60-90 s divided by this."""


@dataclass(frozen=True, slots=True)
class Periods:
    """Seconds; the defaults are kubelet 1.37.2's own (1.34 to 1.36 have the same)."""

    resync: tuple[float, float] = REAL_RESYNC  # after a sync without an error, so after a
    # failed prepare too: kubelet does not count that as one
    unprepare_retry: tuple[float, float] = (10.0, 15.0)  # back-off of a failed teardown
    deadline: float = 45.0  # of each prepare and unprepare call
    reconcile: float = 1.0  # the plugin manager compares sockets and registrations this often
    dial: float = 10.0  # of a registration socket
    get_info: float = 1.0
    notify: float = 5.0
    register_backoff: tuple[float, float] = (0.5, 122.0)  # first and longest, per socket path
    reconnect_backoff: tuple[float, float] = (1.0, 120.0)  # grpc-go; grows by 1.6
    wipe: float = 30.0  # without a connected plugin, the driver's ResourceSlices are deleted
    relist: float = 1.0  # PLEG: a teardown waits for a look at the containers newer than the sync
    status: float = 10.0  # the status manager puts back what others wrote over its fields


REAL = Periods()

SHORT = Periods(
    resync=(REAL_RESYNC[0] / SHORTENED_BY, REAL_RESYNC[1] / SHORTENED_BY),
    unprepare_retry=(10.0 / SHORTENED_BY, 15.0 / SHORTENED_BY),
    # Not by 20: the agent's own periods stay as they are, and its retries must fit.
    deadline=15.0,
    reconcile=0.25,
    register_backoff=(0.5, 6.0),
    wipe=10.0,
    status=2.0,
)
"""What `dra-agent demo` uses. Not shortened: GetInfo, Notify, relist, reconnecting."""
