"""Helpers of hashing kernels. Importing this module loads Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gristmill.kernels import constants
from gristmill.kernels.compile import helper

MIX_1 = np.uint64(constants.MIX_1)
MIX_2 = np.uint64(constants.MIX_2)
STEP = np.uint64(constants.STEP)
FOLD = np.uint64(constants.FOLD)
LENGTH = np.uint64(constants.LENGTH)


@helper
def mixed(value):
    """Return the same as `constants.mixed`."""
    value = (value ^ (value >> np.uint64(30))) * MIX_1
    value = (value ^ (value >> np.uint64(27))) * MIX_2
    return value ^ (value >> np.uint64(31))


@helper
def remixed(value, salt):
    """Return another hash of a number that is a good hash already."""
    value = (value ^ salt) * MIX_1
    return (value ^ (value >> np.uint64(32))) * MIX_2


@intrinsic
def folded_product(typing_context: Any, left: Any, right: Any) -> Any:
    """Return the upper half of a product of 128 bits, xor the lower half."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        upper = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))
        folded = builder.xor(upper, builder.trunc(product, ir.IntType(64)))
        # Empty assembly that LLVM cannot optimize: it would build vectors of numbers and take them apart again.
        kind = ir.FunctionType(ir.IntType(64), [ir.IntType(64)])
        return builder.asm(kind, "", "=r,0", [folded], side_effect=True)

    return types.uint64(types.uint64, types.uint64), generate


@intrinsic
def product_32(typing_context: Any, left: Any, right: Any) -> Any:
    """Return a product of 32 bits. Numba would convert the factors to 64 bits first."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.mul(*args)

    return types.uint32(types.uint32, types.uint32), generate
