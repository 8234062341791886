"""The classes that a file may name: registered classes of gristmill, and of the modules that the file imports."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType

from gristmill.config.nodes import Node, Problems
from gristmill.near_names import did_you_mean
from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import REGISTERED, import_usual, known


class ClassNames:
    """The classes that a file may name."""

    def __init__(self, imported: Iterable[str] = ()) -> None:
        self.imported = tuple(imported)
        import_usual()

    def known(self) -> dict[str, type]:
        return {name: cls for name, cls in REGISTERED.items() if self._may_name(cls.__module__)}

    def find(self, name: str, where: str, problems: Problems, what: str = "stage") -> type | None:
        """Return the class of a registered name."""
        import_usual(name)
        names = self.known()
        if name in names:
            return names[name]
        if "." in name:
            problems.add(where, f"{name!r} is not a registered name: for a path write '_target_: {name}'")
            return None
        there = REGISTERED.get(name)
        if there is not None:
            problems.add(where, f"{what} {name!r} is not gristmill's: add 'imports: [{there.__module__}]' to the file")
            return None
        known()
        hint = did_you_mean(name, self.known(), "'gristmill stages' lists them all.")
        problems.add(where, f"{what} {name!r} is not known.{hint}")
        return None

    def find_target(self, target: Node, problems: Problems) -> type | None:
        """Return the class of a ``_target_``, a dotted path."""
        path = target.value
        if not isinstance(path, str) or not all(part.isidentifier() for part in path.split(".")) or "." not in path:
            problems.add(target.where, f"_target_ wants package.module.Class, not {target.kind()}")
            return None
        place, _, name = path.rpartition(".")
        if path.startswith("nemo_curator."):
            known()
            names = self.known()
            instead = f"write '{name}: {{...}}'" if name in names else f"there is no {name!r} here."
            hint = "" if name in names else did_you_mean(name, names)
            problems.add(target.where, f"_target_ {path!r} is not gristmill's: {instead}{hint}")
            return None
        if not self._may_name(place):
            problems.add(
                target.where,
                f"_target_ {path!r} is not gristmill's: add 'imports: [{place}]' to the file if you trust that module",
            )
            return None
        if place.split(".")[0] == "gristmill":
            return self._own_target(path, place, name, target.where, problems)
        found = getattr(sys.modules.get(place) or _import(place), name, None)
        if isinstance(found, type) and (issubclass(found, ProcessingStage) or REGISTERED.get(name) is found):
            return found
        words = "is not there" if found is None else "is neither a stage nor registered: put @register above the class"
        module = sys.modules.get(place)
        hint = did_you_mean(name, [n for n, c in vars(module).items() if isinstance(c, type)]) if module else ""
        problems.add(target.where, f"_target_ {path!r} {words}.{'' if found is not None else hint}")
        return None

    def _own_target(self, path: str, place: str, name: str, where: str, problems: Problems) -> type | None:
        """Return a class of gristmill by its path, if it is registered."""
        cls = self.find(name, where, problems)
        if cls is None:
            return None
        module = _import(place)
        if module is None or getattr(module, name, None) is not cls:
            problems.add(where, f"_target_ {path!r} is not there. Did you mean '{cls.__module__}.{name}'?")
            return None
        return cls

    def _may_name(self, module: str) -> bool:
        return any(module == root or module.startswith(root + ".") for root in ("gristmill", *self.imported))


def import_modules(
    node: Node | None, folder: Path | None, announce: Callable[[str], None] | None, problems: Problems
) -> list[str]:
    """Import the modules under ``imports``, also from the file's folder and the current one; return their names."""
    if node is None:
        return []
    entries = node.value if isinstance(node.value, list) else [node]
    for place in [*([str(folder.resolve())] if folder else []), str(Path.cwd())]:
        if place not in sys.path:
            sys.path.append(place)  # at the end: a file there must not take the place of an installed module
    names = []
    for entry in entries:
        name = entry.value
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            problems.add(entry.where, f"imports wants names of modules, such as my_package.stages, not {entry.kind()}")
            continue
        if announce is not None:
            announce(name)
        try:
            importlib.import_module(name)
            names.append(name)
        except SyntaxError as error:
            problems.add(entry.where, f"the import of {name!r} failed: {error.filename}:{error.lineno}: {error.msg}")
        except ModuleNotFoundError as error:
            if error.name is None or not (name == error.name or name.startswith(error.name + ".")):
                raise  # the module's own error
            where = f"{folder or Path.cwd()} or on Python's path"
            problems.add(entry.where, f"the import of {name!r} failed: there is no module {error.name!r} in {where}")
    return names


def _import(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None
