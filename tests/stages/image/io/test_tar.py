"""Tar files of all formats, whole and damaged, against Python's `tarfile`."""

from __future__ import annotations

import io
import random
import secrets
import tarfile
from pathlib import Path

import pytest

from gristmill.stages.image.io.reader.tar import BAD_PAX, CUT, GARBAGE, FileStream, PieceStream, TarDamage, TarReader
from gristmill.stages.text.io.reader.files import open_regular


def read(data: bytes, path: Path | None = None) -> list[tuple[bytes, bytes | None, bool] | TarDamage]:
    """(name, data, whether it is a file) of each member, and each damage: of a file, or of odd pieces."""

    def all_of(tar: TarReader):
        for found in tar:
            if isinstance(found, TarDamage):
                yield found
            else:
                yield found.name, tar.data(found), found.is_regular

    if path is None:
        cuts = random.Random(len(data))
        pieces = []
        at = 0
        while at < len(data):
            step = cuts.choice((1, 100, 512, 5000, 100_000))
            pieces.append(data[at : at + step])
            at += step
        return list(all_of(TarReader(PieceStream(iter(pieces)))))
    path.write_bytes(data)
    with open_regular(str(path)) as file:
        return list(all_of(TarReader(FileStream(file))))


def random_tar(rng: random.Random, kind: int) -> tuple[bytes, list[int]]:
    """A tar file with members of all types, and where they begin."""
    sink = io.BytesIO()
    starts = []
    alphabet = "abc" if kind == tarfile.USTAR_FORMAT else "abcé"
    with tarfile.open(fileobj=sink, mode="w", format=kind) as tar:
        for n in range(rng.randrange(1, 40)):
            starts.append(sink.tell())
            length = rng.choice((5, 20, 98, 99, 100, 101, 150, 150 if kind == tarfile.USTAR_FORMAT else 400))
            letters = "".join(rng.choice(alphabet) for _ in range(length))
            name = "/".join(letters[i : i + 40] for i in range(0, len(letters), 40)) + f"{n}"
            info = tarfile.TarInfo(name)
            info.type = rng.choice((tarfile.REGTYPE,) * 6 + (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE))
            info.linkname = "target" * (20 if kind != tarfile.USTAR_FORMAT and rng.random() < 0.5 else 1)
            if info.type == tarfile.LNKTYPE and rng.random() < 0.5:
                info.type = rng.choice((tarfile.FIFOTYPE, tarfile.CHRTYPE))
            data = rng.randbytes(rng.choice((0, 1, 511, 512, 513, 3000))) if info.isreg() else b""
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return sink.getvalue(), starts


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_those_that_python_finds(tmp_path, kind):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(20):
        data, _ = random_tar(rng, kind)
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            expected = [
                (info.name.encode(), tar.extractfile(info).read() if info.isreg() else b"", info.isreg())
                for info in tar.getmembers()
            ]
        for found in (read(data), read(data, tmp_path / "a.tar")):
            plain = [(name.rstrip(b"/"), content, regular) for name, content, regular in found]
            assert plain == expected


def test_a_cut_anywhere_loses_nothing_before_it(tmp_path):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    data, _ = random_tar(rng, tarfile.GNU_FORMAT)
    whole = read(data)
    for cut in [rng.randrange(len(data)) for _ in range(60)]:
        found = read(data[:cut])
        assert found == read(data[:cut], tmp_path / "a.tar")
        damage = [one for one in found if isinstance(one, TarDamage)]
        members = [one for one in found if not isinstance(one, TarDamage)]
        complete = [one for one in members if one[1] is not None]
        assert complete == whole[: len(complete)]
        assert len(members) - len(complete) <= 1 and len(damage) <= 1
        if damage:
            assert damage[0].reason == CUT and damage[0].offset <= cut
            assert len(found) - len(damage) - (len(members) - len(complete)) == len(complete)


def test_members_after_garbage_are_read(tmp_path):
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(20):
        data, starts = random_tar(rng, tarfile.GNU_FORMAT)
        whole = read(data)
        where = rng.randrange(len(starts))
        garbage = rng.randbytes(512 * rng.randrange(1, 4000))
        broken = data[: starts[where]] + garbage + data[starts[where] :]
        found = read(broken)
        assert found == read(broken, tmp_path / "a.tar")
        assert found == [*whole[:where], TarDamage(starts[where], GARBAGE), *whole[where:]]


def test_a_damaged_header_costs_its_member(tmp_path):
    data = bytearray(random_tar(random.Random(5), tarfile.USTAR_FORMAT)[0])
    whole = read(bytes(data))
    data[124:128] = b"9999"
    found = read(bytes(data), tmp_path / "a.tar")
    assert found[0] == TarDamage(0, GARBAGE) and found[1:] == whole[1:]


def test_archives_in_a_row_are_read_to_the_end(tmp_path):
    first, second = (random_tar(random.Random(seed), tarfile.GNU_FORMAT)[0] for seed in (1, 2))
    expected = read(first) + read(second)
    assert read(first + second) == read(first + bytes(5 << 20) + second, tmp_path / "a.tar") == expected


@pytest.mark.parametrize("size", [b"-0000000001\0", b"0o7\0", b"7_7\0", b"\xff" * 12, b"\x81" + b"\xff" * 11])
def test_sizes_that_make_no_sense_are_damage(size):
    header = bytearray(random_tar(random.Random(3), tarfile.USTAR_FORMAT)[0][:512])
    header[124:136] = size.ljust(12, b"\0")
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    assert read(bytes(header)) == [TarDamage(0, GARBAGE)]


def test_a_huge_size_is_a_cut_and_takes_no_memory(tmp_path):
    info = tarfile.TarInfo("a.png")
    info.size = 8 << 40
    header = info.tobuf(tarfile.GNU_FORMAT)
    for found in (list(TarReader(PieceStream(iter([header, b"x" * 100])))),):
        assert found[1] == TarDamage(0, CUT, b"a.png")
    (tmp_path / "a.tar").write_bytes(header + b"x" * 100)
    with open_regular(str(tmp_path / "a.tar")) as file:
        assert list(TarReader(FileStream(file)))[1] == TarDamage(0, CUT, b"a.png")


@pytest.mark.parametrize("record", [b"99 path=a\n", b"x path=a\n", b"9 pathaa\n", b"1" * 30 + b" size=3\n"])
def test_a_damaged_pax_header_costs_one_record(record):
    info = tarfile.TarInfo("pax")
    info.type, info.size = tarfile.XHDTYPE, len(record)
    member = tarfile.TarInfo("a.png")
    member.size = 3
    data = info.tobuf() + record.ljust(512, b"\0") + member.tobuf() + b"abc".ljust(512, b"\0")
    assert read(data) == [TarDamage(0, BAD_PAX), (b"a.png", b"abc", True)]


def test_sparse_files_are_passed_over():
    info = tarfile.TarInfo("sparse.png")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 700
    header = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    header[482:483] = b"\1"
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    more = bytes(504) + b"\1" + bytes(7)
    last = bytes(512)
    member = tarfile.TarInfo("a.png")
    member.size = 3
    data = bytes(header) + more + last + b"s" * 700 + bytes(324) + member.tobuf() + b"abc".ljust(512, b"\0")
    found = read(data)
    assert [(name, regular) for name, _, regular in found] == [(b"sparse.png", False), (b"a.png", True)]
