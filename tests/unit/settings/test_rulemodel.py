from agent.settings.rulemodel import PackEntry, RepeatEntry, RuleEntry, RulesFile


def test_defaults_ask_for_nothing() -> None:
    rule = RuleEntry()
    assert (rule.text, rule.also, rule.unless, rule.verdict, rule.repeat) == (
        "",
        "",
        "",
        None,
        None,
    )
    assert PackEntry().repeat is None
    assert PackEntry().version == RulesFile().version == 1
    assert RepeatEntry().within_call == "freely"
