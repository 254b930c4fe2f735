import msgspec
import pytest

from agent import names
from agent.settings.model import AgentConfig, Drivers, NodeIdentity, PerDriver, Registration, Retry


def test_names_of_the_format_are_the_fixed_ones() -> None:
    config = AgentConfig()
    assert (config.api_version, config.kind) == (names.CONFIG_API_VERSION, names.CONFIG_KIND)


def test_top_keys_are_the_fixed_ones() -> None:
    fixed = "mode registration drivers retry rules outcome taint report tracing http log"
    assert AgentConfig.__struct_encode_fields__[2:] == tuple(fixed.split())


def test_per_driver_values() -> None:
    special = {"a": PerDriver(mode="enforce"), "b": PerDriver(retry=Retry(jitter=0.0))}
    config = AgentConfig(drivers=Drivers(per_driver=special))
    assert [config.mode_of(name) for name in "abc"] == ["enforce", "observe", "observe"]
    assert [config.retry_of(name).jitter for name in "abc"] == [0.5, 0.0, 0.5]


def test_registration_has_one_long_form() -> None:
    assert AgentConfig(registration="intake").registration_settings == Registration(kind="intake")
    long = Registration(intake_dir="/x")
    assert AgentConfig(registration=long).registration_settings is long


def test_identity_and_config_are_frozen() -> None:
    with pytest.raises(AttributeError):
        NodeIdentity(node_name="n").node_name = "m"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        AgentConfig().mode = "enforce"  # type: ignore[misc]
    assert isinstance(AgentConfig(), msgspec.Struct)
