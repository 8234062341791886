"""Headers and pixels of images in all formats, upright, and the images that are refused."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image, ImageFile, ImageOps

from gristmill.images import BadImage, jpeg
from gristmill.images.decode import MOST_SCANS, decode, read, read_header
from tests.images.made import COLOURS, busy, encoded, grey16, picture, samples, turned

LOSSY = 12
"""How far a colour of a lossy format may be off, in the middle of an area of one colour."""


def corners(pixels: np.ndarray) -> np.ndarray:
    """The colours in the middle of the four quarters."""
    height, width = pixels.shape[:2]
    return pixels[np.ix_([height // 4, 3 * height // 4], [width // 4, 3 * width // 4])].astype(int)


def refused(data: bytes, **options) -> str:
    with pytest.raises(BadImage) as caught:
        read(data, **options)
    return str(caught.value)


@pytest.mark.parametrize("name", [name for name in samples(simple=True) if "16 bit" not in name])
def test_every_format_gives_upright_rgb(name):
    data = samples(simple=True)[name]
    header, pixels = read(data)
    wanted = {"jpeg exif": np.rot90(COLOURS, 3), "png exif": np.rot90(COLOURS, 2), "tiff deflate": np.rot90(COLOURS, 1)}
    size = (96, 64) if name in ("jpeg exif", "tiff deflate") else (64, 96)
    assert (pixels.dtype, pixels.shape) == (np.uint8, (*size, 3))
    assert (header.height, header.width) == size
    colours = wanted.get(name, COLOURS).astype(int)
    if any(grey in name for grey in ("grey", "1 bit", "float")):
        assert np.ptp(corners(pixels), axis=2).max() <= 2  # the three channels are the same
        if "1 bit" not in name:
            light = np.asarray(Image.fromarray(colours.astype(np.uint8)).convert("L")).astype(int)
            assert np.abs(corners(pixels)[:, :, 0] - light).max() <= 3
    elif "cmyk" in name or "palette" in name or "gif" in name or "webp" in name or "avif" in name or "jpeg" in name:
        assert np.abs(corners(pixels) - colours).max() <= LOSSY
    else:
        assert (corners(pixels) == colours).all()


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_16_bits_become_8(kind):
    pixels = decode(encoded(grey16(), kind))
    assert pixels.shape == (64, 96, 3)
    assert (pixels[0, :, 1] == (np.linspace(0, 65535, 96).astype(int) >> 8)).all()


def test_transparent_pixels_are_white():
    image = picture().convert("RGBA")
    image.putalpha(Image.fromarray(np.tile(np.array([0, 255], np.uint8).repeat(48), (64, 1))))
    for kind in ("PNG", "WEBP", "TIFF"):
        options = {"lossless": True} if kind == "WEBP" else {}
        pixels = decode(encoded(image, kind, **options))
        assert (pixels[:, :48] == 255).all()
        assert (corners(pixels)[:, 1] == COLOURS[:, 1]).all()
    palette = picture().quantize(8)
    data = encoded(palette, "PNG", transparency=palette.getpixel((0, 0)))
    assert (corners(decode(data))[0, 0] == 255).all()


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "AVIF", "TIFF"])
@pytest.mark.parametrize("short_side", [None, 20])
def test_the_exif_orientation_is_applied_once(kind, orientation, short_side):
    image = picture(400, 200)
    data = encoded(image, kind, exif=turned(orientation), **({"quality": 95} if kind == "JPEG" else {}))
    header, pixels = read(data, short_side)
    wanted = ImageOps.exif_transpose(Image.open(io.BytesIO(encoded(image, "PNG", exif=turned(orientation)))))
    assert (header.width, header.height) == wanted.size
    assert read_header(data) == header
    assert np.abs(corners(pixels) - corners(np.asarray(wanted.convert("RGB")))).max() <= LOSSY
    factor = 1 if short_side is None else 8 if kind == "JPEG" else 10
    assert pixels.shape[:2] == (wanted.height // factor, wanted.width // factor)


def test_exif_after_the_pixels_of_a_png_counts():
    data = encoded(picture(), "PNG", exif=turned(6))
    start = data.index(b"eXIf") - 4
    size = 12 + struct.unpack(">I", data[start : start + 4])[0]
    end = data.index(b"IEND") - 4
    moved = data[:start] + data[start + size : end] + data[start : start + size] + data[end:]
    assert read_header(moved).orientation == 6
    assert (decode(moved) == decode(data)).all()


@pytest.mark.parametrize(
    "damage", [b"\xff" * 20, b"Exif\0\0MM\0*\xff\xff\xff\xff", b"Exif\0\0II*\0\x08\0\0\0\xff\xff", b""]
)
def test_damaged_exif_costs_the_orientation_only(damage):
    header, pixels = read(encoded(picture(), "JPEG", exif=damage, quality=95))
    assert (header.width, header.height, header.orientation) == (96, 64, 1)
    assert np.abs(corners(pixels) - COLOURS).max() <= LOSSY
    odd = turned(9)
    assert read_header(encoded(picture(), "JPEG", exif=odd)).orientation == 1


def test_a_jpeg_is_decoded_at_the_smallest_scale_that_has_the_short_side():
    data = encoded(busy(1200, 900), "JPEG")
    shapes = {side: decode(data, side).shape[:2] for side in (450, 300, 225, 113, 112, 50)}
    half, quarter, eighth = (450, 600), (225, 300), (113, 150)
    assert shapes == {450: half, 300: half, 225: quarter, 113: quarter, 112: eighth, 50: (57, 75)}
    assert decode(data, 2000).shape[:2] == (900, 1200)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_other_formats_are_reduced_by_whole_numbers_too(kind):
    image = busy(1100, 700)
    pixels = decode(encoded(image, kind), 256)
    assert pixels.shape[:2] == (350, 550)
    assert np.abs(pixels.astype(int) - np.asarray(image.reduce(2)).astype(int)).mean() < LOSSY / 2


def test_long_narrow_images_are_reduced_too():
    pixels = decode(encoded(Image.new("L", (60000, 300)), "PNG"), 256)
    assert pixels.shape[:2] == (60, 12000)
    assert decode(encoded(Image.new("L", (60000, 1)), "PNG"), 256).shape[:2] == (1, 60000)
    assert decode(encoded(Image.new("L", (3000, 1500)), "PNG"), 1400).shape[:2] == (1500, 3000)


def test_the_first_frame_counts_and_frames_are_counted():
    found = {name: read_header(data).frames for name, data in samples().items()}
    assert {name: frames for name, frames in found.items() if frames > 1} == {
        name: 3 for name in ("webp animated", "avif animated", "gif animated", "tiff pages")
    }
    whole = samples()["gif animated"]
    header, pixels = read(whole[: len(whole) - 5])  # the last frame is cut
    assert header.format == "GIF"
    assert (pixels == decode(whole)).all()


@pytest.mark.parametrize("name", samples())
def test_the_header_is_the_same_with_and_without_pixels(name):
    data = samples()[name]
    assert read_header(data) == read(data)[0] == read_header(memoryview(data)) == read(memoryview(data), 64)[0]


@pytest.mark.parametrize("name", samples())
@pytest.mark.parametrize("short_side", [None, 64])
def test_bytes_in_arrow_give_the_same(name, short_side):
    value = pa.array([b"x", samples()[name]], pa.large_binary())[1]
    view = memoryview(value.as_buffer())
    assert np.array_equal(decode(view, short_side), decode(samples()[name], short_side))
    half = view[: len(view) // 2]
    if name.startswith("jpeg") and "2000" not in name:
        assert refused(half) == refused(bytes(half)) == "truncated"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "empty"),
        (b"\0" * 1000, "not an image of a known format"),
        (b"<html>not found</html>", "not an image of a known format"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "not an image of a known format"),
    ],
)
def test_other_bytes_are_refused(data, reason):
    assert refused(data) == reason
    with pytest.raises(BadImage, match=reason):
        read_header(data)


@pytest.mark.parametrize("name", [name for name in samples() if name.startswith("jpeg ") and "2000" not in name])
@pytest.mark.parametrize("short_side", [None, 64])
def test_a_truncated_jpeg_is_refused_and_never_half_grey(name, short_side):
    data = samples()[name]
    for share in (0.3, 0.5, 0.9):
        assert refused(data[: int(len(data) * share)], short_side=short_side) == "truncated"


def test_truncated_images_are_refused_even_if_pillow_is_set_to_load_them(monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    data = samples()["jpeg cmyk"]
    assert refused(data[: len(data) // 2]) == "truncated"
    assert ImageFile.LOAD_TRUNCATED_IMAGES is True  # as the other library has set it


def test_the_limits_of_pillow_are_as_before(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    data = encoded(picture(), "PNG")
    assert read_header(data).width == 96  # 6,144 pixels, more than Pillow's limit
    assert Image.MAX_IMAGE_PIXELS == 1000
    assert refused(data, max_pixels=96 * 64 - 1) == "too many pixels"
    assert read(data, max_pixels=96 * 64)[1].shape == (64, 96, 3)
    assert Image.MAX_IMAGE_PIXELS == 1000


def png_chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def bombs(side: int = 20_000) -> dict[str, bytes]:
    """Small files that declare very large images."""
    small = samples(simple=True)
    sizes = struct.pack(">II", side, side)
    png = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", sizes + b"\x08\x02\0\0\0")
    png += png_chunk(b"IDAT", zlib.compress(bytes(1000))) + png_chunk(b"IEND", b"")
    jpeg_at = small["jpeg"].index(b"\xff\xc0") + 5
    jpg = small["jpeg"][:jpeg_at] + struct.pack(">HH", side, side) + small["jpeg"][jpeg_at + 4 :]
    gif = small["gif"][:6] + struct.pack("<HH", side, side) + small["gif"][10:]
    bmp = small["bmp"][:18] + struct.pack("<ii", side, side) + small["bmp"][26:]
    canvas = (side - 1).to_bytes(3, "little") * 2
    vp8x = b"VP8X" + struct.pack("<I", 10) + b"\0\0\0\0" + canvas
    chunks = b"WEBP" + vp8x + small["webp"][12:]
    webp = b"RIFF" + struct.pack("<I", len(chunks)) + chunks
    ppm = b"P6 %d %d 255\n" % (side, side) + bytes(100)
    buffer = io.BytesIO()
    Image.new("1", (8, 8)).save(buffer, "TIFF", compression="group4")
    tiff = bytearray(buffer.getvalue())
    directory = struct.unpack("<I", tiff[4:8])[0]
    for n in range(struct.unpack("<H", tiff[directory : directory + 2])[0]):
        at = directory + 2 + 12 * n
        if struct.unpack("<H", tiff[at : at + 2])[0] in (256, 257):
            tiff[at + 2 : at + 12] = struct.pack("<HII", 4, 1, side)
    j2k = small["jpeg 2000"]
    at = j2k.index(b"ihdr") + 4
    j2k = j2k[:at] + sizes + j2k[at + 8 :]
    return {"png": png, "jpeg": jpg, "gif": gif, "bmp": bmp, "webp": webp, "ppm": ppm, "tiff": bytes(tiff), "j2k": j2k}


@pytest.mark.parametrize("name", bombs())
def test_a_bomb_is_refused(name):
    data = bombs()[name]
    assert len(data) < 20_000
    assert refused(data) == "too many pixels"
    assert refused(data, short_side=256) == "too many pixels"


def test_no_memory_is_allocated_for_bombs(tmp_path):
    """In a process that may have 600 MB more than it has: one bomb would need 1,200 MB."""
    script = """
