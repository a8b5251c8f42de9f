"""The Helm chart and the manifests made of it, checked by reading them: neither Helm nor a cluster.

`make image-test` renders the chart and reads the result with the types of Kubernetes itself.
"""

from __future__ import annotations

import json
import re
import tomllib
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from aerobee.broker.config import schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[1]
CHART = ROOT / "deploy" / "helm" / "aerobee"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
MANIFESTS = list(
    yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "aerobee.yaml").read_text("utf-8"))
)
PORTS = {"namesrv": 9876, "broker": 10911, "vip": 10909, "grpc": 8081, "metrics": 5557}


def manifest(kind: str, suffix: str = "") -> Any:
    """The one manifest of a kind whose name ends so."""
    (found,) = (
        one
        for one in MANIFESTS
        if one["kind"] == kind and one["metadata"]["name"] == f"aerobee{suffix}"
    )
    return found


def container() -> Any:
    (found,) = manifest("StatefulSet")["spec"]["template"]["spec"]["containers"]
    return found


def leaves(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The dotted names of what a user may set; an empty mapping is free."""
    for name, value in values.items():
        if isinstance(value, dict) and value and path != "resources":
            yield from leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def declared(one: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The dotted names that the schema knows."""
    for name, inner in one["properties"].items():
        if "properties" in inner:
            yield from declared(inner, f"{path}{name}.")
        else:
            yield f"{path}{name}"


def test_every_value_is_in_the_schema_and_the_other_way_round() -> None:
    known = set(declared(json.loads((CHART / "values.schema.json").read_bytes())))
    free = {re.sub(r"^resources\..*", "resources", name) for name in leaves(VALUES)}
    assert known - {"global"} == free


def test_the_templates_use_every_value_and_no_other() -> None:
    text = "".join(path.read_text("utf-8") for path in (CHART / "templates").iterdir())
    used = set(re.findall(r"\.Values\.([A-Za-z.]+[A-Za-z])", text))
    # What stands in `config` is free, and its names are the broker's.
    settings = {name.removeprefix("config.") for name in used if name.startswith("config.")}
    assert {schema.canon(name) for name in settings} <= schema.SCHEMA.keys()
    used = {"config" if name.startswith("config.") else name for name in used}
    names = {re.sub(r"^(resources|service\.nodePorts)\..*", r"\1", one) for one in leaves(VALUES)}
    assert used == names


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert chart["appVersion"] == project["version"]
    assert container()["image"] == f"aerobee:{project['version']}"


def test_one_broker_that_keeps_its_store_and_has_time_to_close_it() -> None:
    spec = manifest("StatefulSet")["spec"]
    assert spec["replicas"] == 1
    (claim,) = spec["volumeClaimTemplates"]
    mounts = {one["name"]: one["mountPath"] for one in container()["volumeMounts"]}
    assert mounts[claim["metadata"]["name"]] == "/data"
    assert spec["template"]["spec"]["terminationGracePeriodSeconds"] == 30
    assert manifest("PodDisruptionBudget")["spec"]["maxUnavailable"] == 0


def test_it_may_do_nothing_that_it_does_not_need() -> None:
    pod = manifest("StatefulSet")["spec"]["template"]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 10_001
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_probes_ask_what_the_broker_answers() -> None:
    paths = {
        name: container()[f"{name}Probe"]["httpGet"]
        for name in ("startup", "liveness", "readiness")
    }
    assert {one["port"] for one in paths.values()} == {"metrics"}
    source = (ROOT / "aerobee" / "cli" / "healthcheck.py").read_text("utf-8")
    for name, probe in (("startup", "startupz"), ("liveness", "livez"), ("readiness", "readyz")):
        assert paths[name]["path"] == f"/{probe}"
        assert f'"{probe}"' in source


def shown(template: str, **truths: bool) -> str:
    """A template with its conditions on values of `metrics` decided, and its lines left as they
    are: Helm is not there.
    """
    lines, open_blocks = [], [True]
    for line in (CHART / "templates" / template).read_text("utf-8").splitlines():
        inner = re.sub(
            r"\{\{ if \.Values\.metrics\.(\w+) \}\}(.*?)\{\{ end \}\}",
            lambda found: found[2] if truths[found[1]] else "",
            line,
        )
        if block := re.match(r"\s*\{\{- (?:if|with|range) (.*) \}\}", inner):
            named = re.fullmatch(r"\.Values\.metrics\.(\w+)", block[1])
            open_blocks.append(truths[named[1]] if named else True)
        elif re.match(r"\s*\{\{- end \}\}", inner):
            open_blocks.pop()
        elif all(open_blocks):
            lines.append(inner)
    return "\n".join(lines)


def test_with_metrics_over_tls_probes_and_prometheus_use_https() -> None:
    for tls in (True, False):
        stateful = shown("statefulset.yaml", tls=tls, tokenSecret=False)
        probes = [line for line in stateful.splitlines() if "httpGet" in line]
        assert [line.endswith(", port: metrics, scheme: HTTPS}") for line in probes] == [tls] * 3
        assert ("AEROBEE_METRICS_TLS_ENABLE" in stateful) == tls
        monitor = shown("servicemonitor.yaml", tls=tls, tokenSecret=False)
        assert ("scheme: https" in monitor, "tlsConfig: {{- toYaml" in monitor) == (tls, tls)
    text = (CHART / "templates" / "servicemonitor.yaml").read_text("utf-8")
    refused = "if and .Values.metrics.tls (not .Values.serviceMonitor.tlsConfig) }}\n{{- fail "
    assert refused in text, "a token is sent to nobody whose certificate is not looked at by chance"


def test_prometheus_sends_the_token_that_the_broker_asks_for() -> None:
    for given in (True, False):
        stateful = shown("statefulset.yaml", tls=False, tokenSecret=given)
        monitor = shown("servicemonitor.yaml", tls=False, tokenSecret=given)
        for text in (stateful, monitor):
            assert ("name: {{ .Values.metrics.tokenSecret }}" in text) == given
            assert ("key: {{ .Values.metrics.tokenKey }}" in text) == given
        assert ("AEROBEE_METRICS_TOKEN" in stateful, "authorization:" in monitor) == (given, given)


def test_the_environment_of_every_template_has_settings_that_exist() -> None:
    text = (CHART / "templates" / "statefulset.yaml").read_text("utf-8")
    for name in re.findall(r"name: AEROBEE_(\w+)", text):
        assert schema.canon(name.lower()) in schema.SCHEMA, name


def test_the_ports_are_those_that_the_broker_opens() -> None:
    ports = {one["name"]: one["containerPort"] for one in container()["ports"]}
    assert ports == PORTS
    inside = {one["name"]: one["port"] for one in manifest("Service", "-headless")["spec"]["ports"]}
    assert inside == PORTS
    outside = {one["name"]: one["port"] for one in manifest("Service")["spec"]["ports"]}
    assert outside == {name: port for name, port in PORTS.items() if name != "metrics"}


def test_the_port_of_the_5_x_clients_is_there_where_it_is_opened() -> None:
    config = yaml.safe_load(manifest("ConfigMap")["data"]["broker.yaml"])
    assert config["grpcPort"] == PORTS["grpc"]
    for name in ("service", "statefulset", "networkpolicy"):
        text = (CHART / "templates" / f"{name}.yaml").read_text("utf-8")
        assert re.search(r"\{\{- (with|if) \.Values\.config\.grpcPort \}\}", text), name


def test_the_checksum_is_that_of_the_configuration() -> None:
    text = manifest("ConfigMap")["data"]["broker.yaml"].strip()
    annotations = manifest("StatefulSet")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["checksum/config"] == sha256(text.encode()).hexdigest()


def test_the_environment_has_settings_that_exist() -> None:
    names = {one["name"].removeprefix("AEROBEE_") for one in container()["env"]}
    assert "ADVERTISED_HOST" in names
    for name in names:
        assert schema.canon(name.lower()) in schema.SCHEMA, name


def test_it_is_open_to_nobody_without_an_account() -> None:
    assert VALUES["insecure"] is False
    assert "AEROBEE_INSECURE" not in {one["name"] for one in container()["env"]}
    given = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "values.yaml").read_text("utf-8"))
    config = yaml.safe_load(manifest("ConfigMap")["data"]["broker.yaml"])
    assert config == given["config"]
    mounts = {one["name"]: one["mountPath"] for one in container()["volumeMounts"]}
    assert (config["aclEnable"], config["aclConfigDir"]) == (True, mounts["secret"])
    volumes = manifest("StatefulSet")["spec"]["template"]["spec"]["volumes"]
    (secret,) = (one["secret"] for one in volumes if one["name"] == "secret")
    assert secret["secretName"] == given["secret"]


