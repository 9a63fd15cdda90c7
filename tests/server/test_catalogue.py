"""The catalogue: every verb is in it or left out with a reason, and what it takes is what the verb takes."""

from __future__ import annotations

import inspect

import pytest

from testkit.errors import raises
from twinshore.config.errors import ConfigError
from twinshore.server.core.catalogue import (
    LABELS,
    LEFT_OUT,
    RULES,
    Effect,
    Parameter,
    Role,
    ValueKind,
    command_line,
    label_of,
)
from twinshore.server.remote import read_arguments, split_server
from twinshore.server.verbs import all_verbs, operation_of, operations, unlisted_verbs


def test_each_verb_is_listed_or_left_out_with_a_reason() -> None:
    assert unlisted_verbs() == []
    names = {name for name, _ in all_verbs()}
    assert [name for name in (*RULES, *LEFT_OUT) if name not in names] == []
    assert RULES.keys().isdisjoint(LEFT_OUT)


def test_what_changes_something_needs_more_than_to_view() -> None:
    for one in operations().values():
        if one.rule.effect is not Effect.READS or one.has_dry_run:
            assert one.rule.role.covers(Role.OPERATOR), one.name


def test_each_verb_with_a_dry_run_shows_a_plan() -> None:
    """Else a job of it would end as one that changes nothing."""
    ways = (
        "run_steps(",
        "confirm_and_run(",
        "print_plan(",
        "run_plan(",
        "run_forced(",
        "run_change(",
        "_change",
        "_carry",
    )
    for name, verb in all_verbs():
        if name in RULES and operation_of(name).has_dry_run:
            assert any(way in inspect.getsource(verb) for way in ways), name


def test_no_file_no_address_and_no_secret_can_be_given() -> None:
    """What only the settings may say: paths, environment names, cluster addresses, TLS, SASL, commands."""
    forbidden = ("file", "path", "folder", "env", "bootstrap", "password", "token", "secret", "tls", "sasl", "hook")
    for one in operations().values():
        for parameter in one.parameters:
            words = parameter.name.split("_")
            assert not any(word in forbidden for word in words), f"{one.name} takes {parameter.name}"


def testread_arguments_become_the_words_of_the_command_line_and_back() -> None:
    given = {"topics": ["orders.*", "-odd"], "to": "west", "force": True, "hold_s": 2.5}
    words = operation_of("switch-run").words(given)
    assert words == ["switch", "run", "--to=west", "--force", "--hold-s=2.5", "--", "orders.*", "-odd"]
    assert read_arguments(operation_of("switch run"), words[2:]) == given


def test_each_operation_can_be_written_as_its_own_words() -> None:
    """With a value for each parameter: what the catalogue writes, the verb reads as the same."""
    samples = {ValueKind.TEXT: "x", ValueKind.INTEGER: 7, ValueKind.NUMBER: 7.5, ValueKind.FLAG: True}
    for one in operations().values():
        given = {}
        for parameter in one.parameters:
            value = samples[parameter.kind]
            if parameter.kind is ValueKind.FLAG:
                value = not parameter.default
            elif isinstance(value, int | float):
                value = type(value)(max(parameter.low, min(parameter.high, value)))
            given[parameter.name] = [value] if parameter.is_many else value
        words = one.words(given)
        assert read_arguments(one, words[len(one.name.split()) :]) == given, one.name


