"""The manifest says what KubeRay understands, and runs what gristmill does."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import yaml

from gristmill.cli.main import _parse
from gristmill.config.load import load

MANIFEST = Path(__file__).parents[2] / "deploy" / "kuberay" / "rayjob.yaml"

# What KubeRay's API (ray.io/v1) has of fields, as far as a manifest like this one may want them. The API server drops
# unknown fields silently, so a wrong name would show only in what does not happen.
JOB = {
    "entrypoint": str,
    "shutdownAfterJobFinishes": bool,
    "ttlSecondsAfterFinished": int,
    "backoffLimit": int,
    "activeDeadlineSeconds": int,
    "submissionMode": str,
    "rayClusterSpec": dict,
}
CLUSTER = {
    "rayVersion": str,
    "authOptions": dict,
    "enableInTreeAutoscaling": bool,
    "headGroupSpec": dict,
    "workerGroupSpecs": list,
}
HEAD = {"rayStartParams": dict, "template": dict}
WORKERS = HEAD | {"groupName": str, "replicas": int, "minReplicas": int, "maxReplicas": int}


def manifest() -> tuple[dict[str, Any], dict[str, Any]]:
    config, job = yaml.safe_load_all(MANIFEST.read_text())
    return config, job


def check(fields: dict[str, Any], known: dict[str, type], needed: set[str]) -> None:
    assert needed <= set(fields) <= set(known)
    assert {name: type(value) for name, value in fields.items()} == {name: known[name] for name in fields}


def test_the_fields_are_those_of_the_api() -> None:
    _, job = manifest()
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    check(job["spec"], JOB, {"entrypoint", "rayClusterSpec"})
    cluster = job["spec"]["rayClusterSpec"]
    check(cluster, CLUSTER, {"headGroupSpec", "rayVersion"})
    assert cluster["authOptions"] == {"mode": "token"}
    check(cluster["headGroupSpec"], HEAD, set(HEAD))
    for group in cluster["workerGroupSpecs"]:
        check(group, WORKERS, set(WORKERS))
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())


def test_all_pods_have_the_same_image_and_see_the_pipeline() -> None:
    config, job = manifest()
    cluster = job["spec"]["rayClusterSpec"]
    pods = [group["template"]["spec"] for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])]
    assert len({container["image"] for pod in pods for container in pod["containers"]}) == 1
    for pod in pods:
        volumes = {volume["name"]: volume["configMap"]["name"] for volume in pod["volumes"]}
        (mount,) = pod["containers"][0]["volumeMounts"]
        assert volumes[mount["name"]] == config["metadata"]["name"]
        (name,) = config["data"]
        assert f"{mount['mountPath']}/{name}" in job["spec"]["entrypoint"]


def test_the_entrypoint_and_its_pipeline_are_gristmills() -> None:
    config, job = manifest()
    program, *arguments = shlex.split(job["spec"]["entrypoint"])
    args = _parse(arguments)
    assert (program, args.command, args.executor) == ("gristmill", "run", "ray")
    (text,) = config["data"].values()
    assert len(load(text).stages) == 3
