"""The stages of a file, whichever of the four ways they are written in."""

from __future__ import annotations

from dataclasses import dataclass, field

from gristmill.config.nodes import Node, Problems
from gristmill.near_names import did_you_mean

TARGET = "_target_"
SETTINGS = ("name", "with")
"""Keys beside a stage that are not its arguments."""


@dataclass
class StageItem:
    """A stage: what it is, its arguments and its settings."""

    named: Node
    """Its class by name, or by path, or ``recipe``."""
    arguments: Node
    settings: dict[str, Node] = field(default_factory=dict)
    is_target: bool = False
    """Named by the path of its class, with the arguments beside it and no settings."""

    @property
    def is_recipe(self) -> bool:
        return not self.is_target and self.named.value == "recipe"

    def names(self) -> tuple[str, str]:
        """Return the name that the stage was given, and its class or recipe."""
        if self.is_target:
            return "", str(self.named.value).rpartition(".")[2]
        given = self.settings.get("name")
        kind: Node | None = self.named
        if self.is_recipe:
            body = self.arguments
            kind = body.value.get("name") if isinstance(body.value, dict) else body
        return str((given and given.value) or ""), str((kind and kind.value) or "").partition("@")[0]


def stage_item(node: Node, problems: Problems) -> StageItem | None:
    """Return the stage of a node: a name, or a mapping of one name to its arguments, with settings beside it."""
    if isinstance(node.value, str):
        return StageItem(node, Node(None, node.where))
    if not isinstance(node.value, dict):
        problems.add(node.where, f"a stage is 'Name: {{arguments}}' or 'recipe: NAME', not {node.kind()}")
        return None
    entries = dict(node.value)
    if TARGET in entries:
        target = entries.pop(TARGET)
        return StageItem(target, Node(entries, target.where), is_target=True)
    settings = {key: entries.pop(key) for key in SETTINGS if key in entries}
    if "stage" in entries:
        named = entries.pop("stage")
        body = entries.pop("args", Node(None, named.where))
        if not isinstance(named.value, str):
            problems.add(named.where, f"'stage' wants a registered name, not {named.kind()}")
            return None
    elif len(entries) == 1:
        key, body = entries.popitem()
        named = Node(key, body.where)
    else:
        where, there = node.where, ", ".join(node.value) or "nothing"
        problems.add(where, f"a stage is one name with its arguments, 'name' and 'with' beside it; here is: {there}")
        return None
    for key, extra in entries.items():
        known = ("stage", "args", *SETTINGS)
        problems.add(extra.where, f"a stage has no {key!r} beside it.{did_you_mean(key, known, 'Is it for args?')}")
    return StageItem(named, body, settings)
