"""The executor and the client of a pipeline file."""

from __future__ import annotations

import os

import pytest

from gristmill import LocalExecutor, Pipeline
from gristmill.backends.executors import EXECUTORS, Home, make_executor
from gristmill.cli.main import EXECUTORS as NAMES
from gristmill.cli.main import main
from gristmill.config.load import load
from gristmill.core.client import RayClient, RayClientError
from gristmill.errors import PipelineFileError, PlanError

STAGES = "stages:\n- ScoreFilter: {filter_obj: StopWordsFilter}\n"
UNUSED_ADDRESS = "127.0.0.1:1"
"""An address at which no server answers."""


class OnCluster(LocalExecutor):
    """Runs in this process, but asks for a cluster, and records its address."""

    on_cluster = True

    def __init__(self, config):
        super().__init__(config)
        self.seen = []

    def execute(self, plan, initial_tasks, keep_outputs):
        self.seen.append(os.environ.get("RAY_ADDRESS"))
        return super().execute(plan, initial_tasks, keep_outputs)


@pytest.fixture
def runnable(folder) -> str:
    return "name: p\nimports: [house_stages]\nstages:\n- MakeTexts: {texts: [one]}\n"


@pytest.mark.parametrize("target", ["", "  _target_: gristmill.core.client.RayClient\n",
                                    "  _target_: nemo_curator.core.client.RayClient\n"])  # fmt: skip
def test_the_client_has_the_arguments_of_the_file(target):
    client = load(
        f"ray_client:\n{target}  num_cpus: null\n  num_gpus: 4\n  object_store_memory: 8GB\n{STAGES}"
    ).ray_client
    assert client is not None
    assert (client.num_cpus, client.num_gpus, client.object_store_memory) == (None, 4, "8GB")


def test_the_arguments_of_the_client_are_written_again():
    text = (
        "name: p\nray_client:\n  num_gpus: 4\n  resources: {mill: 1.5}\n"
        "stages:\n- ScoreFilter:\n    filter_obj:\n      StopWordsFilter: {}\n"
    )
    assert Pipeline.from_yaml(text).to_yaml() == text
    empty = Pipeline.from_yaml("ray_client:\n" + STAGES)
    assert empty.ray_client is not None and Pipeline.from_yaml(empty.to_yaml()).ray_client is not None


@pytest.mark.parametrize(
    ("section", "says"),
    [
        ("ray_client: {num_cpu: 4}", "<text>:1: RayClient has no argument 'num_cpu'. Did you mean 'num_cpus'?"),
        ("ray_client: {num_cpus: x}", "<text>:1: RayClient: 'num_cpus' wants a whole number or nothing, not the text"),
        ("ray_client: {ray_port: 80}", "<text>:1: RayClient: ray_port is a port from 1024 to 65535"),
        ("ray_client: 4", "<text>:1: ray_client wants its arguments as a mapping"),
        ("ray_client: {_target_: os.system}", "ray_client is a gristmill.core.client.RayClient, not the text"),
        ("executor: rey", "executor 'rey' is not known. Did you mean 'ray'?"),
    ],
)
def test_an_error_has_its_line(section, says):
    with pytest.raises(PipelineFileError) as caught:
        load(f"{section}\n{STAGES}")
    assert says in str(caught.value)


def test_overrides_reach_the_executor_and_the_client():
    text = f"executor: {{local: {{num_cpus: 2, num_gpus: 1}}}}\n{STAGES}"
    changed = load(text, ["executor.num_cpus=3", "ray_client.num_cpus=5", "1.text_field=body"])
    assert changed.executor is not None and changed.executor.options == {"num_cpus": 3, "num_gpus": 1}
    assert changed.ray_client is not None and changed.ray_client.num_cpus == 5
    assert "text_field: body" in Pipeline.of_file(changed).to_yaml()
    bare = load(STAGES, ["executor.num_cpus=3"]).executor
    assert bare is not None and (bare.name, bare.options) == ("local", {"num_cpus": 3})
    named = load("executor: local\n" + STAGES, ["executor.num_cpus=3"]).executor
    assert named is not None and named.options == {"num_cpus": 3}


