"""The live page of runs on Ray, where the driver shows the whole run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="ray is not installed: pip install 'gristmill[ray]'")

SCRIPT = """
import sys
from pathlib import Path
from tests.dashboard.runs import Control, Number, Sleep
from gristmill.backends.executors import make_executor
from gristmill.pipeline import Pipeline
from gristmill.stages.resources import Resources

folder = Path(sys.argv[2])
control = Control(folder, one=0.05, two=0.05)
stages = [Sleep("one", folder), Sleep("two", folder)]
for stage, cpus in zip(stages, (0.5, 0.25)):  # stages with other resources are not fused
    stage.resources = Resources(cpus=cpus)
options = {"num_cpus": 2, "num_gpus": 0} if sys.argv[1] == "ray" else {}
executor = make_executor(sys.argv[1], {"view": "off", **options})
Pipeline("on-ray", stages=stages).run(executor, [Number(data=n) for n in range(400)], dashboard=True)
print("DONE", flush=True)
"""


@pytest.mark.parametrize("executor", ["ray", "ray_data"])
def test_numbers_change_during_a_run_on_ray_and_its_end_is_shown(executor, tmp_path, visit):
    root = Path(__file__).parents[2]
    (tmp_path / "job.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "job.py"), executor, str(tmp_path)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(root), str(root / "src")]),
            "RAY_TMPDIR": str(tmp_path),
            "RAY_ADDRESS": "",
            "RAY_USAGE_STATS_ENABLED": "0",
        },
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    try:
        url = next(line for line in process.stderr if "watch the run at" in line).rpartition(" ")[2].strip()
        visitor = visit(url)
        visitor.wait_for(lambda: visitor.text(".step[data-step='1']"), "the steps")
        visitor.wait_for(lambda: visitor.items(1) > 0, "items")
        before = visitor.items(1)
        visitor.wait_for(lambda: visitor.items(1) > before, "more items")
        assert visitor.text("#status") == "running"
        visitor.may_lose_server = True
        visitor.wait_for_status("finished")
        assert visitor.items(1) == 400
        assert process.wait(120) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.stderr.close()
