from agent.settings.sections import Outcome, Overlay, Retry


def test_starting_values_are_those_of_the_design() -> None:
    retry = Retry()
    assert (retry.initial_delay, retry.max_delay, retry.margin) == (0.25, 5.0, 3.0)
    assert (retry.ambiguous_attempts, retry.ambiguous_time) == (4, 5.0)
    overlay = Overlay()
    assert (overlay.get_info_delay, overlay.renew_delay, overlay.retire_after) == (0.3, 2.0, 60.0)
    assert overlay.renew_again == [10.0, 150.0]
    outcome = Outcome()
    assert (outcome.fail_delay, outcome.hold, outcome.hold_max) == (1.2, 600.0, 3600.0)


def test_lists_are_not_shared_between_configs() -> None:
    assert Overlay().renew_again is not Overlay().renew_again
