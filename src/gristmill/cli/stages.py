"""``gristmill stages``: the names that a pipeline can use, with their parameters."""

from __future__ import annotations

import inspect
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gristmill.cli.target import UsageError, load_module, shown_module
from gristmill.near_names import near
from gristmill.stages.core import ProcessingStage
from gristmill.stages.registry import INTERNAL, known
from gristmill.stages.text.filters.document_filter import DocumentFilter
from gristmill.stages.text.modifiers.document_modifier import DocumentModifier
from gristmill.stages.text.recipes import RECIPES, Recipe, find_recipe

KINDS = {
    "stages": ProcessingStage,
    "filters, for ScoreFilter": DocumentFilter,
    "modifiers, for Modify": DocumentModifier,
}


def show_stages(name: str | None, imports: Sequence[str] = ()) -> list[str]:
    """List the registered classes and recipes, or those whose names begin with ``name``; document a single one.

    ``imports`` names modules, Python files or pipeline files. They are imported, and the classes that they register
    are listed too.
    """
    for place in imports:
        _import(place)
    classes = {n: cls for n, cls in known().items() if n not in INTERNAL and (imports or _is_ours(cls))}
    if name is None:
        return [*_listed(classes, RECIPES), "", "gristmill stages NAME documents one of them."]
    if name in classes:
        return list(_class(name, classes[name]))
    if name.partition("@")[0] in [recipe.name for recipe in RECIPES]:
        try:
            return list(_recipe(find_recipe(name)))
        except ValueError as error:
            raise UsageError(str(error)) from error
    if name == "recipe":  # as in YAML
        return _listed({}, RECIPES)
    return _beginning_with(name, classes)


def _beginning_with(prefix: str, classes: dict[str, type]) -> list[str]:
    """List or document the names that begin with a prefix, in any case."""
    found = {n: cls for n, cls in classes.items() if n.lower().startswith(prefix.lower())}
    recipes = [recipe for recipe in RECIPES if recipe.name.startswith(prefix.lower())]
    if len(found) == 1 and not recipes:
        return list(_class(*next(iter(found.items()))))
    if len(recipes) == 1 and not found:
        return list(_recipe(recipes[0]))
    if found or recipes:
        return _listed(found, recipes)
    meant = near(prefix, [*classes, *(recipe.name for recipe in RECIPES)])
    hint = f"Did you mean {meant!r}?" if meant else "'gristmill stages' lists all names"
    raise UsageError(f"there is no {prefix!r}. {hint}")


def _import(place: str) -> None:
    """Import a module, a Python file, or the modules that a pipeline file names."""
    if not place.endswith((".yaml", ".yml")):
        load_module(place)
        return
    from gristmill.config.load import import_of_file
    from gristmill.errors import PipelineFileError

    try:
        import_of_file(Path(place))
    except PipelineFileError as error:
        raise UsageError(str(error), has_place=True) from error


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("gristmill.")


def _listed(classes: dict[str, type], recipes: Sequence[Recipe]) -> list[str]:
    """Return classes and recipes by kind, with a line on each."""
    width = _width()
    lines: list[str] = []
    left = dict(classes)
    for title, base in [*KINDS.items(), ("others", object)]:
        own = sorted(name for name, cls in left.items() if issubclass(cls, base))
        if own:
            lines += ["", title, *(line for name in own for line in _entry(name, left.pop(name), width))]
    if recipes:
        lines += ["", "recipes, as 'recipe: NAME'"]
    for recipe in recipes:
        lines += [f"  {recipe.name}@{recipe.version}", *_wrap(f"{recipe.summary}: {len(recipe.rules)} rules", width, 6)]
    return lines[1:]


def _entry(name: str, cls: type, width: int) -> Iterator[str]:
    parameters = ", ".join(_short(p) for p in inspect.signature(cls).parameters.values())
    yield from textwrap.wrap(
        f"{name}({parameters})", width, initial_indent="  ", subsequent_indent="      ", break_long_words=False
    )
    place = "" if _is_ours(cls) else f"of {shown_module(cls.__module__)}. "
    yield from _wrap(f"{place}{_summary(cls)}", width, 6)


def _class(name: str, cls: type) -> Iterator[str]:
    parameters = inspect.signature(cls).parameters.values()
    yield f"{name}({'' if parameters else ')'}"
    for parameter in parameters:
        annotation = parameter.annotation
        typed = (
            ""
            if annotation is parameter.empty
            else f": {annotation.__name__ if isinstance(annotation, type) else annotation}"
        )
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        yield f"    {parameter.name}{typed}{default},"
    if parameters:
        yield ")"
    yield ""
    yield from (inspect.getdoc(cls) or "It has no description.").splitlines()
    yield ""
    yield f"Python: from {shown_module(cls.__module__)} import {name}"
    needed = ", ".join(f"{p.name}: ..." for p in parameters if p.default is p.empty)
    yield f"YAML:   {name}: {{{needed}}}"


def _recipe(recipe: Recipe) -> Iterator[str]:
    width = _width()
    yield f"recipe {recipe.name}@{recipe.version}: {recipe.summary}"
    yield from _wrap(f"Source: {recipe.source}.", width, 0)
    for number, rule in enumerate(recipe.rules, 1):
        arguments = ", ".join(f"{key}={value!r}" for key, value in rule.arguments.items())
        yield ""
        yield f"{number:>3}. {rule.key}: {rule.name}({arguments})"
        yield from _wrap(rule.says, width, 5)
        if rule.note:
            yield from _wrap(rule.note, width, 5)
    first = recipe.rules[0]
    argument = next(iter(first.arguments), "argument")
    yield ""
    yield f"YAML:   recipe: {recipe.name}"
    yield f"        recipe: {{name: {recipe.name}, text_field: body}}"
    changes = f"{first.key}.{argument}: ..., {recipe.rules[-1].key}: false"
    yield f"        recipe: {{name: {recipe.name}, set: {{{changes}}}}}"


def _short(parameter: inspect.Parameter) -> str:
    default: Any = parameter.default
    return parameter.name if default is parameter.empty else f"{parameter.name}={_brief(default)}"


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:36]}..."


def _summary(cls: type) -> str:
    """Return the first sentence of the docstring."""
    first = " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())
    end = first.find(". ")
    return (first if end < 0 else first[: end + 1]).replace("``", "")


def _wrap(text: str, width: int, indent: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=" " * indent, subsequent_indent=" " * indent)


def _width() -> int:
    return max(60, shutil.get_terminal_size((100, 24)).columns) if sys.stdout.isatty() else 100
