"""Fields of the scheduler's records change only in methods of records, so that one place shows how each can change."""

import ast
from collections.abc import Iterator
from pathlib import Path

import gristmill.scheduling

PACKAGE = Path(gristmill.scheduling.__file__).parent
RECORDS = {"records/steps.py", "records/tasks.py", "records/workers.py", "lost_data/records.py", "state.py"}
OTHERS = ("simulator/", "planning/")
"""Packages without these records."""
SET_FOR_EVERY_UNIT = {
    ("dispatch.py", "unit.reserved"),
    ("progress.py", "w.head_since"),
    ("scheduler.py", "s.now"),
    ("scheduler.py", "s.out"),
}
SET_ONCE = {
    ("scheduler.py", "s.shared"),
    ("scheduler.py", "step.service.prior"),
    ("scheduler.py", "step.in_flight"),
}


def changed_fields(code: str) -> Iterator[str]:
    """Yield each field that is assigned to, of anything but ``self``."""
    for node in ast.walk(ast.parse(code)):
        targets = [node.target] if isinstance(node, ast.AugAssign) else getattr(node, "targets", [])
        for target in targets:
            for field in target.elts if isinstance(target, ast.Tuple) else [target]:
                name = ast.unparse(field)
                if isinstance(field, ast.Attribute) and name != f"self.{field.attr}":
                    yield name


def test_fields_change_in_methods_of_records() -> None:
    changed = {
        (name, field)
        for path in sorted(PACKAGE.rglob("*.py"))
        if (name := path.relative_to(PACKAGE).as_posix()) not in RECORDS and not name.startswith(OTHERS)
        for field in changed_fields(path.read_text(encoding="utf-8"))
    }
    assert changed == SET_FOR_EVERY_UNIT | SET_ONCE


def test_a_field_that_is_changed_from_outside_is_found() -> None:
    code = "def f(self, w):\n    self.n = 1\n    w.a, self.b = 1, 2\n    w.c.d += 1\n    self.e.f = 3\n"
    assert set(changed_fields(code)) == {"w.a", "w.c.d", "self.e.f"}