@pytest.mark.parametrize(
    ("parameter", "value", "why"),
    [
        (Parameter("n", ValueKind.INTEGER, "", "--n", low=1, high=9), 10, "must be between 1 and 9"),
        (Parameter("n", ValueKind.INTEGER, "", "--n"), True, "must be a whole number"),
        (Parameter("n", ValueKind.INTEGER, "", "--n"), 1.5, "must be a whole number"),
        (Parameter("n", ValueKind.INTEGER, "", "--n"), None, "must be a whole number"),
        (Parameter("n", ValueKind.FLAG, "", "--n"), [], "must be true or false"),
        (Parameter("n", ValueKind.NUMBER, "", "--n"), float("nan"), "must be a number"),
        (Parameter("n", ValueKind.TEXT, "", "--n"), "a\0b", "must be text"),
        (Parameter("n", ValueKind.TEXT, "", "--n"), "\ud800", "must be text"),
        (Parameter("n", ValueKind.TEXT, "", "--n"), ["a"], "must be text"),
        (Parameter("n", ValueKind.FLAG, "", "--n"), "yes", "must be true or false"),
        (Parameter("n", ValueKind.TEXT, "", "--n", is_many=True), ["x"] * 201, "has 201 values, the most is 200"),
    ],
)
def test_values_that_do_not_fit_are_refused(parameter: Parameter, value: object, why: str) -> None:
    with raises(ConfigError, "server.wrong-value", name="n", why=why):
        parameter.read(value)


def test_unknown_and_missing_values_are_refused() -> None:
    with raises(ConfigError, "server.missing-value", name="link"):
        operation_of("link-pause").words({})
    with raises(ConfigError, "server.unknown-value", name="settings"):
        operation_of("link-pause").words({"link": "a->b", "settings": "/etc/passwd"})
    with raises(ConfigError, "server.unknown-value", name="metrics_port"):
        operation_of("prove").words({"metrics_port": 80})


def test_a_whole_number_is_one_however_it_is_written() -> None:
    assert operation_of("incidents").words({"last": 7.0}) == ["incidents", "--last=7"]


def test_a_value_is_never_taken_for_an_option() -> None:
    words = operation_of("link-pause").words({"link": "--settings", "topic": ["--yes"]})
    assert words == ["link", "pause", "--topic=--yes", "--", "--settings"]


def test_what_is_worse_with_an_option() -> None:
    assert operation_of("switch-run").effect({"to": "west"}) is Effect.CHANGES
    assert operation_of("switch-run").effect({"to": "west", "force": True}) is Effect.DESTROYS
    assert operation_of("advise").effect({}) is Effect.READS
    assert operation_of("advise").effect({"fix": True}) is Effect.CHANGES


def test_forms_do_not_speak_the_language_of_the_command_line() -> None:
    known = {parameter.name for one in operations().values() for parameter in one.parameters}
    assert LABELS.keys() <= known
    units = {"s", "ms", "mb"}
    assert {name for name in known if units.intersection(label_of(name).lower().split())} == {"rate_mb_s", "throttle"}
    for one in operations().values():
        assert one.rule.first <= {parameter.name for parameter in one.parameters}, one.name
        for text in (one.summary, *(parameter.help for parameter in one.parameters)):
            assert "--" not in one.in_form(text), (one.name, text)
    switch = operation_of("switch-run")
    (wave,) = (parameter for parameter in switch.parameters if parameter.name == "wave")
    assert switch.in_form(wave.help) == 'Topics per wave, with "All topics".'


def test_the_name_that_is_typed() -> None:
    assert operation_of("switch-run").confirmation({"topics": ["orders"], "to": "west"}) == "west"
    assert operation_of("mirror-delete").confirmation({"topic": "orders"}) == "orders"
    assert operation_of("switch-rollback").confirmation({}) == "switch rollback"


def test_the_command_is_shown_as_a_person_would_write_it() -> None:
    assert command_line(["link", "pause", "--", "a->b"]) == "twinshore link pause 'a->b'"
    assert command_line(["link", "pause", "--", "--odd"]) == "twinshore link pause -- --odd"


def test_the_server_is_taken_out_of_a_command_line() -> None:
    assert split_server(["status", "--server", "http://a", "--json"]) == ("http://a", ["status", "--json"])
    assert split_server(["status", "--server=http://a"]) == ("http://a", ["status"])
    assert split_server(["switch", "run", "--", "--server"]) == ("", ["switch", "run", "--", "--server"])
