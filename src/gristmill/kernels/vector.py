"""Loads of many bytes at once, for kernels that look for rare bytes. Importing this module loads Numba."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

WIDTH = 32
"""The number of bytes in a mask. The caller makes sure that the array has as many."""

_MASK = ir.IntType(WIDTH)
_WORD = ir.IntType(64)
_SIXTEEN = ir.VectorType(ir.IntType(8), 16)
_ZERO_IS_POISON = ir.Constant(ir.IntType(1), 1)


def _all(value: int, width: int = WIDTH) -> Any:
    return ir.Constant(ir.VectorType(ir.IntType(8), width), [value] * width)


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any) -> Any:
    return builder.gep(context.make_array(kind)(context, builder, array).data, [index])


def _load(context: Any, builder: Any, signature: Any, args: Any, kind: Any) -> Any:
    address = _address(context, builder, signature.args[0], args[0], args[1])
    return builder.load(builder.bitcast(address, kind.as_pointer()), align=1)


def _mask_of(test: Callable[[Any, Any], Any]) -> Any:
    """Return a function of an array and an index that tests `WIDTH` bytes: bit ``j`` is for byte ``index + j``.

    ``test`` gets the builder and a function that loads the bytes from ``index`` on, or a number of bytes later.
    """

    @intrinsic
    def mask(typing_context: Any, data: Any, index: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            def load(later: int = 0) -> Any:
                place = builder.add(args[1], ir.Constant(args[1].type, later))
                return _load(context, builder, signature, (args[0], place), _all(0).type)

            return builder.bitcast(test(builder, load), _MASK)

        return types.uint32(data, types.intp), generate

    return mask


def _or_equal(builder: Any, mask: Any, chunk: Any, values: bytes) -> Any:
    for byte in values:
        mask = builder.or_(mask, builder.icmp_unsigned("==", chunk, _all(byte)))
    return mask


def _is_string_end(builder: Any, load: Callable[..., Any]) -> Any:
    # As signed numbers, bytes beyond ASCII are negative: one comparison finds them and the control characters.
    return _or_equal(builder, builder.icmp_signed("<", load(), _all(32)), load(), b'"\\')


def _is_symbol(builder: Any, load: Callable[..., Any]) -> Any:
    two_stops = builder.and_(*(builder.icmp_unsigned("==", load(later), _all(0x2E)) for later in (0, 1)))
    return _or_equal(builder, two_stops, load(), b"#\xe2")


string_mask = _mask_of(_is_string_end)
"""Quotes, backslashes, control characters and bytes beyond ASCII."""
escape_mask = _mask_of(
    lambda builder, load: _or_equal(builder, builder.icmp_unsigned("<", load(), _all(32)), load(), b'"\\')
)
"""Quotes, backslashes and control characters."""
symbol_mask = _mask_of(_is_symbol)
"""Hash signs, 0xE2, and full stops before another one. It reads one byte more than the other masks."""
beyond_ascii_mask = _mask_of(lambda builder, load: builder.icmp_signed("<", load(), _all(0)))
backslash_mask = _mask_of(lambda builder, load: builder.icmp_unsigned("==", load(), _all(ord("\\"))))
line_feed_mask = _mask_of(lambda builder, load: builder.icmp_unsigned("==", load(), _all(ord("\n"))))


@intrinsic
def eight_at(typing_context: Any, data: Any, index: Any) -> Any:
    """Return the eight bytes from ``index`` on as one number, the first in its lowest byte."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        value = _load(context, builder, signature, args, _WORD)
        return value if sys.byteorder == "little" else builder.bswap(value)

    return types.uint64(data, types.intp), generate


@intrinsic
def visible_run(typing_context: Any, data: Any, index: Any) -> Any:
    """Return how many of the sixteen bytes from ``index`` on come before the first that is not visible ASCII."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        others = builder.icmp_signed("<", _load(context, builder, signature, args, _SIXTEEN), _all(33, 16))
        mask = builder.zext(builder.bitcast(others, ir.IntType(16)), _WORD)
        return builder.cttz(builder.or_(mask, ir.Constant(_WORD, 1 << 16)), _ZERO_IS_POISON)

    return types.intp(data, types.intp), generate


@intrinsic
def first_bit(typing_context: Any, mask: Any) -> Any:
    """Return the lowest bit that is set in a mask that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.cttz(args[0], _ZERO_IS_POISON), _WORD)

    return types.intp(types.uint32), generate


@intrinsic
def bits_in(typing_context: Any, mask: Any) -> Any:
    """Return how many bits are set in a mask."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.zext(builder.ctpop(args[0]), _WORD)

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
