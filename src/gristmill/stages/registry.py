"""Names by which configuration files know stages, filters and modifiers, and the arguments that made them."""

from __future__ import annotations

import functools
import importlib
import inspect
from typing import Any, TypeVar

from gristmill.stages.contracts import Component

C = TypeVar("C", bound=type)

REGISTERED: dict[str, type] = {}
INTERNAL: set[str] = set()
"""Names of registered classes that are not listed for users."""
MODULES = tuple(
    f"gristmill.stages.{package}.{module}"
    for package, modules in {
        "text.io.reader": "documents jsonl parquet",
        "text.io.writer": "jsonl parquet",
        "text.filters": "code fasttext fineweb histogram language phrases repetition score_filter shares tokens words",
        "text.modifiers": "modify normalizers pii removers",
        "text.tools": "add_id segments",
        "decontamination": "fuzzy ngrams",
        "deduplication": "exact.pieces exact.stage fuzzy.stage identified",
    }.items()
    for module in modules.split()
)
"""The modules that register gristmill's own classes. They are imported to look up a name that is not known yet."""
PACKAGES_OF_MODELS = (
    "gristmill.stages.deduplication.semantic",
    "gristmill.stages.image.deduplication",
    "gristmill.stages.image.embedders",
    "gristmill.stages.image.filters",
    "gristmill.stages.image.io.reader",
    "gristmill.stages.image.io.writer",
    "gristmill.stages.image.llm",
    "gristmill.stages.text.classifiers",
    "gristmill.stages.text.embedders",
    "gristmill.stages.text.llm",
    "gristmill.stages.video.caption",
    "gristmill.stages.video.clipping",
    "gristmill.stages.video.deduplication",
    "gristmill.stages.video.embedding",
    "gristmill.stages.video.filtering",
    "gristmill.stages.video.io.reader",
    "gristmill.stages.video.io.writer",
    "gristmill.stages.video.preview",
)
"""Packages whose ``MODULES`` name the module of each class. Few pipelines have images, models or their embeddings, so
these are imported last."""


def register(cls: C) -> C:
    """Make a class known by its name, and have its instances remember the arguments they were made with.

    Arguments must be plain values (numbers, text, lists, mappings) or instances of registered classes: only then can
    a pipeline be written as YAML.
    """
    if not isinstance(cls, type):
        raise TypeError(f"register takes a class, not {cls!r}. A function cannot be named in YAML: write a class.")
    name = cls.__name__
    before = REGISTERED.get(name)
    if before is not None and not _is_the_same(before, cls):
        raise ValueError(f"{name!r} is registered already, by {before.__module__}: give the class another name")
    REGISTERED[name] = cls
    init = cls.__init__  # type: ignore[misc]  # the class's own constructor is what is wrapped
    if init is object.__init__:  # whose signature takes anything
        signature = inspect.Signature([inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)])
    else:
        signature = inspect.signature(init)

    @functools.wraps(init)
    def remember(self: Any, *args: Any, **kwargs: Any) -> None:
        if type(self) is cls:
            bound = signature.bind(self, *args, **kwargs)
            given = dict(list(bound.arguments.items())[1:])
            object.__setattr__(self, "_arguments", given)  # of frozen dataclasses too
        init(self, *args, **kwargs)

    remember.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect
    cls.__init__ = remember  # type: ignore[misc]
    return cls


def builtin(cls: C) -> C:
    """`register` a class of gristmill itself. Its module must be among `MODULES`."""
    assert issubclass(cls, Component)
    cls.builtin = True
    return register(cls)


def builtin_internal(cls: C) -> C:
    """The same for a class that only gristmill itself puts into pipelines: it is not listed for users."""
    INTERNAL.add(cls.__name__)
    return builtin(cls)


def registered(name: str) -> type:
    """The class of this name; `KeyError` if there is none."""
    if name not in REGISTERED:
        import_usual(name)
    return REGISTERED[name] if name in REGISTERED else known()[name]


def import_usual(*names: str) -> None:
    """Import the modules that register classes without models, and those of these names."""
    _import_usual()
    for name in names:
        if module := _modules_of_models().get(name):
            importlib.import_module(module)


def known() -> dict[str, type]:
    """All registered classes by name. The modules of gristmill's own are imported for that."""
    _import_all()
    return dict(REGISTERED)


def is_builtin(cls: type) -> bool:
    """Whether a class is gristmill's own."""
    return issubclass(cls, Component) and cls.builtin


def _is_the_same(before: type, cls: type) -> bool:
    """Whether a class is defined once more: a module was loaded again, or as a script and as a module."""
    is_user_class = not (is_builtin(before) or is_builtin(cls))
    return before.__qualname__ == cls.__qualname__ and (is_user_class or before.__module__ == cls.__module__)


@functools.cache
def _import_all() -> None:
    import_usual(*_modules_of_models())


@functools.cache
def _import_usual() -> None:
    for module in MODULES:
        importlib.import_module(module)


@functools.cache
def _modules_of_models() -> dict[str, str]:
    """The module of each class with a model, by the name of the class."""
    return {name: module for one in PACKAGES_OF_MODELS for name, module in importlib.import_module(one).MODULES.items()}


def arguments_of(made: Any) -> dict[str, Any] | None:
    """The arguments that an instance of a registered class was made with; None for any other."""
    remembered = REGISTERED.get(type(made).__name__) is type(made)
    try:
        arguments: dict[str, Any] | None = made._arguments if remembered else None
    except AttributeError:  # a copy by a method of the class's own
        return None
    return arguments
