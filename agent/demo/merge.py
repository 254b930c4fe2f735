"""Strategic merge as the API server does it, for the fields of a pod's status and metadata."""

from __future__ import annotations

import copy
from typing import Any

# List fields that merge by a key; every other list is replaced (PodStatus in core/v1).
MERGE_KEYS = {
    "conditions": "type",
    "resourceClaimStatuses": "name",
    "podIPs": "ip",
    "ownerReferences": "uid",
}


def strategic_merge(base: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Give `base` with `patch` applied; neither is changed. null removes a key."""
    result = copy.deepcopy(base)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = strategic_merge(result[key], value)
        elif isinstance(value, list) and key in MERGE_KEYS:
            result[key] = _merge_list(result.get(key) or [], value, MERGE_KEYS[key])
        elif isinstance(value, dict):
            result[key] = strategic_merge({}, value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def _merge_list(base: list[Any], patch: list[Any], key: str) -> list[Any]:
    result = list(base)
    for item in patch:
        at = next((i for i, old in enumerate(result) if old.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            if at is not None:
                del result[at]
        elif at is None:
            result.append(strategic_merge({}, item))
        else:
            result[at] = strategic_merge(result[at], item)
    return result
