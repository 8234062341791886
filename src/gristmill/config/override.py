"""``--set stage.key=value``: changes to the content of a file, before any object is made."""

from __future__ import annotations

from collections.abc import Sequence

from gristmill.config.items import SETTINGS, StageItem
from gristmill.config.nodes import Node, Problems, read
from gristmill.near_names import did_you_mean

SECTIONS = ("executor", "ray_client")


def override_sections(
    root: dict[str, Node], overrides: Sequence[str], executor: str | None, problems: Problems
) -> list[str]:
    """Apply ``executor.key=value`` and ``ray_client.key=value`` in place, and return the other overrides.

    ``executor`` replaces another executor of the file and its options.
    """
    there = root.get("executor")
    name, body = _named_executor(there, "ray" if "ray_client" in root else "local")
    if executor is not None and executor != name:
        there = root["executor"] = Node(executor, f"--executor {executor}")
        name, body = executor, Node({}, there.where)
    rest = []
    for text in overrides:
        where = f"--set {text}"
        path, equals, value = text.partition("=")
        section, *keys = path.split(".")
        if section not in SECTIONS or not keys or not equals:
            rest.append(text)
            continue
        node = _value(value, where, problems)
        if node is None:
            continue
        if section == "ray_client":
            if section not in root or root[section].value is None:
                root[section] = Node({}, where)
            _set(root[section], keys, node, where, problems)
        else:
            if there is None or not isinstance(there.value, dict):
                there = root["executor"] = Node({name: body}, there.where if there else where)
            _set(body, keys, node, where, problems)
    return rest


def _named_executor(node: Node | None, default: str) -> tuple[str, Node]:
    """Return the name of the executor of the file, and its options."""
    where = node.where if node else ""
    if node is not None and isinstance(node.value, dict) and len(node.value) == 1:
        ((name, body),) = node.value.items()
        if body.value is None:
            body.value = {}
        return name, body
    return (node.value if node is not None and isinstance(node.value, str) else default), Node({}, where)


def override(items: Sequence[StageItem | None], overrides: Sequence[str], problems: Problems) -> None:
    """Change stages in place. A stage is addressed by its name, its class or recipe, or its number from 1."""
    for text in overrides:
        where = f"--set {text}"
        path, equals, value = text.partition("=")
        if not equals or "." not in path:
            problems.add(where, "write stage.key=value")
            continue
        node = _value(value, where, problems)
        found = _find(items, path, where, problems) if node is not None else None
        if node is not None and found is not None:
            position, keys = found
            item = items[position]
            if item is not None:  # else it is wrong, which is reported already
                _set_of_stage(item, keys, node, where, problems)


def _find(items: Sequence[StageItem | None], path: str, where: str, problems: Problems) -> tuple[int, list[str]] | None:
    """Return the position of the stage that the path begins with, and the keys that follow."""
    names = [("", "") if item is None else item.names() for item in items]
    for kind in range(2):  # a given name wins over the class or recipe
        matching = [i for i, pair in enumerate(names) if pair[kind] and path.startswith(f"{pair[kind]}.")]
        if len(matching) > 1:
            numbers = ", ".join(str(i + 1) for i in matching)
            first = names[matching[0]][kind]
            problems.add(where, f"there are several stages {first!r}: write the number of one, {numbers}")
            return None
        if matching:
            return matching[0], path[len(names[matching[0]][kind]) + 1 :].split(".")
    first, *keys = path.split(".")
    if first.isdecimal() and 1 <= int(first) <= len(items):
        return int(first) - 1, keys
    known = [name for pair in names for name in pair if name]
    hint = did_you_mean(first, known, f"The stages are: {', '.join(dict.fromkeys(known))}, or 1 to {len(items)}.")
    problems.add(where, f"there is no stage {first!r}.{hint}")
    return None


def _set_of_stage(item: StageItem, keys: list[str], value: Node, where: str, problems: Problems) -> None:
    if keys[0] in SETTINGS and not item.is_target:
        _set(Node(item.settings, where), keys, value, where, problems)
        return
    if item.arguments.value is None:
        item.arguments = Node({}, where)
    if item.is_recipe:
        if isinstance(item.arguments.value, str):
            item.arguments = Node({"name": item.arguments}, item.arguments.where)
        if keys[0] not in ("text_field", "set", "keep_scores"):
            keys = ["set", ".".join(keys)]
    _set(item.arguments, keys, value, where, problems)


def _set(node: Node, keys: list[str], value: Node, where: str, problems: Problems) -> None:
    key, *rest = keys
    if isinstance(node.value, list):
        _set_in_list(node.value, key, rest, value, where, problems)
        return
    if isinstance(node.value, str) and node.value == key and rest:
        node.value = {key: Node({}, node.where)}  # a bare name gets its first argument
    if not isinstance(node.value, dict):
        problems.add(where, f"{key!r} cannot be set in {node.kind()}, at {node.where}")
        return
    if not rest:
        node.value[key] = value
        return
    inner = node.value.get(key)
    if inner is None or inner.value is None:
        inner = node.value[key] = Node({}, where)
    _set(inner, rest, value, where, problems)


def _set_in_list(children: list[Node], key: str, rest: list[str], value: Node, where: str, problems: Problems) -> None:
    """Set a value in a list, where a key is a number from 0, or the name of an object that occurs once."""
    named = [
        i
        for i, child in enumerate(children)
        if child.value == key or (isinstance(child.value, dict) and key in child.value)
    ]
    if key.isdecimal() and int(key) < len(children):
        if rest:
            _set(children[int(key)], rest, value, where, problems)
        else:
            children[int(key)] = value
    elif len(named) == 1:
        _set(children[named[0]], [key, *rest], value, where, problems)
    else:
        names = [k for child in children if isinstance(child.value, dict) for k in child.value]
        words = f"there are several {key!r} in the list" if named else f"there is no {key!r} in the list"
        hint = did_you_mean(key, names) if not named else ""
        problems.add(where, f"{words}: write a number from 0 to {len(children) - 1}.{hint}")


def _value(text: str, where: str, problems: Problems) -> Node | None:
    node = read(text, where, problems)
    if node is not None:
        _put_where(node, where)
    return node


def _put_where(node: Node, where: str) -> None:
    node.where = where
    node.of_command = True
    children = node.value.values() if isinstance(node.value, dict) else node.value
    for child in children if not isinstance(children, str | int | float | None) else ():
        _put_where(child, where)
