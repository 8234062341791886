"""Loads of many bytes at once, for kernels that look for rare ones. Importing this loads Numba."""

from __future__ import annotations

import sys
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WIDTH = 32
"""How many bytes the masks below speak of; the caller sees to it that there are as many."""

_BYTES = ir.VectorType(ir.IntType(8), WIDTH)


_SIXTEEN = ir.VectorType(ir.IntType(8), 16)


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


def _load(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    address = _address(context, builder, signature.args[0], args[0], args[1])
    return builder.load(builder.bitcast(address, _BYTES.as_pointer()), align=1)


def _all(value: int) -> Any:
    return ir.Constant(_BYTES, [value] * WIDTH)


@intrinsic
def eight_at(typing_context: Any, data: Any, index: Any) -> Any:
    """The eight bytes from ``index`` as one number, the first in its lowest byte."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], args[0], args[1])
        value = builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)
        return value if sys.byteorder == "little" else builder.bswap(value)

    return types.uint64(data, types.intp), generate


@intrinsic
def string_mask(typing_context: Any, data: Any, index: Any) -> Any:
    """Bit ``j`` is set if byte ``index + j`` is a quote, a backslash, a control character or beyond ASCII."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        chunk = _load(context, builder, signature, args)
        # as signed numbers, bytes beyond ASCII are negative: one comparison finds them and the controls
        mask = builder.icmp_signed("<", chunk, _all(32))
        for byte in b'"\\':
            mask = builder.or_(mask, builder.icmp_unsigned("==", chunk, _all(byte)))
        return builder.bitcast(mask, ir.IntType(32))

    return types.uint32(data, types.intp), generate


@intrinsic
def visible_run(typing_context: Any, data: Any, index: Any) -> Any:
    """How many of the sixteen bytes from ``index`` on are visible ASCII up to the first that is not."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        address = _address(context, builder, signature.args[0], args[0], args[1])
        chunk = builder.load(builder.bitcast(address, _SIXTEEN.as_pointer()), align=1)
        others = builder.icmp_signed("<", chunk, ir.Constant(_SIXTEEN, [33] * 16))
        mask = builder.zext(builder.bitcast(others, ir.IntType(16)), ir.IntType(64))
        end = builder.or_(mask, ir.Constant(mask.type, 1 << 16))
        return builder.cttz(end, ir.Constant(ir.IntType(1), 1))

    return types.intp(data, types.intp), generate


@intrinsic
def beyond_ascii_mask(typing_context: Any, data: Any, index: Any) -> Any:
    """Bit ``j`` is set if byte ``index + j`` is beyond ASCII."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        chunk = _load(context, builder, signature, args)
        return builder.bitcast(builder.icmp_signed("<", chunk, _all(0)), ir.IntType(32))

    return types.uint32(data, types.intp), generate


@intrinsic
def symbol_mask(typing_context: Any, data: Any, index: Any) -> Any:
    """Bit ``j`` is set if byte ``index + j`` is a hash sign, 0xE2, or one of two full stops, but for the last.

    It looks at a byte more than the other masks.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        chunk = _load(context, builder, signature, args)
        behind = builder.add(args[1], ir.Constant(args[1].type, 1))
        next_ = _load(context, builder, signature, (args[0], behind))
        dots = [builder.icmp_unsigned("==", part, _all(0x2E)) for part in (chunk, next_)]
        mask = builder.and_(*dots)
        for byte in (0x23, 0xE2):
            mask = builder.or_(mask, builder.icmp_unsigned("==", chunk, _all(byte)))
        return builder.bitcast(mask, ir.IntType(32))

    return types.uint32(data, types.intp), generate


def _mask_of(byte: int) -> Any:
    """Bit ``j`` is set if byte ``index + j`` is this one."""

    @intrinsic
    def mask(typing_context: Any, data: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            chunk = _load(context, builder, signature, args)
            return builder.bitcast(builder.icmp_unsigned("==", chunk, _all(byte)), ir.IntType(32))

        return types.uint32(data, types.intp), generate

    return mask


backslash_mask = _mask_of(ord("\\"))
line_feed_mask = _mask_of(ord("\n"))


@intrinsic
def escape_mask(typing_context: Any, data: Any, index: Any) -> Any:
    """Bit ``j`` is set if byte ``index + j`` is a quote, a backslash or a control character."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        chunk = _load(context, builder, signature, args)
        mask = builder.icmp_unsigned("<", chunk, _all(32))
        for byte in b'"\\':
            mask = builder.or_(mask, builder.icmp_unsigned("==", chunk, _all(byte)))
        return builder.bitcast(mask, ir.IntType(32))

    return types.uint32(data, types.intp), generate


@intrinsic
def first_bit(typing_context: Any, mask: Any) -> Any:
    """The lowest bit that is set in a mask that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.cttz(args[0], ir.Constant(ir.IntType(1), 1)), ir.IntType(64))

    return types.intp(types.uint32), generate


@intrinsic
def bits_in(typing_context: Any, mask: Any) -> Any:
    """How many bits are set in a mask."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.ctpop(args[0]), ir.IntType(64))

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
