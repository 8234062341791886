"""All metrics of a run: their names, kinds, labels and meaning. docs/guides/prometheus.md shows this table."""

from __future__ import annotations

from gristmill.metrics.openmetrics import COUNTER, GAUGE, HISTOGRAM, INFO, Metric

COMMON_LABELS = ("run", "pipeline", "phase")
"""Labels of all metrics but those of the run as a whole, which have no ``phase``."""

_METRICS: list[Metric] = []


def _metric(name: str, kind: str, labels: tuple[str, ...], help_text: str) -> Metric:
    _METRICS.append(Metric(name, kind, labels, help_text))
    return _METRICS[-1]


_RUN: tuple[str, ...] = ()
_STEP = ("step",)
_STAGE = ("step", "stage")

# The run
RUN_INFO = _metric("gristmill_run_info", INFO, ("executor", "version"), "The executor and the version of gristmill.")
RUN_STATE = _metric("gristmill_run_state", GAUGE, ("state",), "1 for the state that the run is in, 0 for the others.")
RUN_START = _metric("gristmill_run_start_time_seconds", GAUGE, _RUN, "When the run began, as Unix time.")
RUN_WARNINGS = _metric("gristmill_warnings_total", COUNTER, _RUN, "Warnings that the run has printed.")
ELAPSED = _metric("gristmill_elapsed_seconds", GAUGE, _RUN, "Time since the phase began.")
PROGRESS = _metric("gristmill_progress_ratio", GAUGE, _RUN, "Share of the input that is done.")
SHARE = _metric(
    "gristmill_share_of_optimum_ratio",
    GAUGE,
    _RUN,
    "Throughput of the bottleneck, compared with what the balancer's current plan allows.",
)
FAILURES = _metric("gristmill_quarantined_tasks_total", COUNTER, _RUN, "Tasks, or parts of one, that were given up.")

# Memory
MEMORY = _metric("gristmill_memory_bytes", GAUGE, _RUN, "Memory of all processes of the run.")
MEMORY_LIMIT = _metric("gristmill_memory_limit_bytes", GAUGE, _RUN, "Memory that the run may use.")
WORKER_MEMORY = _metric(
    "gristmill_worker_memory_bytes", GAUGE, _STEP, "Resident memory of the workers that run the step now, added up."
)
WORKER_PEAK = _metric(
    "gristmill_worker_memory_peak_bytes", GAUGE, _STEP, "The most memory that one worker used while it ran the step."
)
BUDGET = _metric("gristmill_budget_bytes", GAUGE, _RUN, "Bytes that tasks in flight may take.")
HELD = _metric("gristmill_budget_held_bytes", GAUGE, _RUN, "Bytes of tasks that wait or run.")
RESERVED = _metric("gristmill_budget_reserved_bytes", GAUGE, _RUN, "Bytes reserved for outputs of running tasks.")

# Input
SOURCE_TASKS = _metric("gristmill_source_tasks_total", COUNTER, _RUN, "Tasks taken from the source.")
SOURCE_EXPECTED = _metric("gristmill_source_expected_tasks", GAUGE, _RUN, "Tasks of the source, if it is known.")
SOURCE_BYTES = _metric("gristmill_source_bytes_total", COUNTER, _RUN, "Bytes of the tasks taken from the source.")
INPUT_DONE = _metric("gristmill_input_done_bytes", GAUGE, _RUN, "Bytes of the input files that are done.")
INPUT_SIZE = _metric("gristmill_input_size_bytes", GAUGE, _RUN, "Bytes of the input files.")
BLOCKS_DONE = _metric("gristmill_input_done_blocks", GAUGE, _RUN, "Blocks of the input that are done.")
BLOCKS = _metric("gristmill_input_blocks", GAUGE, _RUN, "Blocks of the input.")
READ_SO_FAR = _metric("gristmill_input_documents", GAUGE, _RUN, "Documents read, with those of unfinished blocks.")
KEPT_SO_FAR = _metric("gristmill_output_documents", GAUGE, _RUN, "Documents kept, with those of unfinished blocks.")

# Documents, of finished blocks
DOCUMENTS_READ = _metric("gristmill_documents_read_total", COUNTER, _RUN, "Documents read, in finished blocks.")
DOCUMENTS_MADE = _metric("gristmill_documents_made_total", COUNTER, _RUN, "Documents that stages made.")
DOCUMENTS_KEPT = _metric("gristmill_documents_kept_total", COUNTER, _RUN, "Documents kept, in finished blocks.")
DOCUMENTS_MERGED = _metric("gristmill_documents_merged_total", COUNTER, _RUN, "Documents merged into others.")
DOCUMENTS_DROPPED = _metric(
    "gristmill_documents_dropped_total", COUNTER, ("stage", "reason"), "Documents dropped, by stage and reason."
)
DOCUMENTS_ERRORED = _metric(
    "gristmill_documents_errored_total",
    COUNTER,
    ("reason",),
    "Documents not read or not processed, by reason.",
)
DOCUMENTS_FAILED = _metric(
    "gristmill_documents_quarantined_total", COUNTER, _RUN, "Errored documents on which a stage failed."
)
STAGE_COUNTS = _metric("gristmill_stage_counts_total", COUNTER, ("stage", "name"), "Counters of stages, by name.")
BALANCE = _metric(
    "gristmill_ledger_imbalance_documents",
    GAUGE,
    _RUN,
    "Documents without an outcome: read + made - kept - dropped - merged - errored. 0, unless there is a bug.",
)
PROBLEMS = _metric("gristmill_ledger_problem_blocks", GAUGE, _RUN, "Blocks whose counts do not add up.")

