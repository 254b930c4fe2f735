"""A rule file as types. config/rules.schema.json comes from here."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from agent import names
from agent.settings.sections import Section

Verdicts = Literal["transient", "permanent", "ambiguous"]
Culprits = Literal["device", "parameters", "claim", "driver", "node", "api", "unknown"]
Transports = Literal["refused", "gone", "reset", "deadline", "protocol", "cancelled"]
Repeats = Literal["freely", "once", "never"]


class RuleEntry(Section, frozen=True):
    """One rule: all conditions that are given must hold."""

    id: Annotated[str, Meta(description="Unique, lower-case words joined by dashes.")] = ""
    text: Annotated[
        str,
        Meta(description="Pattern, searched in the cleaned text; capitals do not matter."),
    ] = ""
    also: Annotated[str, Meta(description="Pattern that the same error must hold too.")] = ""
    unless: Annotated[str, Meta(description="Pattern that the same error must not hold.")] = ""
    code: Annotated[list[str], Meta(description="gRPC codes by name.")] = msgspec.field(
        default_factory=list
    )
    reason: Annotated[
        list[str], Meta(description="Reasons of a google.rpc.ErrorInfo in the status' details.")
    ] = msgspec.field(default_factory=list)
    transport: Annotated[list[Transports], Meta(description="How the call broke.")] = msgspec.field(
        default_factory=list
    )
    operation: Annotated[
        Literal["prepare", "unprepare"] | None, Meta(description="Only for this kind of call.")
    ] = None
    surface: Annotated[
        Literal["claim_error", "call_error", "transport"] | None,
        Meta(description="Where the error came out."),
    ] = None
    verdict: Annotated[
        Verdicts | None, Meta(description="May the same call work soon? Must be given.")
    ] = None
    culprit: Annotated[Culprits, Meta(description="What is at fault.")] = "unknown"
    repeat: Annotated[
        Repeats | None,
        Meta(description="Repeats within one call of kubelet; default: what the pack says."),
    ] = None
    waits_for: Annotated[
        Literal["device", "lock"] | None,
        Meta(description="What another claim or call has, which this one waits for."),
    ] = None
    certain: Annotated[bool, Meta(description="The file's `doubts` do not hold for this rule.")] = (
        False
    )
    single_attempt: Annotated[bool, Meta(description="The same as `repeat: never`.")] = False
    hint: Annotated[str, Meta(description="For a person: what it means, what to do.")] = ""
    source: Annotated[str, Meta(description="Where this knowledge is from.")] = ""
    examples: Annotated[
        list[str], Meta(description="Texts that this rule must decide; `rules test` tries them.")
    ] = msgspec.field(default_factory=list)


class DoubtEntry(Section, frozen=True):
    """Words that make a permanent verdict of the file's rules for every driver ambiguous."""

    text: Annotated[str, Meta(description="Pattern, searched in the same error.")] = ""
    reason: Annotated[str, Meta(description="Why such an error may pass, for a person.")] = ""


class RepeatEntry(Section, frozen=True):
    """What a repeated prepare may do, for ambiguous failures and where the answer was lost."""

    within_call: Annotated[
        Repeats, Meta(description="Repeats that are safe within one call of kubelet.")
    ] = "freely"
    reason: Annotated[str, Meta(description="Why, for a person.")] = ""
    source: Annotated[str, Meta(description="Where this knowledge is from.")] = ""


class PackEntry(Section, frozen=True):
    """Rules that hold for some drivers only."""

    name: Annotated[str, Meta(description="Unique name of the pack.")] = ""
    version: Annotated[int, Meta(ge=1, description="Counts the pack's editions.")] = 1
    drivers: Annotated[list[str], Meta(description="Driver names; `*` and `?` match.")] = (
        msgspec.field(default_factory=list)
    )
    repeat: Annotated[
        RepeatEntry | None, Meta(description="What a repeat may do; without it nothing is said.")
    ] = None
    rules: list[RuleEntry] = msgspec.field(default_factory=list)


class RulesFile(Section, frozen=True):
    """A rule file."""

    api_version: Annotated[
        Literal["dra-agent.io/v1alpha1"], Meta(description="Version of this format.")
    ] = names.CONFIG_API_VERSION  # type: ignore[assignment]  # a str to mypy
    kind: Annotated[Literal["FailureRules"], Meta(description="Kind of this file.")] = (
        "FailureRules"
    )
    version: Annotated[int, Meta(ge=1, description="Counts the file's own editions.")] = 1
    doubts: Annotated[
        list[DoubtEntry],
        Meta(description="What makes a permanent verdict of `rules` ambiguous."),
    ] = msgspec.field(default_factory=list)
    rules: Annotated[list[RuleEntry], Meta(description="For every driver.")] = msgspec.field(
        default_factory=list
    )
    packs: list[PackEntry] = msgspec.field(default_factory=list)
