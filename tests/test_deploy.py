"""The files of deploy/ are what the servers read, and hold the hardening that the documentation promises."""

import configparser
import re
import tomllib
from pathlib import Path

import pytest
import yaml

from shuffledp.collection.analyzer.settings import AnalyzerSettings, read_budgets
from shuffledp.collection.server.settings import read_settings
from shuffledp.collection.shuffler.settings import ShufflerSettings
from shuffledp.errors import ParameterError

DEPLOY = Path(__file__).parents[1] / "deploy"
KINDS = {"shuffler": ShufflerSettings, "analyzer": AnalyzerSettings}
IN_USE = (DEPLOY / "shuffler", DEPLOY / "analyzer")  # somebody's own settings and keys, ignored by git
FILES = sorted(
    path for path in DEPLOY.rglob("*") if path.is_file() and not any(path.is_relative_to(folder) for folder in IN_USE)
)
UNITS = {role: DEPLOY / "systemd" / f"shuffledp-{role}.service" for role in KINDS}
HARDENING = {
    "NoNewPrivileges": "yes",
    "CapabilityBoundingSet": "",
    "ProtectSystem": "strict",
    "ProtectHome": "yes",
    "PrivateTmp": "yes",
    "PrivateDevices": "yes",
    "PrivateUsers": "yes",
    "ProtectProc": "invisible",
    "ProtectClock": "yes",
    "ProtectHostname": "yes",
    "ProtectKernelLogs": "yes",
    "ProtectKernelModules": "yes",
    "ProtectKernelTunables": "yes",
    "ProtectControlGroups": "yes",
    "RestrictAddressFamilies": "AF_INET AF_INET6 AF_UNIX",
    "RestrictNamespaces": "yes",
    "RestrictRealtime": "yes",
    "RestrictSUIDSGID": "yes",
    "LockPersonality": "yes",
    "MemoryDenyWriteExecute": "yes",
    "SystemCallArchitectures": "native",
    "UMask": "0077",
    "LimitCORE": "0",
    "MemorySwapMax": "0",
    "StateDirectoryMode": "0700",
    "KillMode": "mixed",
}


def settings_file(role):
    return DEPLOY / "example" / role / f"{role}.toml"


def settings(role, file=None, environment=None):
    return read_settings(
        KINDS[role], role=role, file=file or settings_file(role), environment=environment or {}, options={}
    )


def unit(role):
    """The directives of a unit; those that may occur several times are lists."""
    found = {}
    for line in UNITS[role].read_text(encoding="utf-8").splitlines():
        if line and line[0] not in "#[":
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))


def environment_of(service, **outside):
    """What compose would put into the environment: names without a value come from outside, or are not set."""
    given = {name: outside.get(name) if value is None else str(value) for name, value in service["environment"].items()}
    assert not any("$" in value for value in given.values() if value)
    return {name: value for name, value in given.items() if value is not None}


@pytest.mark.parametrize("role", KINDS)
def test_example_settings_are_settings(role):
    found = settings(role)
    assert found.host == "127.0.0.1"
    folder = settings_file(role).parent
    assert found.tasks == folder / "tasks"
    assert [path.parent for path in found.authors] == [folder]


def test_the_lines_for_postgres_are_settings_too(tmp_path):
    lines = settings_file("shuffler").read_text(encoding="utf-8").splitlines()
    lines = [line for line in lines if not line.startswith(("store = ", "store_folder = "))]
    lines = [re.sub(r"^# (store|store_dsn_file|enrolment|analyzer_ca)( = )", r"\1\2", line) for line in lines]
    file = tmp_path / "shuffler.toml"
    file.write_text("\n".join(lines), encoding="utf-8")
    found = settings("shuffler", file)
    assert (found.store, found.store_dsn_file, found.store_folder) == ("postgres", tmp_path / "database.dsn", None)
    assert found.enrolment == tmp_path / "enrolment"


@pytest.mark.parametrize("role", KINDS)
def test_a_wrong_example_would_be_noticed(role, tmp_path):
    file = tmp_path / "wrong.toml"
    file.write_text(settings_file(role).read_text(encoding="utf-8").replace("port =", "prot ="), encoding="utf-8")
    with pytest.raises(ParameterError, match="prot"):
        settings(role, file)


def test_budgets():
    budgets = read_budgets(DEPLOY / "example" / "analyzer" / "budgets.toml")
    assert set(budgets) == {"city"}


