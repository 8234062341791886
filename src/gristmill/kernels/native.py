"""Kernels as object code: made by Numba, loaded by llvmlite alone, called by addresses.

Importing Numba takes longer than all else that a worker loads together. What it compiles needs nothing of it at run
time as long as it allocates nothing, so the code is kept as LLVM emits it, and linked into the process anew.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from gristmill.lazy import np

NONE = b""
"""What is kept of a kernel that cannot be had as object code."""

_ARRAY = re.compile(r"Array\((\w+), (\d), 'C'(?:, readonly=True)?\)")
_SCALARS = {"int64": ctypes.c_int64, "uint64": ctypes.c_uint64}
_LIBC = ("memcpy", "memmove", "memset", "memcmp", "bcmp")
"""Functions outside of it that object code may call: every process has them."""
_DESTRUCTOR = "NRT_MemInfo_call_dtor"
"""Numba's, for an array that nobody holds any more. Ours all live in Python: it is never called."""
_DONE = (0, -2)
"""What compiled functions return if all went well: with a value, with None."""


class Native:
    """A kernel at an address. Arrays must be of the types it was compiled for, and contiguous."""

    def __init__(self, address: int, arguments: Sequence[str]) -> None:
        self._kinds: list[tuple[np.dtype[Any], int] | None] = []
        types: list[Any] = [ctypes.c_void_p, ctypes.c_void_p]
        for text in arguments:
            match = _ARRAY.fullmatch(text)
            if match is None:
                self._kinds.append(None)
                types.append(_SCALARS[text])
                continue
            dimensions = int(match[2])
            self._kinds.append((np.dtype(match[1].rstrip("_")), dimensions))
            # as Numba passes an array: who owns it (nobody), items, their size, where, shape, strides
            types += [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p]
            types += [ctypes.c_int64] * (2 * dimensions)
        self._function = ctypes.CFUNCTYPE(ctypes.c_int32, *types)(address)

    def __call__(self, *arguments: Any) -> int:
        result, error = ctypes.c_int64(), ctypes.c_void_p()
        flat: list[Any] = [ctypes.addressof(result), ctypes.addressof(error)]
        for kind, value in zip(self._kinds, arguments, strict=True):
            if kind is None:
                flat.append(int(value))
                continue
            if value.dtype != kind[0] or value.ndim != kind[1] or not value.flags.c_contiguous:
                raise TypeError(f"a kernel wants {kind[1]}-dimensional contiguous arrays of {kind[0]}, not {value!r}.")
            flat += (None, None, value.size, value.itemsize, value.ctypes.data, *value.shape, *value.strides)
        status = self._function(*flat)
        if status not in _DONE:
            raise RuntimeError(f"a kernel ended with status {status}.")
        return result.value


def compile_(function: Callable[..., Any], arguments: Sequence[str]) -> bytes:
    """A kernel for `load`. Raises some error if it cannot be made, or needs Numba at run time."""
    _check_platform()
    import llvmlite.binding as llvm
    import numba
    from numba.core.registry import cpu_target

    options: dict[str, Any] = {"nogil": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    compiled: Any = numba.njit([f"({', '.join(arguments)},)"], **options)(function)
    (made,) = compiled.overloads.values()
    if str(made.signature.return_type) not in ("none", "int64"):
        raise TypeError(f"{function.__name__} returns {made.signature.return_type}")
    text: str = compiled.inspect_llvm(compiled.signatures[0])
    module = llvm.parse_assembly(text)
    if _DESTRUCTOR in _wanted(module):
        pointer = "i8*" if "i8*" in text else "ptr"  # as LLVM wrote it before version 15, and since
        trap = "{ call void @llvm.trap() unreachable } declare void @llvm.trap()"
        module.link_in(llvm.parse_assembly(f"define void @{_DESTRUCTOR}({pointer} %0) {trap}"))
    # one that is not found when the code is loaded would end the process
    if missing := _wanted(module).difference(_LIBC):
        raise RuntimeError(f"{function.__name__} needs {', '.join(sorted(missing))}")
    code = cpu_target.target_context.codegen()._tm.emit_object(module)  # as Numba itself would
    head = {
        "symbol": made.fndesc.llvm_func_name,
        "arguments": list(arguments),
        "sha256": hashlib.sha256(code).hexdigest(),
    }
    return json.dumps(head).encode() + b"\n" + code


def _wanted(module: Any) -> set[str]:
    """What must be found elsewhere for a module to run."""
    parts = (*module.functions, *module.global_variables)
    return {part.name for part in parts if part.is_declaration and not part.name.startswith("llvm.")}


def load(data: bytes) -> Native | None:
    """A kernel that `compile_` made; None of `NONE`. Raises some error if it is damaged, or this is no place for it."""
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
    return Native(address, about["arguments"])


@cache
def machine() -> str:
    """What code is compiled for: a name for the CPU and what it can do."""
    import llvmlite.binding as llvm

    features = sorted(llvm.get_host_cpu_features().items())
    text = f"{llvm.get_process_triple()} {llvm.get_host_cpu_name()} {features}"
    return hashlib.sha256(text.encode()).hexdigest()[:12]


@cache
def _engine() -> Any:
    """What links object code into this process. It lives as long as that: so do the kernels."""
    _check_platform()
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple().create_target_machine(jit=True)
    return llvm.create_mcjit_compiler(llvm.parse_assembly(""), target)


def _check_platform() -> None:
    if sys.platform != "linux":
        raise OSError("object code is loaded on Linux only: nobody has tried it elsewhere")
