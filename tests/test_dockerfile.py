"""The container files, checked by reading them: no engine is needed, and none is trusted."""

from __future__ import annotations

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from aerobee.broker.config import schema

ROOT = Path(__file__).parents[1]
PORTS = {9876, 10911, 10909, 8081, 5557}


class Step(NamedTuple):
    stage: int
    word: str
    rest: str


def read_steps() -> list[Step]:
    """The instructions, continuation lines joined, comments left out."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    steps: list[Step] = []
    stage = -1
    for line in filter(str.strip, joined.splitlines()):
        word, _, rest = line.partition(" ")
        stage += word == "FROM"
        steps.append(Step(stage, word, rest.strip()))
    return steps


STEPS = read_steps()
LAST = [step for step in STEPS if step.stage == STEPS[-1].stage]


def last(word: str) -> str:
    """The one instruction of that name in the image itself."""
    (found,) = (step.rest for step in LAST if step.word == word)
    return found


def environment() -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S+)", last("ENV")))


def compose() -> dict[str, Any]:
    loaded = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def service(name: str = "aerobee") -> dict[str, Any]:
    found = compose()["services"][name]
    assert isinstance(found, dict)
    return found


def folders(name: str) -> dict[str, str]:
    """The mounts of a service: what of this machine or which volume, by its place inside."""
    return {one.split(":")[1]: one.split(":")[0] for one in service(name)["volumes"]}


def test_every_instruction_is_one_that_we_know() -> None:
    known = {"FROM", "WORKDIR", "ARG", "COPY", "RUN", "LABEL", "ENV", "USER", "EXPOSE"}
    assert {step.word for step in STEPS} <= known | {"HEALTHCHECK", "ENTRYPOINT", "CMD"}


def test_base_images_name_a_python_that_we_support() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest = int(project["requires-python"].rpartition(".")[2])
    bases = {step.rest.split()[0] for step in STEPS if step.word == "FROM"}
    assert len(bases) == 1, "a venv moves only between images of the same Python"
    version = re.fullmatch(r"python:3\.(\d+)-slim", bases.pop())
    assert version is not None
    assert int(version[1]) >= oldest


def test_it_does_not_run_as_root_and_by_number_so_that_kubernetes_can_see_it() -> None:
    assert last("USER") == "10001"


def test_the_data_directory_is_made_before_the_user_is_dropped_and_belongs_to_it() -> None:
    words = [step.word for step in LAST]
    (made,) = (step for step in LAST if step.word == "RUN" and "/data" in step.rest)
    assert LAST.index(made) < words.index("USER")
    assert "--owner=10001" in made.rest
    assert not any("chmod 777" in step.rest or "0777" in step.rest for step in STEPS)


def test_pid_1_is_the_broker_itself_and_gets_the_signals() -> None:
    assert json.loads(last("ENTRYPOINT")) == ["aerobee"]
    assert json.loads(last("CMD")) == ["broker", "run"]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert "aerobee" in project["scripts"]


def test_the_environment_says_that_it_is_the_image() -> None:
    found = environment()
    assert found["AEROBEE_DATA"] == "/data"
    assert found["AEROBEE_BIND_ADDRESS"] == "0.0.0.0"
    assert found["AEROBEE_IMAGE"] == "1"
    assert "AEROBEE_INSECURE" not in found, "whoever runs the image decides that"
    assert not [name for name in found if re.search("PASSWORD|SECRET|TOKEN", name)]


def test_the_health_check_is_a_command_that_exists() -> None:
    options, _, command = last("HEALTHCHECK").partition("CMD ")
    assert "--start-period" in options
    program, name, *_ = json.loads(command)
    assert program == "aerobee"
    assert (ROOT / f"aerobee/cli/{name}.py").is_file()


def test_the_ports_are_those_that_the_broker_opens() -> None:
    assert {int(port) for port in last("EXPOSE").split()} == PORTS


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps `path` from the build; the last rule that matches decides."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    verdict = False
    for rule in (line.strip() for line in lines if line.strip() and line[0] != "#"):
        pattern = rule.removeprefix("!").removeprefix("**/")
        parts = path.split("/")
        below = ("/".join(parts[:n]) for n in range(1, len(parts) + 1))
        if any(fnmatch(part, pattern) for part in (*parts, *below)):
            verdict = not rule.startswith("!")
    return verdict


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    copies = [s.rest.split() for s in STEPS if s.word == "COPY" and "--from" not in s.rest]
    sources = [source for copy in copies for source in copy[:-1]]
    assert [source for source in sources if not (ROOT / source).exists()] == []
    assert [source for source in sources if ignored(source)] == []


def test_every_package_of_the_wheel_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = " ".join(step.rest for step in STEPS if step.word == "COPY").split()
    assert set(packages) <= set(copied)
    assert project["project"]["readme"] in copied


@pytest.mark.parametrize(
    "path",
    [".git", ".venv", "tests", "docs", "data", ".cache", "deploy/helm", "broker/__pycache__"],
)
def test_what_the_build_does_not_need_stays_outside(path: str) -> None:
    assert ignored(path)


def test_compose_says_insecure_with_a_word_on_why() -> None:
    assert service()["environment"]["AEROBEE_INSECURE"] == "true"
    lines = (ROOT / "compose.yaml").read_text(encoding="utf-8").splitlines()
    (place,) = (n for n, line in enumerate(lines) if "AEROBEE_INSECURE" in line)
    assert lines[place - 1].lstrip().startswith("#")


def test_compose_publishes_all_ports_and_on_this_machine_only() -> None:
    published = [re.fullmatch(r"127\.0\.0\.1:(\d+):(\d+)", port) for port in service()["ports"]]
    assert all(port is not None and port[1] == port[2] for port in published)
    assert {int(port[2]) for port in published if port} == PORTS


def test_compose_opens_the_port_of_the_5_x_clients_that_it_publishes() -> None:
    assert service()["environment"]["AEROBEE_GRPC_PORT"] in PORTS
    assert "grpcPort is 8081" in (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_compose_keeps_the_data_and_gives_the_stop_time() -> None:
    (volume,) = service()["volumes"]
    name, _, target = volume.partition(":")
    assert name in compose()["volumes"]
    assert target == environment()["AEROBEE_DATA"]
    assert service()["stop_grace_period"] == "30s"


def test_compose_takes_away_what_a_broker_does_not_need() -> None:
    assert service()["read_only"] is True
    assert service()["cap_drop"] == ["ALL"]
    assert service()["security_opt"] == ["no-new-privileges:true"]
    assert "user" not in service()


MONITORING = ("prometheus", "grafana")


def test_monitoring_is_asked_for_by_its_profile() -> None:
    assert "profiles" not in service()
    assert {*compose()["services"]} == {"aerobee", *MONITORING}
    for name in MONITORING:
        assert service(name)["profiles"] == ["monitoring"]
        image, _, tag = service(name)["image"].partition(":")
        assert re.fullmatch(r"v?\d+\.\d+\.\d+", tag), image
        assert all(port.startswith("127.0.0.1:") for port in service(name)["ports"])


def test_every_volume_is_declared_and_every_mounted_file_is_here() -> None:
    used = {source for name in compose()["services"] for source in folders(name).values()}
    assert {one for one in used if not one.startswith("./")} == set(compose()["volumes"])
    assert [one for one in used if one.startswith("./") and not (ROOT / one).exists()] == []


def test_prometheus_asks_the_broker_of_the_file_and_has_our_alerts() -> None:
    mounted = {place: ROOT / source for place, source in folders("prometheus").items()}
    (option,) = (o for o in service("prometheus")["command"] if o.startswith("--config.file="))
    place, _, name = option.partition("=")[2].rpartition("/")
    config = yaml.safe_load((mounted[place] / name).read_text("utf-8"))
    alone = yaml.safe_load((ROOT / "conf/prometheus/prometheus.yml").read_text("utf-8"))
    (scrape,) = config["scrape_configs"]
    assert scrape.pop("static_configs") == [{"targets": ["aerobee:5557"]}]
    (other,) = alone["scrape_configs"]
    del other["static_configs"]
    assert config == alone
    assert all((mounted[place] / rules).is_file() for rules in config["rule_files"])


def test_grafana_finds_prometheus_and_our_dashboards_and_has_no_default_password() -> None:
    mounted = {place: ROOT / source for place, source in folders("grafana").items()}
    provisioning = mounted["/etc/grafana/provisioning"]
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text("utf-8"))[
        "datasources"
    ]
    host, _, port = source["url"].removeprefix("http://").partition(":")
    assert source["type"] == "prometheus"
    assert service(host)["ports"][0].endswith(f":{port}")
    (provider,) = yaml.safe_load((provisioning / "dashboards/aerobee.yml").read_text("utf-8"))[
        "providers"
    ]
    assert list(mounted[provider["options"]["path"]].glob("aerobee-*.json"))
    settings = service("grafana")["environment"]
    home = Path(settings["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
    assert (mounted[str(home.parent)] / home.name).is_file()
    assert settings["GF_SECURITY_DISABLE_INITIAL_ADMIN_CREATION"] == "true"


def test_the_variables_that_compose_names_are_settings_of_the_broker() -> None:
    text = (ROOT / "compose.yaml").read_text("utf-8")
    names = set(re.findall(r"AEROBEE_(\w+):", text))
    assert {"ADVERTISED_HOST", "ADVERTISED_PORT", "TLS_SERVER_MODE"} <= names
    assert [name for name in names if schema.canon(name.lower()) not in schema.SCHEMA] == []