@pytest.mark.parametrize("role", KINDS)
def test_units_are_hardened(role):
    found = unit(role)
    assert {name: found[name] for name in HARDENING} == {name: [value] for name, value in HARDENING.items()}
    assert found["SystemCallFilter"] == ["@system-service", "~@privileged @resources"]


@pytest.mark.parametrize("role", KINDS)
def test_units_fit_the_example_settings(role):
    found, (other,) = unit(role), set(KINDS) - {role}
    (command,) = found["ExecStart"]
    assert command.endswith(f"shuffledp serve {role} --config /etc/shuffledp/{role}/{role}.toml")
    (folders,) = found["StateDirectory"]
    state = {Path("/var/lib") / each for each in folders.split()}
    read = settings(role)
    assert read.work in state
    assert getattr(read, "store_folder", None) is None or read.store_folder.parent in state
    assert found["RequiresMountsFor"] == [f"/var/lib/shuffledp-{role}"]
    assert read.work.is_relative_to(found["RequiresMountsFor"][0])
    assert found["User"] == found["Group"] == [f"shuffledp-{role}"]
    assert f"u shuffledp-{role} " in (DEPLOY / "systemd" / "shuffledp.sysusers.conf").read_text(encoding="utf-8")
    assert f"-/etc/shuffledp/{other}" in found["InaccessiblePaths"][0]
    assert int(found["TimeoutStopSec"][0]) > read.shutdown_seconds
    assert int(found["LimitNOFILE"][0]) > 2 * read.connections


@pytest.mark.parametrize("role", KINDS)
def test_units_have_their_sections_in_order(role):
    parser = configparser.RawConfigParser(strict=False, allow_no_value=True)
    parser.read(UNITS[role], encoding="utf-8")
    assert parser.sections() == ["Unit", "Service", "Install"]


