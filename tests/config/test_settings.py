"""Settings as an operator writes them: right ones become values, wrong ones are all named with their place."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from scripts.pages import SETTINGS_EXAMPLE, render_settings_page
from testkit.errors import raises
from twinshore.config.errors import ConfigError
from twinshore.config.model import Cluster, Link, SaslMechanism, Secret, Security
from twinshore.config.sections.delay import DelaySettings
from twinshore.config.sections.links import unmatched_outputs
from twinshore.config.sections.mirror import MirrorSettings, SparkSettings
from twinshore.config.sections.proof import ProofSettings
from twinshore.config.sections.safety import SafetySettings
from twinshore.config.sections.store import StoreSettings
from twinshore.config.settings import Settings, load_settings, parse_settings

PAGE = Path(__file__).parents[2] / "docs" / "settings.md"

TWO = """
[clusters.east]
bootstrap = ["127.0.0.1:9092"]
[clusters.west]
bootstrap = ["127.0.0.1:9192"]
"""


def parse(text: str, **env: str) -> Settings:
    return parse_settings(text, name="mirror.toml", env=env)


def refusal(text: str, **env: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, **env)
    assert caught.value.hint
    return caught.value.message


def test_nothing_set_gives_the_defaults() -> None:
    settings = parse("")
    assert (settings.store, settings.clusters, settings.links) == (StoreSettings("sqlite:///twinshore.db"), {}, ())
    assert (settings.mirror, settings.delay, settings.proof) == (MirrorSettings(), DelaySettings(), ProofSettings())
    assert settings.safety == SafetySettings()


def test_the_example_of_the_docs_becomes_values() -> None:
    settings = parse(SETTINGS_EXAMPLE)
    security = Security(
        tls=True,
        ca_file="/etc/twinshore/west-ca.pem",
        sasl=SaslMechanism.SCRAM_SHA_512,
        username="twinshore",
        password=Secret(env="WEST_PASSWORD"),
    )
    assert settings.cluster("east") == Cluster("east", ("127.0.0.1:9092",), site="eu-1")
    assert settings.cluster("west") == Cluster("west", ("127.0.0.1:9192",), security)
    link = Link("east", "west", ("orders.*",), ("__.*",), 0, (("min.insync.replicas", "2"),))
    assert settings.links == (link,)
    assert settings.link("east->west") == link
    assert settings.mirror == MirrorSettings(spark=SparkSettings("local", (("spark.driver.memory", "2g"),)))


def test_the_page_of_settings_is_the_one_in_docs() -> None:
    assert PAGE.read_text(encoding="utf-8") == render_settings_page()


def test_settings_travel_to_the_executors() -> None:
    settings = parse(SETTINGS_EXAMPLE)
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_dotted_names_need_no_quotes() -> None:
    text = (
        TWO + '[links."east->west"]\ntopic_settings.min.insync.replicas = 2\n[mirror.spark]\nspark.ui.enabled = false'
    )
    settings = parse(text)
    assert settings.links[0].topic_settings == (("min.insync.replicas", "2"),)
    assert settings.mirror.spark.conf == (("spark.ui.enabled", "false"),)


def test_numbers_may_be_whole_where_a_fraction_is_allowed() -> None:
    task_run_s = parse("[mirror]\ntask_run_s = 3").mirror.task_run_s
    assert (task_run_s, type(task_run_s)) == (3.0, float)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[cluster.east]", "[cluster] unknown; did you mean clusters?"),
        ('[clusters.east]\nbootstap = ["a:1"]', "[clusters.east] bootstap: unknown; did you mean bootstrap?"),
        ("[clusters.east]", "[clusters.east] bootstrap: is required"),
        ("[clusters.east]\nbootstrap = []", "[clusters.east] bootstrap: needs at least one address host:port"),
        ('[clusters.east]\nbootstrap = "a:1"', "[clusters.east] bootstrap: must be a list like [\"...\"], not 'a:1'"),
        ('[clusters.east]\nbootstrap = ["a"]', "bootstrap: 'a' is not host:port; did you mean a:9092?"),
        (
            '[clusters.east]\nbootstrap = ["http://a:1/"]',
            "bootstrap: 'http://a:1/' is not host:port; did you mean a:1?",
        ),
        ('[clusters.east]\nbootstrap = ["a:65536"]', "bootstrap: 'a:65536' has no such port"),
        ('[clusters.east]\nbootstrap = ["a:0"]', "bootstrap: 'a:0' has no such port"),
        ('[clusters."ea st"]\nbootstrap = ["a:1"]', "'ea st' is not a cluster's name"),
        ("[mirror]\ntasks_per_link = 1.5", "[mirror] tasks_per_link: must be a whole number, not 1.5"),
        ("[mirror]\ntasks_per_link = true", "[mirror] tasks_per_link: must be a whole number, not True"),
        ('[mirror]\ntask_run_s = "1"', "[mirror] task_run_s: must be a number, not '1'"),
        ("[mirror]\ntask_run_s = nan", "[mirror] task_run_s: must be a finite number, not nan"),
        ("[mirror]\nfetch_mb = 0", "[mirror] fetch_mb: is 0, the least is 1"),
        ("[mirror]\nlease_s = 1e9", "[mirror] lease_s: is 1000000000.0, the most is 120"),
        ("[mirror]\nlease_s = 2\nprogress_s = 2", "[mirror] progress_s: is 2, must be a third of lease_s (2) at most"),
        ("mirror = 1", "[mirror] must be a section with keys, not 1"),
        ("clusters = 1", "[clusters] must hold one section per cluster"),
        ('[mirror.spark]\nmastr = "local"', "[mirror.spark] mastr: unknown; did you mean master?"),
        ('[mirror.spark]\nmaster = "lokal"', "[mirror.spark] master: 'lokal' is not a Spark master"),
        ("[mirror.spark]\nspark.speculation = true", "spark.speculation: not here, two runs of one task"),
        ('[store]\nurl = "postgres://h/d"', "[store] url: no such kind of store 'postgres'; did you mean postgresql?"),
        ('[store]\nurl = "postgresql://u:hush@h/d"', "[store] url: a secret never stands in the settings"),
        ('[store]\nurl = "postgresql://h/d?x=1&Password=hush"', "[store] url: a secret never stands in the settings"),
        ('[store]\nurl = "postgresql://u@h?sslpassword=hush"', "[store] url: a secret never stands in the settings"),
        ('[store]\nurl = "mysql://u@h/d?passwd=hush"', "[store] url: a secret never stands in the settings"),
        ('[store]\nurl = "postgresql://u:hush@h:${PORT}/d"', "[store] url: is none; write sqlite:///file or"),
        ('[store]\nurl = "postgresql://u@h:/d"', "[store] url: is none; write sqlite:///file or"),
        ('[store]\nurl = "postgresql://u@h:1#hush"', "[store] url: is none; write sqlite:///file or"),
        ('[store]\nurl = "postgresql://[bad/d"', "[store] url: is none; write sqlite:///file or"),
        ('[store]\npassword = "hush"', "[store] password: a secret never stands in the settings; use password_env"),
        ('[store]\npassword_env = "A"\npassword_file = "b"', "password_env and password_file: one or the other"),
    ],
)
def test_each_wrong_setting_is_named_with_its_place(text: str, sentence: str) -> None:
    message = refusal(text)
    assert message.startswith("mirror.toml: ")
    assert sentence in message
    assert "hush" not in message


def test_a_proof_is_not_asked_for_what_its_budget_cannot_do() -> None:
    assert "read_again_h = 24 cannot be kept with reread_mb_s = 0" in refusal(
        "[proof]\nread_again_h = 24\nreread_mb_s = 0"
    )
    assert "reread_mb_s = 5 is a part of throttle_mb_s = 5" in refusal("[proof]\nthrottle_mb_s = 5\nreread_mb_s = 5")
    assert parse("[proof]\nthrottle_mb_s = 5\nread_again_h = 24").proof.read_again_h == 24


def test_every_kind_of_what_is_wrong_is_said_at_once() -> None:
    message = refusal(
        """
