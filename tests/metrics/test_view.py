from __future__ import annotations

import io
import logging
import os
import pty
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from gristmill.metrics import view_for
from gristmill.metrics.lines import LinesView
from gristmill.metrics.live import LiveView
from gristmill.metrics.notebook import NotebookView, html
from gristmill.metrics.rates import InputProgress, RateWindow
from gristmill.metrics.view import Off, in_notebook
from gristmill.metrics.view_state import ViewState
from gristmill.scheduling.snapshot import Decision

RECORD = SimpleNamespace(wall_s=12.3, failures_total=0, interrupted=False)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class TestChoice:
    def test_a_terminal_gets_the_table(self, monkeypatch):
        monkeypatch.setenv("TERM", "xterm")
        assert isinstance(view_for(stream=Terminal()), LiveView)

    def test_a_dumb_terminal_gets_lines(self, monkeypatch):
        monkeypatch.setenv("TERM", "dumb")
        assert isinstance(view_for(stream=Terminal()), LinesView)

    def test_a_file_gets_lines(self):
        assert isinstance(view_for(stream=io.StringIO()), LinesView)

    def test_a_closed_stream_gets_lines_that_are_not_written(self, step, moment):
        stream = io.StringIO()
        stream.close()
        view = view_for(stream=stream, logging_interval=0)
        assert isinstance(view, LinesView)
        view.update(moment(1, step()), 0, 0)
        view.message("unseen")
        view.close(RECORD)
        assert stream.closed, "nothing was written or raised"

    def test_no_standard_error(self, monkeypatch):
        monkeypatch.setattr(sys, "stderr", None)
        assert isinstance(view_for("auto"), Off)

    def test_off(self, step, moment, capsys):
        view = view_for("off")
        view.update(moment(1, step()), 0, 0)
        view.message("unseen")
        view.close(None)
        assert capsys.readouterr() == ("", "")

    def test_unknown(self):
        with pytest.raises(ValueError, match=r"'lve' is not known.*live"):
            view_for("lve")

    def test_this_is_no_notebook(self):
        assert not in_notebook()

    def test_a_kernel_is_a_notebook_and_a_shell_is_not(self, monkeypatch):
        shell = SimpleNamespace(kernel=object())
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
        assert in_notebook()
        del shell.kernel
        assert not in_notebook()


