"""The demo's resource claim controller: a pod that has ended gives its claims back.

As kube-controller-manager does: at once when the API shows a terminal phase, without waiting for
kubelet's unprepare; generated claims are deleted with it.
"""

from __future__ import annotations

from agent.demo.store import ApiError, Object, Store

TERMINAL = ("Failed", "Succeeded")


def claim_names(pod: Object) -> dict[str, str]:
    """Names in the pod's spec -> names of the claim objects. A claim not made yet is left out."""
    generated = {
        entry["name"]: entry.get("resourceClaimName", "")
        for entry in pod.get("status", {}).get("resourceClaimStatuses") or []
    }
    return {
        entry["name"]: name
        for entry in pod.get("spec", {}).get("resourceClaims") or []
        if (name := entry.get("resourceClaimName") or generated.get(entry["name"], ""))
    }


class ClaimController:
    """Watches pods; run() does not return."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run(self) -> None:
        """Release the claims of each pod that ends or goes."""
        async for change in self._store.watch("pods", 0):
            phase = change.object.get("status", {}).get("phase")
            if change.kind == "DELETED" or phase in TERMINAL:
                self._release(change.object)

    def _release(self, pod: Object) -> None:
        uid, namespace = pod["metadata"]["uid"], pod["metadata"]["namespace"]
        for name in claim_names(pod).values():
            try:
                claim = self._store.get("resourceclaims", namespace, name)
            except ApiError:
                continue
            users = claim.get("status", {}).get("reservedFor") or []
            left = [user for user in users if user.get("uid") != uid]
            if len(left) == len(users):
                continue
            key = ("resourceclaims", namespace, name)
            owners = claim["metadata"].get("ownerReferences") or []
            if not left and any(owner.get("uid") == uid for owner in owners):
                self._store.remove(key, by="controller")
            else:
                status = {**claim["status"], "reservedFor": left} if left else {}
                self._store.update(key, lambda obj, status=status: obj.update(status=status))  # type: ignore[misc]
