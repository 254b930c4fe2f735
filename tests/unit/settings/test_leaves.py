from agent.settings.leaves import leaves, written
from agent.settings.model import AgentConfig


def test_every_key_is_described_and_its_path_is_unique() -> None:
    found = leaves()
    assert len({leaf.path for leaf in found}) == len(found)
    for leaf in found:
        assert leaf.description.endswith("."), leaf.dotted


def test_variables_are_unique_and_spelled_by_path() -> None:
    found = {leaf.variable: leaf.dotted for leaf in leaves() if leaf.variable}
    assert len(found) == sum(1 for leaf in leaves() if leaf.variable)
    assert found["DRA_AGENT_MODE"] == "mode"
    assert found["DRA_AGENT_RETRY_MARGIN"] == "retry.margin"
    assert found["DRA_AGENT_DRIVERS_DRIVER_ABSENCE_HOLD"] == "drivers.driverAbsenceHold"
    assert found["DRA_AGENT_REGISTRATION"] == "registration"
    assert found["DRA_AGENT_REGISTRATION_OVERLAY_RENEW_DELAY"] == "registration.overlay.renewDelay"


def test_what_no_variable_can_set() -> None:
    without = {leaf.dotted for leaf in leaves() if not leaf.variable}
    assert without == {"apiVersion", "kind", "drivers.perDriver"}


def test_written_form_uses_words_and_units() -> None:
    plain = written(AgentConfig())
    assert isinstance(plain, dict)
    assert plain["retry"]["initialDelay"] == "250ms"
    assert plain["registration"] == "overlay"
    assert plain["drivers"]["perDriver"] == {}