def test_an_override_that_does_not_fit_is_an_error():
    with pytest.raises(PipelineFileError, match=r"--set executor.num_cpu=3: LocalExecutor has no option 'num_cpu'"):
        load(STAGES, ["executor.num_cpu=3"])
    with pytest.raises(PipelineFileError, match=r"--set ray_client.num_cpu=3: RayClient has no argument 'num_cpu'"):
        load(STAGES, ["ray_client.num_cpu=3"])


def test_another_executor_does_not_get_the_options_of_the_one_in_the_file(monkeypatch, folder):
    (folder / "house_executor.py").write_text(
        "from gristmill import LocalExecutor\n\n\nclass House(LocalExecutor): ...\n"
    )
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setitem(EXECUTORS, "xenna", Home("house_executor", "House"))
    text = f"executor: {{local: {{num_gpus: 1}}}}\n{STAGES}"
    changed = load(text, ["executor.num_cpus=3"], executor="xenna").executor
    assert changed is not None and (changed.name, changed.options) == ("xenna", {"num_cpus": 3})
    same = load(text, executor="local").executor
    assert same is not None and same.options == {"num_gpus": 1}
    made = Pipeline.of_file(load(text)).make_executor("xenna", num_cpus=4)
    assert type(made).__name__ == "House" and isinstance(made, LocalExecutor)
    assert (made.config.num_cpus, made.config.num_gpus) == (4, None)


def test_an_executor_that_is_not_installed_names_what_to_install(monkeypatch, folder, runnable, capsys):
    monkeypatch.setitem(EXECUTORS, "ray", Home("gristmill.backends.ray", "RayExecutor", "no_such_package", "ray"))
    (folder / "p.yaml").write_text("executor: {ray: {address: auto}}\n" + runnable)
    assert main(["plan", "p.yaml"]) == 0  # reading is not running
    capsys.readouterr()
    assert main(["run", "p.yaml"]) == 1
    assert capsys.readouterr().err == (
        "gristmill: executor 'ray' needs 'no_such_package': pip install 'gristmill[ray]'\n"
    )
    assert main(["run", "p.yaml", "--executor", "local", "--view", "off"]) == 0


def test_an_executor_that_fails_to_import_names_the_extra(monkeypatch, folder):
    (folder / "house_broken.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setitem(EXECUTORS, "xenna", Home("house_broken", "XennaExecutor", "", "xenna"))
    with pytest.raises(PlanError, match=r"executor 'xenna' needs 'no_such_package': pip install 'gristmill\[xenna\]'"):
        make_executor("xenna", {})
    monkeypatch.setitem(EXECUTORS, "xenna", Home("gristmill.backends.nowhere", "XennaExecutor", "", "xenna"))
    with pytest.raises(PlanError, match="executor 'xenna' is not in this version of gristmill"):
        make_executor("xenna", {})


def test_the_command_line_offers_every_executor_of_the_table():
    assert tuple(EXECUTORS) == NAMES


def test_a_client_is_started_for_executors_that_run_on_a_cluster_only(runnable):
    pipeline = Pipeline.from_yaml(f"executor: local\nray_client: {{address: '{UNUSED_ADDRESS}'}}\n" + runnable)
    assert pipeline.run().ok
    with pytest.raises(RayClientError, match="nothing answers there as Ray does"):
        pipeline.run(OnCluster(config={"view": "off"}))


def test_with_a_client_and_no_executor_the_pipeline_runs_on_ray(monkeypatch, runnable):
    monkeypatch.setitem(EXECUTORS, "ray", Home("gristmill.backends.ray", "RayExecutor", "no_such_package", "ray"))
    pipeline = Pipeline.from_yaml("ray_client:\n" + runnable)
    with pytest.raises(PlanError, match="executor 'ray' needs"):
        pipeline.run()


@pytest.mark.timeout(600)  # a busy machine takes a minute to start Ray
def test_the_client_lives_as_long_as_the_run(monkeypatch, runnable):
    pytest.importorskip("ray")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    pipeline = Pipeline.from_yaml("ray_client: {address: local, num_cpus: 1}\n" + runnable)
    executor = OnCluster(config={"view": "off"})
    assert pipeline.run(executor).ok
    (seen,) = executor.seen
    assert seen is not None and seen.startswith("127.0.0.1:")
    client = pipeline.ray_client
    assert isinstance(client, RayClient) and client.at is None and "RAY_ADDRESS" not in os.environ
