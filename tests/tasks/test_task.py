import pickle
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gristmill.tasks import EmptyTask, FileGroupTask, Task


@dataclass
class Numbers(Task[list]):
    data: list = field(default_factory=list)

    @property
    def num_items(self) -> int:
        return len(self.data)


@dataclass
class Plain(Task[list]):
    data: list = field(default_factory=list)


@dataclass
class Cuttable(Numbers):
    label: str = "none"

    def slice(self, start: int, stop: int) -> "Cuttable":
        return self._with_data(self.data[start:stop])


def test_a_subclass_need_define_nothing():
    task = Plain([1, 2])
    assert (task.data, task.num_items, task.validate(), task.slice(0, 1)) == ([1, 2], 1, True, None)
    assert (task.dataset_name, task.task_id, task._metadata) == ("", "", {})


def test_a_subclass_says_how_many_items_it_holds():
    assert Numbers([1, 2, 3], dataset_name="n").num_items == 3
    assert Numbers().num_items == 0


def test_tasks_do_not_share_what_defaults_make():
    a, b = Numbers(), Numbers()
    a.data.append(1)
    a._metadata["x"] = 1
    assert b == Numbers()


def test_a_slice_keeps_identity_and_extra_fields_and_shares_no_metadata():
    whole = Cuttable([1, 2, 3], task_id="4.2", dataset_name="d", _metadata={"a": 1}, label="x")
    part = whole.slice(1, 3)
    assert part == Cuttable([2, 3], task_id="4.2", dataset_name="d", _metadata={"a": 1}, label="x")
    part._metadata["a"] = 2
    assert whole._metadata == {"a": 1} and whole.data == [1, 2, 3]


def test_the_task_that_starts_a_pipeline_is_empty():
    task = EmptyTask()
    assert (task.data, task.num_items, task.slice(0, 1)) == (None, 0, None)


def test_a_file_group_is_cut_between_files():
    group = FileGroupTask(data=["a", "b", "c"], reader_config={"lines": True}, task_id="7")
    assert group.num_items == 3
    assert group.slice(1, 2) == FileGroupTask(data=["b"], reader_config={"lines": True}, task_id="7")
    assert pickle.loads(pickle.dumps(group)) == group


@pytest.mark.parametrize("one", ["a.jsonl", Path("a.jsonl")])
def test_a_file_group_of_one_path_that_is_no_list_is_refused(one):
    with pytest.raises(TypeError, match="list of paths"):
        FileGroupTask(data=one)