[stor]
[clusters.east]
bootstrap = ["a"]
sitee = "x"
[clusters.east.security]
tls = "yes"
ca_file = "x"
sasl = "SCRAM"
[clusters.west]
bootstrap = "b:1"
[links."east->wets"]
topics = ["("]
exclude = "x"
namin = "same"
mode = "maped"
[mirror]
tasks_per_link = "two"
lease_s = 2
progress_s = 3
[delay]
blind_s = "x"
windows = "sprk"
"""
    )
    head, *lines = message.splitlines()
    assert head == "mirror.toml: 15 settings are wrong"
    said = {line.split(":")[0].strip() for line in lines}
    unknown = {"[stor] unknown; did you mean store?", "[clusters.east] sitee", '[links."east->wets"] namin'}
    kinds = {"[clusters.east.security] tls", "[clusters.west] bootstrap", '[links."east->wets"] exclude'}
    kinds |= {"[mirror] tasks_per_link", "[delay] blind_s"}
    meanings = {"[clusters.east] bootstrap", "[clusters.east.security] sasl", '[links."east->wets"] topics'}
    meanings |= {'[links."east->wets"] mode', "[mirror] progress_s", "[delay] windows"}
    missing = {line.strip() for line in lines if "no cluster 'wets'" in line}
    assert {part.split("?")[0] for part in said} >= {part.split("?")[0] for part in unknown | kinds | meanings}
    assert missing == {"[links.\"east->wets\"] no cluster 'wets'; did you mean west?"}


def test_what_a_key_that_cannot_be_read_would_mean_is_not_guessed() -> None:
    security = '[clusters.east.security]\ntls = "yes"\nca_file = "x"'
    message = refusal(f'[clusters.east]\nbootstrap = ["a:1"]\n{security}')
    assert message == "mirror.toml: [clusters.east.security] tls: must be true or false, not 'yes'"
    assert "needs at least one" not in refusal('[clusters.east]\nbootstrap = "a:1"')


@pytest.mark.parametrize(
    ("name", "rest", "sentence"),
    [
        ("east-west", "", 'is not a link\'s name: write [links."source->target"]; did you mean east->west?'),
        ("east -> west", "", "did you mean east->west?"),
        ("east->wst", "", "no cluster 'wst'; did you mean west?"),
        ("east->east", "", "source and target are the same cluster 'east'"),
        ("east->west", "topics = ['(']", "topics: '(' is not a regular expression: missing ), unterminated subpattern"),
        ("east->west", "exclude = ['a{2,1}']", "exclude: 'a{2,1}' is not a regular expression"),
        ("east->west", "topics = []", "topics: needs at least one expression"),
        ("east->west", "replication_factor = -1", "replication_factor: is -1, the least is 0"),
        ("east->west", "topic_settings.retention.ms = 1", "topic_settings: retention.ms is Twinshore's own"),
        ("east->west", "topic = ['a']", "topic: unknown; did you mean topics?"),
    ],
)
def test_each_wrong_link_is_named(name: str, rest: str, sentence: str) -> None:
    assert sentence in refusal(f'{TWO}\n[links."{name}"]\n{rest}')


def test_one_address_under_two_names_is_one_cluster() -> None:
    text = TWO.replace("9192", "9092") + '[links."east->west"]'
    assert "the address 127.0.0.1:9092" in refusal(text)


def test_a_link_to_a_cluster_that_is_itself_wrong_is_not_called_unknown() -> None:
    text = TWO.replace("127.0.0.1:9192", "127.0.0.1") + '[links."east->west"]'
    message = refusal(text)
    assert "did you mean 127.0.0.1:9092?" in message
    assert "links" not in message


@pytest.mark.parametrize(
    ("security", "sentence"),
    [
        ('ca_file = "a"', "ca_file: has no effect without tls = true"),
        ('tls = true\ncert_file = "a"', "cert_file and key_file: one needs the other"),
        ('username = "a"', "username: has no effect without sasl"),
        ('sasl = "scram_sha_256"', "sasl: no mechanism 'scram_sha_256'; did you mean SCRAM-SHA-256?"),
        ('sasl = "PLAIN"', "sasl: PLAIN needs username and password_env or password_file"),
        ('sasl = "OAUTHBEARER"', "sasl: OAUTHBEARER needs either token_url or token_file"),
        ('key_password = "hush"', "key_password: a secret never stands in the settings; use key_password_env"),
        ("tls = 1", "tls: must be true or false, not 1"),
    ],
)
def test_security_that_does_not_fit_together(security: str, sentence: str) -> None:
    message = refusal(f"{TWO}\n[clusters.east.security]\n{security}")
    assert f"[clusters.east.security] {sentence}" in message
    assert "hush" not in message


def test_all_that_is_wrong_is_said_at_once() -> None:
    message = refusal('[store]\nurll = "x"\n[mirror]\ntasks_per_link = -1\n[clusters.a]\n[links."a->b"]')
    lines = message.splitlines()
    assert lines[0] == "mirror.toml: 4 settings are wrong"
    assert {line.split("]")[0].strip() for line in lines[1:]} == {"[store", "[mirror", "[clusters.a", '[links."a->b"'}


def test_text_that_is_not_toml_names_the_line() -> None:
    assert "line 2" in refusal("[store]\nurl = x\n")


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with raises(ConfigError, "config.unreadable-settings", cause="No such file or directory"):
        load_settings(tmp_path / "nowhere.toml", {})
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"# caf\xe9")
    with raises(ConfigError, "config.unreadable-settings", cause="it is not UTF-8 text, at byte 5"):
        load_settings(latin, {})
    good = tmp_path / "good.toml"
    good.write_text(SETTINGS_EXAMPLE, encoding="utf-8")
    found, expected = load_settings(good, {}), parse(SETTINGS_EXAMPLE)
    assert (found.clusters, found.links, found.mirror) == (expected.clusters, expected.links, expected.mirror)


def test_a_relative_store_lies_beside_the_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever folder a process is started in, through whatever link the file is found: it is one store."""
    mounted, elsewhere = tmp_path / "mounted", tmp_path / "elsewhere"
    for folder in (mounted / "data", elsewhere):
        folder.mkdir(parents=True)
    real = mounted / "data" / "real.toml"
    real.write_text('[store]\nurl = "sqlite:///kept/store.db?timeout=3"\n')
    (mounted / "mirror.toml").symlink_to(real)
    expected = f"sqlite:///{mounted}/kept/store.db?timeout=3"
    monkeypatch.chdir(mounted)
    assert load_settings(Path("mirror.toml"), {}).store.url == expected
    monkeypatch.chdir(elsewhere)
    around = f"{elsewhere}/../mounted"
    assert load_settings(Path("../mounted/mirror.toml"), {}).store.url == expected.replace(str(mounted), around)
    assert load_settings(mounted / "mirror.toml", {}).store.url == expected
    told = {"TWINSHORE_STORE_URL": "sqlite:///other.db"}
    assert load_settings(mounted / "mirror.toml", told).store.url == f"sqlite:///{mounted}/other.db"
    for whole in ("sqlite:////var/store.db", "sqlite:///:memory:", "mysql://u@h/d", "postgresql:///d"):
        assert load_settings(mounted / "mirror.toml", {"TWINSHORE_STORE_URL": whole}).store.url == whole


