from __future__ import annotations

from gristmill.tasks.names import block_of, block_of_file, part_name


def test_names_sort_as_the_documents_do():
    in_order = ["0", "7.0", "7.3.0", "7.3.11", "7.20", "7.99999", "7.100000", "7.1000000", "8[0:5]", "8[5:17]",
                "8[17:200]", "12[3].0", "12[3].1", "12[4:9][0:2]", "12[4:9][2:5]", "999999"]  # fmt: skip
    names = [part_name(ident, ".jsonl") for ident in in_order]
    assert names == sorted(names)
    assert len(set(names)) == len(names)


def test_names_are_plain():
    assert part_name("12", ".jsonl") == "part-000012.jsonl"
    assert part_name("12.3", ".jsonl.gz") == "part-000012.00003.jsonl.gz"
    assert part_name("a/b c", ".jsonl") == "part-a%2Fb%20c.jsonl"


def test_blocks_are_known_by_labels_and_files():
    assert [block_of(x) for x in ("12", "12.3", "12[4:5]", "12.0.1[2:3]")] == [12] * 4
    assert block_of_file("part-000012.00003.jsonl") == block_of_file("part-000012-00000004-00000005.jsonl") == 12
    assert block_of_file("part-z1234567.jsonl") == 1234567 and block_of_file("readme.md") is None
