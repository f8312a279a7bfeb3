"""The files of docker/: no Docker here, so that they are read, and checked against each other."""

import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
STAGES = re.findall(r"^FROM (\S+) AS (\S+)$", DOCKERFILE, re.MULTILINE)


def pins(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return dict(re.findall(r"^([\w.-]+)==(\S+?)(?: ;.*?)?(?: \\)?$", text, re.MULTILINE))


def test_stages_stand_on_each_other():
    names = [name for _, name in STAGES]
    assert len(names) == len(set(names))
    for number, (of, _) in enumerate(STAGES):
        assert of == "${PYTHON_IMAGE}" or of in names[:number]
    for source in re.findall(r"COPY --from=(\S+)", DOCKERFILE):
        assert source in names
    for target in re.findall(r"--target (\S+)", DOCKERFILE):
        assert target in names


def test_every_extra_of_an_image_is_there_and_locked():
    asked = {
        e for found in re.findall(r"\.whl\)\[([\w,]+)\]", DOCKERFILE) for e in found.split(",")
    }
    assert {"analysis", "files", "postgresql", "cmdstan", "large"} == asked
    locked = pins("requirements.lock")
    for extra in asked:
        for text in EXTRAS[extra]:
            one = Requirement(text)
            name = re.sub(r"[-_.]+", "-", one.name).lower()
            assert one.specifier.contains(locked[name]), text


def test_what_is_copied_reaches_the_build():
    kept = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    kept = [line[1:] for line in kept if line.startswith("!")]
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    for name in " ".join(copied).split():
        assert (ROOT / name).exists()
        assert any(fnmatch(name, pattern) for pattern in kept), name
    assert not any("secret" in pattern for pattern in kept)


def test_the_notebooks_lock_keeps_to_the_other():
    other, ours = pins("requirements.lock"), pins("docker/notebook.lock")
    assert "jupyterlab" in ours
    both = set(ours) & set(other)
    assert len(both) > 20
    assert {name: ours[name] for name in both} == {name: other[name] for name in both}


def test_programs_run_without_rights():
    last = dict.fromkeys(name for _, name in STAGES if name in ("embedded", "cmdstan", "notebook"))
    for name in last:
        body = DOCKERFILE.split(f" AS {name}\n")[1].split("\nFROM ")[0]
        assert "USER 10001:10001" in body


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_services_are_shut(name):
    service = COMPOSE["services"][name]
    assert "privileged" not in service
    for port in service.get("ports", ()):
        assert port.startswith("127.0.0.1:")
    for secret in service.get("secrets", ()):
        source = secret if isinstance(secret, str) else secret["source"]
        assert source in COMPOSE["secrets"]
    for volume in service.get("volumes", ()):
        assert "docker.sock" not in volume
    if name == "database":
        assert service["networks"] == ["inside"]
        assert "POSTGRES_PASSWORD" not in service["environment"]
        return
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["build"]["target"] in [stage for _, stage in STAGES]
    assert "/work/data:ro" in service["volumes"][0]


def test_the_cluster_is_on_the_loopback():
    """dpbayes refuses a scheduler elsewhere without TLS."""
    from dpbayes.core.cluster import check_scheduler

    services = COMPOSE["services"]
    for name in ("scheduler", "worker"):
        assert services[name]["network_mode"] == "service:notebook"
        assert "networks" not in services[name]
    (address,) = [word for word in services["worker"]["command"] if word.startswith("tcp:")]
    check_scheduler(address)
    command = services["scheduler"]["command"]
    assert f"tcp://{command[1]}:{command[3]}" == address
    assert COMPOSE["networks"]["inside"]["internal"]


def test_the_table_of_extras_names_each_once():
    text = (ROOT / "docs" / "guides" / "install.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| [^|]+ \| `(\w+)` \|", text, re.MULTILINE)
    assert sorted(named) == sorted(EXTRAS)