def test_the_environment_overrides() -> None:
    settings = parse(
        "[mirror]\ntasks_per_link = 2",
        TWINSHORE_STORE_URL="mysql://u@h/d",
        TWINSHORE_MIRROR_TASKS_PER_LINK="7",
        TWINSHORE_MIRROR_TASK_RUN_S="2.5",
        PATH="x",
    )
    assert (settings.store.url, settings.mirror.tasks_per_link, settings.mirror.task_run_s) == ("mysql://u@h/d", 7, 2.5)


def test_the_environment_is_judged_as_well() -> None:
    message = refusal(
        "", TWINSHORE_MIRROR_TASKS_PER_LNK="1", TWINSHORE_MIRROR_TASKS_PER_LINK="many", TWINSHORE_MIRROR_FETCH_MB="0"
    )
    assert "TWINSHORE_MIRROR_TASKS_PER_LNK: unknown; did you mean TWINSHORE_MIRROR_TASKS_PER_LINK?" in message
    assert "TWINSHORE_MIRROR_TASKS_PER_LINK: 'many' does not fit" in message
    assert "fetch_mb: is 0, the least is 1" in message


def test_what_kubernetes_tells_of_services_is_no_setting() -> None:
    services = {
        "TWINSHORE_MIRROR_SERVICE_HOST": "10.0.0.1",
        "TWINSHORE_MIRROR_SERVICE_PORT": "9464",
        "TWINSHORE_MIRROR_SERVICE_PORT_METRICS": "9464",
        "TWINSHORE_MIRROR_PORT": "tcp://10.0.0.1:9464",
        "TWINSHORE_MIRROR_PORT_9464_TCP": "tcp://10.0.0.1:9464",
        "TWINSHORE_MIRROR_PORT_9464_TCP_PROTO": "tcp",
        "TWINSHORE_MIRROR_PORT_9464_TCP_PORT": "9464",
        "TWINSHORE_MIRROR_PORT_9464_TCP_ADDR": "10.0.0.1",
        "TWINSHORE_MIRROR_HEALTH_PORT": "tcp://10.0.0.2:8080",
        "TWINSHORE_MIRROR_METRICS_PORT": "tcp://10.0.0.4:9464",
        "TWINSHORE_STORE_PORT": "udp://10.0.0.3:5432",
    }
    assert parse("", **services, TWINSHORE_MIRROR_TASKS_PER_LINK="7") == parse("[mirror]\ntasks_per_link = 7")
    assert parse("", TWINSHORE_MIRROR_METRICS_PORT="9464").mirror.metrics_port == 9464
    message = refusal("", **services, TWINSHORE_MIRROR_TASKS_PER_LNK="1", TWINSHORE_DELAY_PORT="9464")
    assert "TWINSHORE_MIRROR_TASKS_PER_LNK: unknown; did you mean TWINSHORE_MIRROR_TASKS_PER_LINK?" in message
    assert "TWINSHORE_DELAY_PORT: unknown" in message
    assert "SERVICE" not in message