import resource, sys
from gristmill.images.decode import BadImage, read
from tests.images.made import encoded, picture
from tests.images.test_decode import bombs
read(encoded(picture(), "AVIF"))
made = bombs()
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 600_000_000, size + 600_000_000))
for data in made.values():
    for options in ({}, {"short_side": 256}):
        try:
            read(data, **options)
        except BadImage as error:
            print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["too many pixels"] * 16


@pytest.mark.parametrize("name", [name for name in samples() if name.startswith("jpeg") and "2000" not in name])
@pytest.mark.parametrize("short_side", [None, 64])
def test_a_truncated_jpeg_with_an_end_marker_is_refused_too(name, short_side):
    pytest.importorskip("simplejpeg")
    data = samples()[name]
    for share in (0.5, 0.9):
        assert refused(data[: int(len(data) * share)] + b"\xff\xd9", short_side=short_side) == "truncated"


def test_sizes_that_the_bytes_do_not_bear_out_are_refused():
    """Declared larger than the data, but within the limit."""
    pytest.importorskip("simplejpeg")
    for name, data in bombs(4_000).items():
        if name == "gif":
            continue  # a frame may be smaller than the canvas
        assert refused(data, short_side=256) in ("truncated", "damaged"), name


def test_a_jpeg_of_very_many_scans_is_refused():
    data = samples()["jpeg progressive"]
    first = data.index(b"\xff\xda")
    scan = data[first : data.index(b"\xff", first + 2 + 8)]
    many = data[:first] + scan * (MOST_SCANS + 1) + data[first:]
    assert refused(many) == "too many scans"