def test_the_chart_refuses_to_render_a_broker_that_is_open_by_default() -> None:
    text = (CHART / "templates" / "statefulset.yaml").read_text("utf-8")
    given = "(or .Values.insecure .Values.secret .Values.config.authenticationEnabled)"
    assert text.startswith(f"{{{{- if not {given} }}}}\n{{{{- fail ")


def test_the_chart_refuses_settings_that_its_ports_and_probes_would_not_follow() -> None:
    names = json.loads((CHART / "values.schema.json").read_bytes())["properties"]["config"][
        "propertyNames"
    ]
    refused = set(names["not"]["enum"])
    assert refused - {"auth", "broker", "namesrv", "remoting", "store", "tls"} <= {
        one.name for one in schema.SCHEMA.values()
    }
    text = (CHART / "templates" / "statefulset.yaml").read_text("utf-8")
    own = {schema.canon(name.lower()) for name in re.findall(r"name: AEROBEE_(\w+)", text)}
    # A slave is given the name of its master there, and the template reads it, as it does other
    # name servers. In a group the template refuses the rest.
    assert own - {"brokername", "namesrvaddr", "brokerid", "failovermembers"} <= {
        schema.canon(name) for name in refused
    }
    assert '{{- range list "brokerId" "brokerRole" "failoverMembers" }}' in text
    assert "{{- if not .Values.config.namesrvAddr }}\n            - name: AEROBEE_NAMESRV" in text
    # Templates look for `grpcPort`: in another spelling it would be open, and published nowhere.
    for name, whole in (("grpcPort", True), ("grpc_port", False), ("grpc-port", False)):
        assert bool(re.search(names["pattern"], name)) == whole, name


def test_prometheus_knows_a_broker_by_the_name_that_the_alerts_ask_for() -> None:
    monitor = (CHART / "templates" / "servicemonitor.yaml").read_text("utf-8")
    alerts = (ROOT / "conf" / "prometheus" / "alerts.yml").read_text("utf-8")
    (job,) = set(re.findall(r'job="(\w+)"', alerts))
    assert f"- targetLabel: job\n          replacement: {job}\n" in monitor


def test_only_pods_of_the_namespace_reach_it() -> None:
    rules = manifest("NetworkPolicy")["spec"]["ingress"]
    assert [rule["from"] for rule in rules] == [[{"podSelector": {}}]] * 2
    assert {port["port"] for rule in rules for port in rule["ports"]} == set(PORTS)