class TestLines:
    def run(self, view, moment, step, seconds, record=RECORD):
        for tick in range(seconds * 4 + 1):
            t = tick / 4
            decisions = (Decision(3_000_000, "slow: 1 -> 4 workers"),) if t >= 3 else ()
            slow = step("slow", tasks_done=tick, items_done=tick * 10, queued=2)
            view.update(moment(t, slow, bottleneck=0, source_total=200, decisions=decisions), 1 << 30, 8 << 30)
        view.close(record)

    def test_one_line_per_interval_and_one_at_the_end(self, step, moment):
        stream = io.StringIO()
        self.run(view_for("lines", stream, logging_interval=10), moment, step, 35)
        lines = [line for line in stream.getvalue().splitlines() if "balancer" not in line]
        assert [line.split(",")[0] for line in lines] == [f"gristmill 0:{s:02}" for s in (5, 10, 20, 30, 35)]
        assert lines[2].startswith("gristmill 0:20, 80/200 tasks (40%), 0:30 left | *slow 1/1 busy")
        assert "4.00 tasks/s, 40.0 items/s" in lines[2]
        assert "memory 1.0 GB/8.0 GB" in lines[-1]
        assert "finished in 12.3 s" in lines[-1]

    def test_a_decision_is_printed_once(self, step, moment):
        stream = io.StringIO()
        self.run(view_for("lines", stream, logging_interval=10), moment, step, 35)
        decisions = [line for line in stream.getvalue().splitlines() if "balancer" in line]
        assert decisions == ["gristmill: balancer: slow: 1 -> 4 workers"]

    @pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
    def test_a_line_fits_and_begins_with_what_matters_most(self, step, moment, monkeypatch, columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        stream = io.StringIO()
        view = view_for("lines", stream, logging_interval=1)
        steps = [
            step(f"a step with a long name, number {i}", tasks_done=5, queued=10**6, tasks_failed=i) for i in range(9)
        ]
        progress = InputProgress(1_234_567, 1_000_000, 3, 12, 5 << 30, 20 << 30)
        decisions = (Decision(500_000, "slow: 1 -> 4 workers, because " + "it is slow " * 30),)
        view.update(moment(2, *steps, bottleneck=3, source_total=12, decisions=decisions), 1 << 33, 1 << 34, progress)
        view.close(RECORD)
        lines = stream.getvalue().splitlines()
        assert len(lines) == 3 and max(map(len, lines)) <= columns
        assert lines[0].startswith("gristmill 0:02, 3/12 blocks (25%)")
        assert ("1,234,567 read, 1,000,000 kept" in lines[0].replace(" documents", "")) == (columns >= 80)

    def test_a_message_fits_a_terminal_too(self, monkeypatch):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", "60")
        view_for("lines", stream).message(
            "still loading the stages: what they import is imported once, before any work"
        )
        assert [len(line) <= 60 for line in stream.getvalue().splitlines()] == [True, True]

    def test_time_left_follows_the_bytes_of_a_single_block(self, step, moment):
        stream = io.StringIO()
        view = view_for("lines", stream, logging_interval=10)
        for t in range(21):
            progress = InputProgress(t * 100, t * 50, 0, 1, t << 20, 100 << 20)
            view.update(moment(t, step("slow", running=1), source_total=1), 0, 0, progress)
        last = stream.getvalue().splitlines()[-1]
        assert last.startswith("gristmill 0:20, 0/1 blocks (20%), 1:20 left | 2,000 documents read, 1,000 kept")

    def test_blocks_of_an_earlier_run_do_not_make_this_one_look_faster(self, step, moment):
        stream = io.StringIO()
        view = view_for("lines", stream, logging_interval=10)
        for t in range(11):
            progress = InputProgress(0, 0, 9, 10, (90 << 20) + (t << 19), 100 << 20, 90 << 20)
            view.update(moment(t, step("slow", running=1), source_total=1), 0, 0, progress)
        assert "9/10 blocks (50%), 0:10 left" in stream.getvalue().splitlines()[-1]

    def test_a_run_that_broke_off(self, step, moment):
        stream = io.StringIO()
        self.run(view_for("lines", stream), moment, step, 1, record=None)
        assert "stopped" in stream.getvalue()

    def test_a_run_that_never_began(self):
        stream = io.StringIO()
        view_for("lines", stream).close(None)
        assert stream.getvalue() == "gristmill: stopped\n"

    def test_a_thousand_steps_are_still_one_readable_line(self, step, moment):
        stream = io.StringIO()
        view = view_for("lines", stream, logging_interval=1)
        view.update(moment(1, *(step(f"s{i}") for i in range(1000))), 0, 0)
        assert len(stream.getvalue().splitlines()) == 1
        assert len(stream.getvalue()) < 2000

    def test_a_stream_that_cannot_write_a_name(self, step, moment):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding="ascii")
        view = view_for("lines", stream, logging_interval=0)
        view.update(moment(1, step("数据")), 0, 0)
        assert rb"\u6570" in raw.getvalue()


