"""Loads of 32 bytes at once, for kernels that look for rare bytes. Importing this loads Numba."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WIDTH = 32
"""How many bytes the masks below speak of; the caller sees to it that there are as many."""

_BYTES = ir.VectorType(ir.IntType(8), WIDTH)


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


def _load(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    address = _address(context, builder, signature.args[0], args[0], args[1])
    return builder.load(builder.bitcast(address, _BYTES.as_pointer()), align=1)


def _all(value: int) -> Any:
    return ir.Constant(_BYTES, [value] * WIDTH)


def _mask_of(test: Callable[[Any, Any], Any]) -> Any:
    """Bit ``j`` is set if byte ``index + j`` passes: ``test`` makes the code, of a builder and the bytes."""

    @intrinsic
    def mask(typing_context: Any, data: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            chunk = _load(context, builder, signature, args)
            return builder.bitcast(test(builder, chunk), ir.IntType(32))

        return types.uint32(data, types.intp), generate

    return mask


def _is(byte: int) -> Callable[[Any, Any], Any]:
    return lambda builder, chunk: builder.icmp_unsigned("==", chunk, _all(byte))


def _any_of(*tests: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda builder, chunk: functools.reduce(builder.or_, [test(builder, chunk) for test in tests])


def _is_control(builder: Any, chunk: Any) -> Any:
    return builder.icmp_unsigned("<", chunk, _all(32))


def _is_control_or_beyond_ascii(builder: Any, chunk: Any) -> Any:
    # as signed numbers, bytes beyond ASCII are negative: one comparison finds both
    return builder.icmp_signed("<", chunk, _all(32))


_QUOTE, _BACKSLASH = _is(ord('"')), _is(ord("\\"))

string_mask = _mask_of(_any_of(_is_control_or_beyond_ascii, _QUOTE, _BACKSLASH))
escape_mask = _mask_of(_any_of(_is_control, _QUOTE, _BACKSLASH))
backslash_mask = _mask_of(_BACKSLASH)
line_feed_mask = _mask_of(_is(ord("\n")))


@intrinsic
def first_bit(typing_context: Any, mask: Any) -> Any:
    """The lowest bit that is set in a mask that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.cttz(args[0], ir.Constant(ir.IntType(1), 1)), ir.IntType(64))

    return types.intp(types.uint32), generate


@intrinsic
def copy_bytes(typing_context: Any, target: Any, at: Any, source: Any, start: Any, count: Any) -> Any:
    """``target[at : at + count] = source[start : start + count]``, of arrays that do not overlap."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to = _address(context, builder, signature.args[0], args[0], args[1])
        from_ = _address(context, builder, signature.args[2], args[2], args[3])
        cgutils.raw_memcpy(builder, to, from_, args[4], 1)
        return context.get_dummy_value()

    return types.void(target, types.intp, source, types.intp, types.intp), generate
