"""Kernels as object code: made by Numba, loaded by llvmlite alone, called by address.

A worker spends most of its import time on Numba. Compiled code that allocates nothing does not need Numba at run time,
so the object code is kept as LLVM emits it and is linked into each process again.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias

from gristmill.lazy import np

NONE = b""
"""The cache entry of a kernel that cannot become object code."""

Signature: TypeAlias = "tuple[str | Signature, ...]"
"""The types of a kernel's arguments by their words in `TYPES`. An inner tuple is an argument that is a tuple."""

_ITEMS = {
    **{"bytes": "uint8", "ints": "int64", "hashes": "uint64", "lengths": "uint32", "classes": "uint16"},
    **{"flags": "bool_", "floats": "float64", "int32s": "int32"},
}
TYPES = {
    **{"int64": "int64", "uint64": "uint64"},
    **{word: f"Array({item}, 1, 'C', readonly=True)" for word, item in _ITEMS.items()},
    **{f"out_{word}": f"Array({item}, 1, 'C')" for word, item in _ITEMS.items()},
    **{f"out_{word}_rows": f"Array({item}, 2, 'C')" for word, item in _ITEMS.items()},
    "out_ints_cube": "Array(int64, 3, 'C')",
}
"""The words of signatures and their types in Numba. A kernel may write only to arrays whose words begin with out."""

GROUPS: dict[str, Signature] = {"texts": ("bytes", "ints", "ints"), "tables": ("bytes", "classes")}
"""Arguments that are passed together: `Texts.arrays`, `unicode.tables`."""

_ARRAY = re.compile(r"Array\((\w+), (\d), 'C'(?:, readonly=True)?\)")
_SCALARS = {"int64": ctypes.c_int64, "uint64": ctypes.c_uint64}
_LIBC = ("memcpy", "memmove", "memset", "memcmp", "bcmp")
"""External functions that object code may call: every process has them."""
_DESTRUCTOR = "NRT_MemInfo_call_dtor"
"""Numba's function for an array without references. Python owns all arrays here, so it is never called."""
_DONE = (0, -2)
"""The status of compiled functions on success: with a value, with None."""


def parse_signature(text: str) -> Signature:
    """Return the words of a signature: ``"texts (ints ints) int64"``."""
    stack: list[list[Any]] = [[]]
    for word in re.findall(r"[()]|\w+", text):
        if word == "(":
            stack.append([])
        elif word == ")":
            group = tuple(stack.pop())
            stack[-1].append(group)
        elif word in GROUPS:
            stack[-1].append(GROUPS[word])
        elif word in TYPES:
            stack[-1].append(word)
        else:
            raise ValueError(f"kernel signature {text!r}: {word!r} is not a type. Use one of {', '.join(TYPES)}.")
    return tuple(stack[0])


def numba_types(signature: Signature) -> str:
    """Return the types as Numba takes them: ``(int64, Tuple((int64, uint64,)),)``."""
    words = (TYPES[one] if isinstance(one, str) else f"Tuple({numba_types(one)})" for one in signature)
    return f"({', '.join(words)},)"


class Native:
    """A kernel at an address. Arrays must have the types that it was compiled for, and be contiguous."""

    def __init__(self, address: int, signature: Sequence[Any]) -> None:
        types: list[Any] = [ctypes.c_void_p, ctypes.c_void_p]
        self._kinds = [_kind(one, types) for one in signature]
        self._function = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(address)

    def __call__(self, *arguments: Any) -> int:
        result, error = ctypes.c_int64(), ctypes.c_void_p()
        flat: list[Any] = [ctypes.addressof(result), ctypes.addressof(error)]
        _flatten(self._kinds, arguments, flat)
        status = self._function(*flat)
        if status not in _DONE:
            raise RuntimeError(f"a kernel ended with status {status}.")
        return result.value