class TestLive:
    def drive(self, view, moment, step, during=lambda: None):
        view.update(moment(0, step("slow")), 10**9, 8 * 10**9)
        during()
        view.update(moment(1, step("slow", tasks_done=4)), 10**9, 8 * 10**9)
        view.close(RECORD)

    @pytest.mark.parametrize("columns", [80, 160])
    def test_it_draws_ends_and_gives_the_cursor_back(self, step, moment, monkeypatch, columns):
        monkeypatch.setenv("COLUMNS", str(columns))
        stream = Terminal()
        self.drive(LiveView(stream), moment, step)
        written = stream.getvalue()
        assert "slow" in written and "finished in 12.3 s" in written
        assert written.rindex("\x1b[?25h") > written.rindex("\x1b[?25l")

    def test_standard_streams_and_handlers_are_given_back(self, step, moment, monkeypatch):
        stream = Terminal()
        monkeypatch.setattr(sys, "stdout", stream)
        monkeypatch.setattr(sys, "stderr", stream)
        handler = logging.StreamHandler(stream)
        logging.getLogger().addHandler(handler)
        try:

            def during():
                assert handler.stream is not stream
                print("from the user")
                print("unfinished", end="")
                logging.getLogger().warning("from a logger")

            self.drive(LiveView(stream), moment, step, during)
            assert handler.stream is stream
        finally:
            logging.getLogger().removeHandler(handler)
        assert sys.stdout is stream and sys.stderr is stream
        for text in ("from the user\n", "unfinished\n", "from a logger\n"):
            assert text in stream.getvalue()

    def test_a_redirected_stdout_is_left_alone(self, step, moment, monkeypatch):
        terminal, file = Terminal(), io.StringIO()
        monkeypatch.setattr(sys, "stderr", terminal)
        monkeypatch.setattr(sys, "stdout", file)
        self.drive(LiveView(terminal), moment, step, lambda: print("data"))
        assert file.getvalue() == "data\n"
        assert "data" not in terminal.getvalue()

    def test_messages_are_plain_text(self, step, moment):
        stream = Terminal()
        view = LiveView(stream)
        view.message("compiling [bold]kernels[/]\x1b[2J")
        self.drive(view, moment, step)
        assert "compiling [bold]kernels[/]" in stream.getvalue()
        assert "\x1b[2J" not in stream.getvalue()

    def test_a_terminal_that_goes_away_does_not_end_the_run(self, step, moment):
        stream = Terminal()
        view = LiveView(stream)
        view.update(moment(0, step()), 0, 0)
        stream.close()
        stdout, stderr = sys.stdout, sys.stderr
        view.update(moment(1, step()), 0, 0)
        view.message("unseen")
        view.close(RECORD)
        assert (sys.stdout, sys.stderr) == (stdout, stderr)

    def test_no_thread_is_started(self, step, moment):
        import threading

        before = threading.active_count()
        view = LiveView(Terminal())
        view.update(moment(0, step()), 0, 0)
        assert threading.active_count() == before
        view.close(None)

    def test_drawing_is_cheap(self, step, moment):
        view = LiveView(Terminal())
        steps = [step(f"stage_{i}", tasks_done=i) for i in range(12)]
        view.update(moment(0, *steps), 0, 0)
        began = time.process_time()
        for tick in range(50):
            view.update(moment(tick / 4, *steps), 10**9, 8 * 10**9)
        assert (time.process_time() - began) / 50 < 0.02  # 2 ms here, but machines differ
        view.close(None)

    def test_an_error_gives_the_terminal_back(self):
        """On a real pseudo-terminal, in a process that dies of an exception without closing the view."""
        code = (
            "from gristmill.metrics import view_for\n"
            "from gristmill.scheduling.snapshot import Snapshot\n"
            "view_for('auto').update(Snapshot(0, (), None, 0, 0, 0, 0, None, False, 0, 0, 0, ()), 0, 0)\n"
            "raise SystemExit(3)\n"
        )
        master, slave = pty.openpty()
        env = {**os.environ, "TERM": "xterm"}
        process = subprocess.Popen([sys.executable, "-c", code], stdout=slave, stderr=slave, env=env)
        os.close(slave)
        written = b""
        try:
            while chunk := os.read(master, 4096):
                written += chunk
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(master)
        assert process.wait() == 3
        assert b"\x1b[?25l" in written
        assert written.rindex(b"\x1b[?25h") > written.rindex(b"\x1b[?25l")


def test_rich_is_not_loaded_without_a_terminal():
    code = (
        "import sys\n"
        "from gristmill.metrics import view_for\n"
        "view_for('auto'); view_for('lines'); view_for('off')\n"
        "sys.exit('rich' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, check=False).returncode == 0


class TestNotebook:
    def test_the_page_is_safe_and_complete(self, step, moment):
        window = RateWindow()
        now = moment(
            3,
            step("<script>", dedicated=False, tasks_failed=2),
            *(step(f"s{i}", busy=0) for i in range(100)),
            bottleneck=0,
            draining=True,
            decisions=(Decision(0, "a < b"),),
        )
        page = html(ViewState(now, window.add(now), 10**9, 8 * 10**9))
        assert "<script" not in page and "&lt;script&gt;" in page
        assert "a &lt; b" in page
        assert "draining" in page and "more steps" in page and "shared workers" in page

    def test_one_output_is_updated_in_place(self, step, moment, monkeypatch):
        shown: list[tuple[str, str]] = []

        class Handle:
            def update(self, data, raw):
                shown.append(("update", data["text/html"]))

        def display(data, raw, display_id=None):
            shown.append(("display", data.get("text/html", data["text/plain"])))
            return Handle()

        pytest.importorskip("IPython.display")
        monkeypatch.setattr("IPython.display.display", display)
        view = NotebookView()
        for tick in range(9):
            view.update(moment(tick / 4, step("slow", tasks_done=tick), source_total=100), 10**9, 0)
        view.close(RECORD)
        assert [how for how, _ in shown] == ["display"] + ["update"] * 5  # twice a second, and the end
        assert "finished in 12.3 s" in shown[-1][1]
