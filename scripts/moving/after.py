"""What a codemod cannot decide: pyproject's lists, and a few lines. `after.py ROOT`."""
import re, sys
from pathlib import Path
root = Path(sys.argv[1])
p = root / "pyproject.toml"; t = p.read_text()
# Each file once.
seen, out = set(), []
for line in t.split("\n"):
    key = line.split("=")[0].strip()
    if key.startswith('"src/') :
        if key in seen: continue
        seen.add(key)
    out.append(line)
t = "\n".join(out)
head, tail = t.split("[tool.importlinter]", 1)
head = head.replace('["twinshore.kafka.protocol.compiled", "twinshore.kafka.protocol.compiled"]', '["twinshore.kafka.protocol.compiled"]')
IO = '''forbidden_modules = [
    "asyncio", "confluent_kafka", "pyspark", "random", "secrets", "selectors", "socket", "sqlalchemy", "ssl",
    "subprocess", "threading", "time",
]
'''
contracts = '''[tool.importlinter]
root_package = "twinshore"
include_external_packages = true

[[tool.importlinter.contracts]]
name = "A package imports only packages before it in ARCHITECTURE's reading order"
type = "layers"
layers = [
    "twinshore.cli",
    "twinshore.lab",
    "twinshore.advisor",
    "twinshore.monitoring",
    "twinshore.proxy",
    "twinshore.switch",
    "twinshore.proof",
    "twinshore.groups",
    "twinshore.replication",
    "twinshore.runtime",
    "twinshore.state",
    "twinshore.client",
    "twinshore.routing",
    "twinshore.kafka",
    "twinshore.config",
]

[[tool.importlinter.contracts]]
name = "The codecs know of no cluster"
type = "layers"
containers = ["twinshore.kafka"]
layers = ["cluster", "protocol"]

[[tool.importlinter.contracts]]
name = "The command line asks operations and shows what comes back: no logic of a verb is in it"
type = "forbidden"
source_modules = ["twinshore.cli"]
forbidden_modules = [
    "twinshore.advisor", "twinshore.groups", "twinshore.kafka", "twinshore.monitoring", "twinshore.proof", "twinshore.proxy",
    "twinshore.replication", "twinshore.routing", "twinshore.state", "twinshore.switch",
    "confluent_kafka", "kio", "pyspark", "random", "selectors", "socket", "sqlalchemy", "subprocess",
]
allow_indirect_imports = true
ignore_imports = [
CLI_IGNORES
]

[[tool.importlinter.contracts]]
name = "No package but the command line knows of a terminal"
type = "forbidden"
source_modules = [
    "twinshore.advisor", "twinshore.client", "twinshore.config", "twinshore.groups", "twinshore.kafka", "twinshore.lab", "twinshore.monitoring",
    "twinshore.proof", "twinshore.proxy", "twinshore.replication", "twinshore.routing", "twinshore.runtime", "twinshore.state", "twinshore.switch",
]
forbidden_modules = ["click", "getpass", "rich", "typer"]

[[tool.importlinter.contracts]]
name = "Who shows, proves, watches or follows what links carry needs no controller of a mirror"
type = "forbidden"
source_modules = ["twinshore.advisor", "twinshore.groups", "twinshore.monitoring", "twinshore.proof", "twinshore.proxy"]
forbidden_modules = ["twinshore.replication.controller", "twinshore.replication.main", "twinshore.replication.task_pool", "twinshore.replication.recorder"]
allow_indirect_imports = true

[[tool.importlinter.contracts]]
name = "What is pure touches no socket, no Spark, no SQL, no clock, no chance, by any way"
type = "forbidden"
source_modules = [
STRICT
]
''' + IO + '''
[[tool.importlinter.contracts]]
name = "A core decides: it asks no clock, chance, thread, socket, cluster or store"
type = "forbidden"
source_modules = ["twinshore.**.core", "twinshore.lab.broker_settings"]
forbidden_modules = [
    "asyncio", "confluent_kafka", "pyspark", "random", "secrets", "selectors", "socket", "sqlalchemy", "ssl",
    "subprocess", "threading", "time", "twinshore.kafka.cluster", "twinshore.kafka.connection", "twinshore.state.database",
    "twinshore.state.store",
]
allow_indirect_imports = true
# Chance is an argument there: it names its type.
ignore_imports = ["twinshore.proof.core.planning -> random"]

[[tool.importlinter.contracts]]
name = "What the client side is made of needs no Spark, no numba, no numpy, no store and no librdkafka"
type = "forbidden"
source_modules = ["twinshore.config", "twinshore.kafka", "twinshore.routing"]
forbidden_modules = [
    "confluent_kafka", "llvmlite", "numba", "numpy", "prometheus_client", "psutil", "pyarrow", "pyspark", "sqlalchemy",
]
# Joining is the mirror's: nothing of the client side imports it.
ignore_imports = [
    "twinshore.kafka.protocol.compiled -> llvmlite", "twinshore.kafka.protocol.compiled -> numba", "twinshore.kafka.protocol.compiled -> numpy",
    "twinshore.kafka.protocol.batch_join -> numpy", "twinshore.kafka.log_reader -> numpy",
]

[[tool.importlinter.contracts]]
name = "A client library that follows its topics brings no Spark, no store and no server of ours"
type = "forbidden"
source_modules = ["twinshore.client"]
forbidden_modules = ["llvmlite", "numba", "numpy", "prometheus_client", "psutil", "pyarrow", "pyspark", "sqlalchemy", "twinshore.state"]
ignore_imports = [
    "twinshore.kafka.protocol.compiled -> llvmlite", "twinshore.kafka.protocol.compiled -> numba", "twinshore.kafka.protocol.compiled -> numpy",
    "twinshore.kafka.protocol.batch_join -> numpy",
]
'''
STRICT = '''    "twinshore.config", "twinshore.kafka.protocol", "twinshore.routing.core", "twinshore.advisor.core",
    "twinshore.groups.core.sync_state", "twinshore.groups.core.commit_rules", "twinshore.monitoring.core.partition_lag",
    "twinshore.proof.core.compiled", "twinshore.proof.core.keys", "twinshore.proof.core.model", "twinshore.proof.core.record_rows",
    "twinshore.replication.core.coordinator", "twinshore.replication.core.model", "twinshore.replication.core.shares",
    "twinshore.replication.core.claim_records", "twinshore.replication.task.core",
    "twinshore.state.core.lease_watch", "twinshore.state.core.progress_rules", "twinshore.state.core.values",'''