def _kind(word: Any, types: list[Any]) -> Any:
    """Return how an argument is checked: None for a number, dtype and dimensions of an array, a list for a tuple.

    The types by which C passes it are appended to ``types``.
    """
    if not isinstance(word, str):
        return [_kind(one, types) for one in word]
    match = _ARRAY.fullmatch(TYPES[word])
    if match is None:
        types.append(_SCALARS[word])
        return None
    dimensions = int(match[2])
    # As Numba passes an array: its owner (none), items, their size, address, shape, strides.
    types += [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
    types += [ctypes.c_int64] * (2 * dimensions)
    return np.dtype(match[1].rstrip("_")), dimensions


def _flatten(kinds: Sequence[Any], arguments: Sequence[Any], flat: list[Any]) -> None:
    """Append the arguments to ``flat`` as C takes them."""
    for kind, value in zip(kinds, arguments, strict=True):
        if kind is None:
            flat.append(int(value))
        elif isinstance(kind, list):
            _flatten(kind, value, flat)
        elif value.dtype != kind[0] or value.ndim != kind[1] or not value.flags.c_contiguous:
            raise TypeError(f"a kernel wants {kind[1]}-dimensional contiguous arrays of {kind[0]}, not {value!r}.")
        else:
            flat += (None, None, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides)


def compile_(function: Callable[..., Any], signature: Signature) -> bytes:
    """Return a kernel for `load`. Raise an error if it cannot be made, or needs Numba at run time."""
    _check_platform()
    import llvmlite.binding as llvm
    import numba
    from numba.core.registry import cpu_target

    options: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    compiled: Any = numba.njit([numba_types(signature)], **options)(function)
    (made,) = compiled.overloads.values()
    if str(made.signature.return_type) not in ("none", "int64"):
        raise TypeError(f"{function.__name__} returns {made.signature.return_type}")
    text: str = compiled.inspect_llvm(compiled.signatures[0])
    module = llvm.parse_assembly(text)
    if _DESTRUCTOR in _undefined(module):
        pointer = "i8*" if "i8*" in text else "ptr"  # as LLVM wrote it before version 15, and since
        trap = "{ call void @llvm.trap() unreachable } declare void @llvm.trap()"
        module.link_in(llvm.parse_assembly(f"define void @{_DESTRUCTOR}({pointer} %0) {trap}"))
    # A missing function would end the process when the code is loaded.
    if missing := _undefined(module).difference(_LIBC):
        raise RuntimeError(f"{function.__name__} needs {', '.join(sorted(missing))}")
    code = cpu_target.target_context.codegen()._tm.emit_object(module)  # as Numba itself would
    head = {
        "symbol": made.fndesc.llvm_func_name,
        "signature": signature,
        "sha256": hashlib.sha256(code).hexdigest(),
    }
    return json.dumps(head).encode() + b"\n" + code


def _undefined(module: Any) -> set[str]:
    """Return the names that a module needs and does not define."""
    parts = (*module.functions, *module.global_variables)
    return {part.name for part in parts if part.is_declaration and not part.name.startswith("llvm.")}


def load(data: bytes) -> Native | None:
    """Return a kernel that `compile_` made; None for `NONE`.

    Raise an error if the data is damaged or cannot be loaded on this machine.
    """
    if data == NONE:
        return None
    head, _, code = data.partition(b"\n")
    about = json.loads(head)
    if hashlib.sha256(code).hexdigest() != about["sha256"]:
        raise ValueError("the object code is damaged")
    import llvmlite.binding as llvm

    engine = _engine()
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    address = engine.get_function_address(about["symbol"])
    if not address:
        raise KeyError(about["symbol"])
    return Native(address, about["signature"])


@cache
def machine() -> str:
    """Return a name for the CPU and its features: code is compiled for them."""
    import llvmlite.binding as llvm

    features = sorted(llvm.get_host_cpu_features().items())
    text = f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {features}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def _engine() -> Any:
    """Return what links object code into this process. It lives as long as the process, as the kernels do."""
    _check_platform()
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)


def _check_platform() -> None:
    if sys.platform != "linux":
        raise OSError("object code is loaded on Linux only; other systems are untested")