@pytest.mark.parametrize("name", [name for name in samples() if name.startswith("jpeg") and "2000" not in name])
@pytest.mark.parametrize("short_side", [None, 130, 64, 32])
def test_simplejpeg_gives_the_pixels_of_pillow(name, short_side, monkeypatch):
    pytest.importorskip("simplejpeg")
    data = samples()[name]
    fast = decode(data, short_side)
    assert (
        np.array_equal(np.asarray(Image.open(io.BytesIO(data)).convert("RGB")), decode(samples()[name]))
        or "exif" in name
    )
    monkeypatch.setattr(jpeg, "decoder", lambda: None)
    assert np.array_equal(fast, decode(data, short_side))


def test_simplejpeg_is_used_only_if_its_pixels_are_those_of_pillow(monkeypatch):
    simplejpeg = pytest.importorskip("simplejpeg")
    real = simplejpeg.decode_jpeg

    def other(data, *args, **options):
        pixels = real(data, *args, **options).copy()
        pixels[-1, -1, 0] ^= 1
        return pixels

    data = samples()["jpeg"]
    monkeypatch.setattr(simplejpeg, "decode_jpeg", other)
    check = jpeg.decoder.__wrapped__()
    assert check(data, "RGB", (300, 260)) is None
    with pytest.raises(BadImage, match="truncated"):
        check(data[: len(data) // 2] + b"\xff\xd9", "RGB", (300, 260))
    monkeypatch.setattr(simplejpeg, "decode_jpeg", real)
    assert jpeg.decoder.__wrapped__()(data, "RGB", (300, 260)).shape == (260, 300, 3)