def test_a_variable_that_holds_a_secret_is_not_taken_for_a_setting() -> None:
    settings = parse('[store]\npassword_env = "TWINSHORE_STORE_PASSWORD"', TWINSHORE_STORE_PASSWORD="hush")
    assert settings.store.password == Secret(env="TWINSHORE_STORE_PASSWORD")


def test_unknown_names_asked_of_settings_bring_the_nearest() -> None:
    settings = parse(TWO + '[links."east->west"]')
    with raises(ConfigError, "config.unknown-link", link="east->wet", near="; did you mean east->west?"):
        settings.link("east->wet")
    with raises(ConfigError, "config.unknown-cluster", cluster="est"):
        settings.cluster("est")


def test_outputs_say_which_groups_write_where() -> None:
    table = '\n[links."east->west".groups.outputs]\n"billing" = ["invoices"]\n".*-app" = ["{group}-.*", "totals"]\n'
    link = parse_settings(TWO + '[links."east->west"]' + table, name="test", env={}).links[0]
    assert link.groups.outputs == (("billing", ("invoices",)), (".*-app", ("{group}-.*", "totals")))


def test_outputs_that_hold_nothing_back_are_known() -> None:
    rules = (("billing", ("invoices", "ledger.{2,3}", "invoces")), (".*-app", ("{group}-.*", "invoces")))
    told = dict(unmatched_outputs(rules, ["invoices", "ledger.eu", "orders"]))
    assert list(told) == ["invoces", "{group}-.*"]
    assert told["invoces"].endswith("did you mean invoices?")
    assert "{group}-.*" not in dict(unmatched_outputs(rules, ["x-app-totals"]))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('outputs = "invoices"', "outputs: must be a table like"),
        ('outputs = { billing = "invoices" }', "outputs: 'billing': must be a list of expressions"),
        ("outputs = { billing = [] }", "outputs: 'billing': must be a list of expressions"),
        ('outputs = { billing = ["("] }', "outputs: '(' is not a regular expression"),
        ('outputs = { billing = ["{grp}-x"] }', "outputs: '{grp}-x': {grp} stands for nothing; only {group} does"),
        ('outputs = { "{group}" = ["a"] }', "outputs: '{group}': {group} stands for nothing"),
        ('outputs = { "*" = ["a"] }', "outputs: '*' is not a regular expression"),
    ],
)
def test_outputs_that_say_nothing_are_refused(line: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_settings(TWO + f'[links."east->west".groups]\n{line}\n', name="test", env={})
    assert said in str(refused.value)