@pytest.mark.parametrize("name", ["shuffler", "shuffler-2", "analyzer"])
def test_servers_in_containers(name):
    role = name.partition("-")[0]
    service = compose()["services"][name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["ulimits"]["core"] == 0
    assert service["mem_limit"] == service["memswap_limit"]  # no swap
    assert service["command"] == [role, "--config", f"/etc/shuffledp/{role}/{role}.toml"]
    found = settings(role, environment=environment_of(service))
    assert found.host == "0.0.0.0"
    mounts = dict(mount.split(":", 1)[::-1] for mount in service["volumes"])
    assert f"/etc/shuffledp/{role}:ro" in mounts
    assert f"/var/lib/shuffledp-{role}" in mounts
    assert found.work.is_relative_to(f"/var/lib/shuffledp-{role}")
    (port,) = service["ports"]
    assert port.startswith("127.0.0.1:")
    assert port.endswith(f":{found.port}")
    assert f":{found.port}/readyz" in service["healthcheck"]["test"][-1]
    assert int(service["stop_grace_period"].removesuffix("s")) > found.shutdown_seconds


@pytest.mark.parametrize("name", ["shuffler", "shuffler-2"])
def test_the_file_says_where_the_analyzer_is_unless_somebody_says_otherwise(name):
    service = compose()["services"][name]
    told = settings("shuffler").analyzer
    assert settings("shuffler", environment=environment_of(service)).analyzer == told
    trial = {"SHUFFLEDP_SHUFFLER_ANALYZER": "http://analyzer:8081"}
    assert settings("shuffler", environment=environment_of(service, **trial)).analyzer == "http://analyzer:8081"
    assert "SHUFFLEDP_SHUFFLER_ANALYZER=http://analyzer:8081" in (DEPLOY / "compose.yaml").read_text(encoding="utf-8")


def test_compose_is_whole():
    document = compose()
    services = document["services"]
    assert {profile for each in services.values() for profile in each["profiles"]} == {
        "shuffler",
        "analyzer",
        "postgres",
    }
    for service in services.values():
        assert set(service["networks"]) <= set(document["networks"])
        named = {mount.partition(":")[0] for mount in service["volumes"] if not mount.startswith(".")}
        assert named <= set(document["volumes"])
    data = [services[name]["volumes"][1] for name in ("shuffler", "shuffler-2")]
    assert len(set(data)) == 2, "each shuffler needs a work folder of its own"
    assert services["shuffler"]["user"] != services["analyzer"]["user"]
    build = services["shuffler"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).is_file()


def test_the_database_keeps_little_and_logs_no_statement():
    command = compose()["services"]["database"]["command"]
    for option in ("wal_level=minimal", "max_wal_senders=0", "log_statement=none", "log_min_error_statement=panic"):
        assert f"-c {option}" in command
    assert "fsync" not in command


def test_containerfile():
    text = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    users = dict(re.findall(r"(shuffler|analyzer):(\d+)", text))
    services = compose()["services"]
    for role, user in users.items():
        assert services[role]["user"] == f"{user}:{user}"
    assert set(users) == set(KINDS)
    assert re.search(r"^USER [1-9]\d*", text, re.MULTILINE), "not root"
    extras = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = re.search(r"'\.\[([\w,]+)\]'", text)
    assert wanted
    assert set(wanted[1].split(",")) <= set(extras["optional-dependencies"])
    for source in re.findall(r"^COPY (?!--)(.+)$", text, re.MULTILINE):
        *copied, _ = source.split()
        assert all((DEPLOY.parent / each).exists() for each in copied)


def test_only_what_is_installed_gets_into_the_image():
    lines = (DEPLOY / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    copied = re.findall(r"^COPY (?!--)(.+)$", (DEPLOY / "Containerfile").read_text(encoding="utf-8"), re.MULTILINE)
    sources = {each for line in copied for each in line.split()[:-1]}
    assert {rule[1:] for rule in rules if rule.startswith("!")} == sources


@pytest.mark.parametrize("role", KINDS)
def test_proxies_forward_the_interface_and_keep_nothing(role):
    text = (DEPLOY / "nginx" / f"{role}.conf").read_text(encoding="utf-8")
    code = re.sub(r"#.*", "", text)
    assert code.count("{") == code.count("}")
    forwarded = {
        "shuffler": {"/", "~ ^/(v[12]/tasks|v2/series)/", "~ ^/v2/batches/"},
        "analyzer": {"/", "~ ^/v[12]/batches/", "/v1/releases/"},
    }[role]
    assert set(re.findall(r"location (.+) \{", code)) == forwarded
    assert re.search(r"location / \{\s*return 404;", code)
    assert "access_log off;" in code
    assert 'proxy_set_header X-Forwarded-For "";' in code
    assert "$remote_addr" not in code
    assert f"server 127.0.0.1:{settings(role).port};" in code


def test_the_relay_forwards_nothing_of_the_device():
    code = re.sub(r"#.*", "", (DEPLOY / "nginx" / "relay.conf").read_text(encoding="utf-8"))
    assert code.count("{") == code.count("}")
    assert set(re.findall(r"location (.+) \{", code)) == {"/", "= /relay"}
    assert "access_log off;" in code
    assert "proxy_pass_request_headers off;" in code
    assert "$remote_addr" not in code
    assert set(re.findall(r"proxy_set_header \S+ (\$\w+);", code)) == {"$content_length"}


@pytest.mark.parametrize("role", ["shuffler", "relay"])
def test_the_proxies_of_reports_have_no_disk_for_them(role):
    text = (DEPLOY / "nginx" / f"{role}.conf").read_text(encoding="utf-8")
    code, _, batches = text.partition("location ~ ^/v2/batches/")
    assert not batches or "proxy_request_buffering off;" in batches  # chunks are passed on while they arrive
    size = dict(re.findall(r"^\s*(client_max_body_size|client_body_buffer_size) (\w+);", code, re.MULTILINE))
    assert len(set(size.values())) == 1
    assert "proxy_max_temp_file_size 0;" in code
    assert "ssl_session_tickets off;" in code


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_nothing_of_a_machine_and_no_secret(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"(?<![\w.-])/(work|home|root|Users|tmp/\w)", text)
    assert not re.search(r'"private"|BEGIN [A-Z ]*PRIVATE KEY', text)
    assert not re.search(r"^(?:FROM|\s*image:) \S+\.\S+/", text, re.MULTILINE), "no registry host"
    assert path.suffix not in (".key", ".pem", ".dsn", ".password")


def manifests(role):
    """The resources of a cluster, with those of base."""
    folders = [DEPLOY / "kustomize" / name for name in (role, "base")]
    listed = {
        folder / name
        for folder in folders
        for name in yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))["resources"]
    }
    files = {file for folder in folders for file in folder.glob("*.yaml") if file.name != "kustomization.yaml"}
    assert listed - {folders[0] / "../base"} == files
    return [each for file in sorted(files) for each in yaml.safe_load_all(file.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("role", KINDS)
def test_pods_are_hardened_and_have_one_writer(role):
    pods = {each["metadata"]["name"]: each for each in manifests(role) if "template" in each.get("spec", {})}
    assert set(pods) == {"shuffler": {"shuffler-ingest", "shuffler-mixer"}, "analyzer": {"analyzer"}}[role]
    user = {"shuffler": 10001, "analyzer": 10002}[role]
    for name, pod in pods.items():
        spec = pod["spec"]["template"]["spec"]
        assert spec["automountServiceAccountToken"] is False
        assert (spec["securityContext"]["runAsNonRoot"], spec["securityContext"]["runAsUser"]) == (True, user)
        for container in (*spec["initContainers"], *spec["containers"]):
            security = container["securityContext"]
            assert not security["allowPrivilegeEscalation"]
            assert security["readOnlyRootFilesystem"]
            assert security["capabilities"] == {"drop": ["ALL"]}
        mounts = {mount["name"] for container in spec["containers"] for mount in container["volumeMounts"]}
        secrets = {volume["name"] for volume in spec["volumes"] if "secret" in volume}
        assert secrets, "keys come from Secrets"
        assert not mounts & secrets, "whose files are readable for a group: the server has copies"
        if name != "shuffler-ingest":
            assert (pod["kind"], pod["spec"]["replicas"]) == ("StatefulSet", 1)
            (claim,) = pod["spec"]["volumeClaimTemplates"]
            assert claim["spec"]["accessModes"] == ["ReadWriteOncePod"]


def test_pods_that_receive_reports_have_no_key():
    (pod,) = (each for each in manifests("shuffler") if each["kind"] == "Deployment")
    volumes = pod["spec"]["template"]["spec"]["volumes"]
    assert {volume["secret"]["secretName"] for volume in volumes if "secret" in volume} == {"database"}


@pytest.mark.parametrize(("role", "file"), [("shuffler", "ingest"), ("shuffler", "mixer"), ("analyzer", "analyzer")])
def test_settings_of_pods_are_read(role, file):
    read = settings(role, DEPLOY / "kustomize" / role / f"{file}.toml")
    assert getattr(read, "role", "analyzer") == file
    names = {
        Path(entry).name
        for entry in re.findall(r"install -m 0400 (.+?) /run/shuffledp/private/", _commands(role, file))[0].split()
    }
    private = {path.name for path in vars(read).values() if isinstance(path, Path) and "private" in path.parts}
    private |= {path.name for path in getattr(read, "sealing_keys", ())}
    assert names == private


def _commands(role, file):
    return (DEPLOY / "kustomize" / role / f"{file}.yaml").read_text(encoding="utf-8")


def test_settings_in_use_are_not_committed():
    ignored = (DEPLOY / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {f"/{folder.name}/" for folder in IN_USE} <= set(ignored)


def test_every_file_is_described():
    page = (DEPLOY / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?`) \|", page, re.MULTILINE)
    patterns = [each for row in rows for each in re.findall(r"`(.+?)`", row)]
    described = {path for pattern in patterns for path in DEPLOY.glob(pattern)}
    hidden = {DEPLOY / name for name in ("README.md", "Containerfile.dockerignore", ".gitignore")}
    assert set(FILES) - hidden == described


DEVICE_PATHS = ("/v1/tasks/ID", "/v1/tasks/ID/reports", "/v2/tasks/ID", "/v2/tasks/ID/reports", "/v2/series/ID")


def test_the_proxy_of_the_shuffler_forwards_what_devices_ask_for():
    code = re.sub(r"#.*", "", (DEPLOY / "nginx" / "shuffler.conf").read_text(encoding="utf-8"))
    bodies = dict(re.findall(r"location ~ (\S+) \{(.*?)\n    \}", code, re.DOTALL))
    for path in DEVICE_PATHS:
        (body,) = [body for pattern, body in bodies.items() if re.match(pattern, path)]
        assert "proxy_pass" in body
        assert "deny all" not in body
    for path in ("/metrics", "/readyz", "/healthz", "/operator/v1/overview", "/v2/seriesID"):
        assert not any(re.match(pattern, path) for pattern in bodies)
