"""`twinshore advise` as it is typed: what it shows, and the code that it ends with."""

from __future__ import annotations

import json
from pathlib import Path

from typer.testing import CliRunner

from tests.scenarios.mirror_rig import settings_text
from twinshore.advisor.operations.advice_on_cluster import RULES
from twinshore.cli.app import app, register_verbs
from twinshore.config.errors import ConfigError
from twinshore.lab.cluster import LabCluster


def test_it_shows_what_it_found_and_ends_by_that(east: LabCluster, unique_topic: str, tmp_path: Path) -> None:
    east.create_topic(unique_topic)
    file, policy = tmp_path / "twinshore.toml", tmp_path / "policy.toml"
    file.write_text(settings_text(tmp_path, [east.cluster], {}))
    register_verbs()
    words = ["advise", "--settings", str(file), "--topic", unique_topic, "--apart", "0"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1, done.output
    assert f"  topic {unique_topic}: one replica" in done.output
    values = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert values["exit_code"] == 1
    rules = {one["rule"] for one in values["findings"]}
    policy.write_text("".join(f"[rules.{rule}]\nenabled = false\n" for rule in rules))
    assert CliRunner().invoke(app, [*words, "--policy", str(policy)]).exit_code == 0
    policy.write_text("[rules.none]")
    assert isinstance(CliRunner().invoke(app, [*words, "--policy", str(policy)]).exception, ConfigError)


def test_what_is_safe_is_shown_and_done_with_yes_alone(east: LabCluster, unique_topic: str, tmp_path: Path) -> None:
    east.create_topic(unique_topic, settings={"unclean.leader.election.enable": "true"})
    file, policy, page = tmp_path / "twinshore.toml", tmp_path / "policy.toml", tmp_path / "advice.html"
    file.write_text(settings_text(tmp_path, [east.cluster], {}))
    # Of what this cluster has besides only this counts here.
    off = "".join(f"[rules.{one.name}]\nenabled = false\n" for one in RULES if one.name != "unclean-election")
    policy.write_text(off)
    register_verbs()
    words = ["advise", "--settings", str(file), "--topic", unique_topic, "--policy", str(policy)]
    shown = CliRunner().invoke(app, [*words, "--fix", "--html", str(page)])
    assert shown.exit_code == 1
    assert "unclean.leader.election.enable=false (it was true) would be set" in shown.output
    assert f"<b>topic {unique_topic}</b>" in page.read_text()
    done = CliRunner().invoke(app, [*words, "--fix", "--yes"])
    assert done.exit_code == 0, done.output
    assert "(it was true) is set, and was read back" in done.output
    for wrong in (["--yes"], ["--fix", "--json"]):
        assert isinstance(CliRunner().invoke(app, [*words, *wrong]).exception, ConfigError)