# Workers
WORKERS = _metric("gristmill_workers", GAUGE, ("step", "state"), "Workers by step and state.")
WORKERS_PLANNED = _metric("gristmill_workers_planned", GAUGE, _STEP, "Workers that the balancer plans for the step.")
WORKERS_STARTED = _metric("gristmill_workers_started_total", COUNTER, _STEP, "Workers started.")
WORKER_DEATHS = _metric("gristmill_worker_deaths_total", COUNTER, _STEP, "Workers that died and were replaced.")
WORKERS_RECYCLED = _metric("gristmill_workers_recycled_total", COUNTER, _STEP, "Workers replaced because of their age.")
SETUPS = _metric("gristmill_worker_setups_total", COUNTER, _STEP, "Setups of workers that succeeded.")
SETUP_SECONDS = _metric("gristmill_worker_setup_seconds_total", COUNTER, _STEP, "Time of the setups that succeeded.")

# Steps
TASKS_DONE = _metric("gristmill_step_tasks_done_total", COUNTER, _STEP, "Tasks that the step has finished.")
TASKS_FAILED = _metric("gristmill_step_tasks_failed_total", COUNTER, _STEP, "Tasks that the step has given up.")
ITEMS_DONE = _metric("gristmill_step_items_done_total", COUNTER, _STEP, "Items (documents) that are done.")
UNIT_SECONDS = _metric(
    "gristmill_step_unit_seconds", HISTOGRAM, _STEP, "Latency: how long a worker took for a batch of tasks."
)
BUSY_SECONDS = _metric("gristmill_step_busy_seconds_total", COUNTER, _STEP, "Time that workers spent on finished work.")
RETRIES = _metric(
    "gristmill_step_retries_total", COUNTER, _STEP, "Tasks queued again because a stage or a worker failed."
)
QUEUE_TASKS = _metric("gristmill_step_queue_tasks", GAUGE, _STEP, "Tasks that wait for a worker.")
QUEUE_BYTES = _metric("gristmill_step_queue_bytes", GAUGE, _STEP, "Bytes of tasks that wait for a worker.")
QUEUE_SECONDS = _metric("gristmill_step_queue_wait_seconds_total", COUNTER, _STEP, "Time that tasks waited, added up.")
RUNNING = _metric("gristmill_step_running_units", GAUGE, _STEP, "Batches of tasks that are in workers.")
WAITING_SECONDS = _metric(
    "gristmill_step_waiting_seconds_total", COUNTER, _STEP, "Backpressure: time in which the step waited for input."
)
BLOCKED_SECONDS = _metric(
    "gristmill_step_blocked_seconds_total",
    COUNTER,
    _STEP,
    "Backpressure: time in which tasks waited because their output would not fit the byte budget.",
)
OUTPUT_BYTES = _metric("gristmill_step_output_bytes_total", COUNTER, _STEP, "Bytes that were passed to the next step.")
OPTIMUM = _metric(
    "gristmill_step_optimum_interval_seconds",
    GAUGE,
    _STEP,
    "Mean time between two tasks if all planned workers were always busy.",
)
BOTTLENECK = _metric("gristmill_step_bottleneck", GAUGE, _STEP, "1 for the step that limits throughput.")
ENDED = _metric("gristmill_step_ended", GAUGE, _STEP, "1 if the step has nothing left to do.")

# Stages
STAGE_TASKS_IN = _metric("gristmill_stage_tasks_in_total", COUNTER, _STAGE, "Tasks that the stage received.")
STAGE_ITEMS_IN = _metric("gristmill_stage_items_in_total", COUNTER, _STAGE, "Items (documents) that it received.")
STAGE_TASKS_OUT = _metric("gristmill_stage_tasks_out_total", COUNTER, _STAGE, "Tasks that it returned.")
STAGE_ITEMS_OUT = _metric("gristmill_stage_items_out_total", COUNTER, _STAGE, "Items (documents) that it returned.")
STAGE_DROPPED = _metric("gristmill_stage_tasks_dropped_total", COUNTER, _STAGE, "Tasks for which it returned nothing.")
STAGE_FAILED = _metric("gristmill_stage_tasks_failed_total", COUNTER, _STAGE, "Tasks, or parts of one, given up in it.")
STAGE_ITEMS_FAILED = _metric("gristmill_stage_items_failed_total", COUNTER, _STAGE, "Items in tasks given up in it.")
STAGE_BUSY = _metric("gristmill_stage_busy_seconds_total", COUNTER, _STAGE, "Time spent in the stage's code.")

# GPUs
GPU_USE = _metric("gristmill_gpu_utilization_ratio", GAUGE, ("gpu",), "Share of time in which the GPU was busy.")
GPU_MEMORY = _metric("gristmill_gpu_memory_bytes", GAUGE, ("gpu",), "Memory of the GPU in use, by all its processes.")
GPU_SIZE = _metric("gristmill_gpu_memory_size_bytes", GAUGE, ("gpu",), "Memory of the GPU.")
GPU_WATTS = _metric("gristmill_gpu_power_watts", GAUGE, ("gpu",), "Power that the GPU draws.")
GPU_WORKERS = _metric(
    "gristmill_gpu_worker_memory_bytes", GAUGE, ("gpu", "step"), "Memory of the GPU that workers of the step hold."
)

METRICS: tuple[Metric, ...] = tuple(_METRICS)
"""In the order of their definitions."""

OF_RUN = frozenset(metric.name for metric in (RUN_INFO, RUN_STATE, RUN_START, RUN_WARNINGS))
"""Metrics without the label ``phase``."""
