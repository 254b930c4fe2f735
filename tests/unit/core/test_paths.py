import re

import pytest

from agent.core import paths

ROOT = "/var/lib/kubelet"


def test_names_are_those_of_the_design() -> None:
    digest = paths.driver_hash("gpu.example.com")
    assert re.fullmatch("[0-9a-f]{8}", digest)
    registration = paths.registration_path(ROOT, "gpu.example.com", "0a1b2c")
    assert registration == f"{ROOT}/plugins_registry/dra-agent~{digest}~0a1b2c.sock"
    endpoint = paths.endpoint_path(ROOT, "gpu.example.com", "0a1b2c")
    assert endpoint == f"{ROOT}/plugins/dra-agent.io/{digest}-0a1b2c.sock"


def test_names_depend_on_driver_and_generation() -> None:
    made = {
        paths.registration_name(driver, generation)
        for driver in ("a.example", "b.example")
        for generation in ("000000", "000001")
    }
    assert len(made) == 4


@pytest.mark.parametrize("generation", ["", "12345", "1234567", "ABCDEF", "../../", "12345\n"])
def test_a_wrong_generation_never_becomes_a_path(generation: str) -> None:
    with pytest.raises(ValueError, match="generation"):
        paths.endpoint_path(ROOT, "a.example", generation)


def test_hostile_driver_names_stay_inside_the_directory() -> None:
    path = paths.registration_path(ROOT, "../../etc/%3f#?\ud800", "abcdef")
    assert path.rpartition("/")[0] == f"{ROOT}/plugins_registry"
    assert paths.problem(path) is None


def test_ours_are_known_by_their_prefix() -> None:
    assert paths.is_ours(paths.registration_name("a.example", "abcdef"))
    assert not paths.is_ours("a.example-reg.sock")
    assert not paths.is_ours("dra-agent.example.com-reg.sock")


def test_locks_one_for_the_node_or_one_per_driver() -> None:
    assert paths.lock_path(ROOT) == f"{ROOT}/plugins/dra-agent.io/lock"
    one, other = (paths.lock_path(ROOT, name) for name in ("a.example", "b.example"))
    assert one != other
    assert one.startswith(f"{ROOT}/plugins/dra-agent.io/lock-")


def test_the_intake_directory_is_not_below_the_registry() -> None:
    assert not paths.intake_dir(ROOT).startswith(paths.registry_dir(ROOT))


def test_limit_counts_bytes() -> None:
    assert paths.problem("/" + "a" * 106) is None
    assert "108 bytes" in str(paths.problem("/" + "a" * 107))
    assert "109 bytes" in str(paths.problem("/" + "é" * 54))


def test_any_driver_that_fits_directly_fits_through_us() -> None:
    """A driver's own shortest path is plugins/<name>/dra.sock; ours must not be the one too many.

    Only the root's length matters for ours, so the longest root must still leave room for names.
    """
    root = "/" + "r" * 55
    assert paths.root_problem(root) is None
    assert paths.problem(paths.endpoint_path(root, "x" * 63, "abcdef")) is None


def test_problems_name_the_path_and_the_cause() -> None:
    assert "% ?" in str(paths.problem("/a%b?c"))
    assert "109 bytes" in str(paths.problem("/" + "a" * 108))
    assert paths.problem("/run/a.sock") is None


@pytest.mark.parametrize(
    ("root", "words"),
    [
        ("", "absolute"),
        ("var/lib", "absolute"),
        ("/a#b", "must not contain #"),
        ("/" + "a" * 90, "shorter"),
    ],
)
def test_a_root_that_cannot_work_is_said(root: str, words: str) -> None:
    assert words in str(paths.root_problem(root))


def test_the_usual_root_is_fine() -> None:
    assert paths.root_problem(ROOT) is None