ignores = re.search(r"ignore_imports = \[\n(.*?)\n\]", tail, re.S).group(1).split("\n")
once = []
for line in ignores:
    if line not in once: once.append(line)
once += [
    '    "twinshore.cli.* -> twinshore.*.operations",', '    "twinshore.cli.status -> twinshore.monitoring.link_status",',
    '    "twinshore.cli.status -> twinshore.replication.core.link_config",', '    "twinshore.cli.push -> twinshore.switch.config_service.**",',
]
p.write_text(head + contracts.replace("CLI_IGNORES", "\n".join(once)).replace("STRICT", STRICT))
c = root / "client/pyproject.toml"; t = c.read_text()
packages = ["twinshore"] + sorted(".".join(f.parent.relative_to(root / "src").parts) for n in ("client", "config", "routing", "kafka") for f in (root / "src/twinshore" / n).rglob("__init__.py"))
t = re.sub(r"packages = \[.*\]", "packages = [" + ", ".join(f'"{x}"' for x in packages) + "]", t)
c.write_text(t)
def sub(path, old, new):
    f = root / path; x = f.read_text(); assert old in x, (path, old); f.write_text(x.replace(old, new))
sub("src/twinshore/lab/watermarks.py", "from confluent_kafka.admin import AdminClient, OffsetSpec", "from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]")
