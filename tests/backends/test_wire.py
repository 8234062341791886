"""Messages and payloads, without a run."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import cloudpickle
import numpy as np
import pytest

from gristmill.backends.engine.account import KeptOutputs
from gristmill.backends.engine.names import LocalNames
from gristmill.backends.engine.payload import pack, unpack
from gristmill.backends.engine.protocol import (
    FROM_WORKER,
    TO_WORKER,
    AddArena,
    DropArena,
    Finished,
    NodeReady,
    RunUnit,
    TaskInput,
    TaskOutput,
    mark,
    read_mark,
)
from gristmill.backends.engine.worker import Limits
from gristmill.backends.local.arena import ArenaWriter, new_arena, read_arena
from gristmill.backends.local.processes import Processes
from gristmill.backends.local.wire import Channel, Closed
from gristmill.tasks import Task


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """One that does not wait, and one that does."""
    a, b = socket.socketpair()
    a.setblocking(False)
    ends = Channel(a, TO_WORKER, FROM_WORKER), Channel(b, FROM_WORKER, TO_WORKER)
    yield ends
    for end in ends:
        end.close()


def unit(number: int, payload: bytes) -> RunUnit:
    return RunUnit(0, number, (TaskInput(number, str(number), payload, None, 0, len(payload), 0, 0, 0, ()),))


def finished(payload: bytes) -> Finished:
    return Finished(1, 5, [(1,) * 7], {}, (TaskOutput(1, "1", 1, True, payload, 0, len(payload)),))


def test_messages_arrive_as_they_were_sent(ends):
    ours, theirs = ends
    ours.send([unit(1, b"x"), RunUnit(0, 2, ()), AddArena(3)])
    run, empty, arena = theirs.receive()
    assert (type(run), type(run.inputs[0]), type(empty), type(arena)) == (RunUnit, TaskInput, RunUnit, AddArena)
    assert run.inputs[0].payload == b"x" and not empty.inputs
    theirs.send([finished(b"x")])
    (message,) = ours.receive()
    assert (type(message), type(message.outputs[0])) == (Finished, TaskOutput)
    assert message == finished(b"x")


def test_a_frame_larger_than_the_socket_waits_for_its_reader(ends):
    ours, theirs = ends
    messages = [unit(i, b"x" * 100_000) for i in range(50)]
    ours.send(messages)
    ours.send([AddArena(1)])
    assert ours.pending
    got: list[object] = []
    reader = threading.Thread(target=lambda: [got.extend(theirs.receive()) for _ in iter(lambda: len(got) < 51, False)])
    reader.start()
    while not ours.flush():
        pass
    reader.join()
    assert got == [*messages, AddArena(1)]


def test_a_partial_frame_is_no_message(ends):
    ours, theirs = ends
    theirs.send([NodeReady(1, "whole")])
    data = bytearray()
    data += ours.sock.recv(1 << 16)
    theirs.sock.send(data[:-3])
    assert list(ours.receive()) == []
    theirs.sock.send(data[-3:])
    assert list(ours.receive()) == [NodeReady(1, "whole")]


def test_what_a_dead_end_left_is_read_to_its_end(ends):
    ours, theirs = ends
    frames = [[finished(bytes([i]) * 30_000)] for i in range(5)]
    writer = threading.Thread(target=lambda: [theirs.send(frame) for frame in frames])
    writer.start()
    got = []
    while len(got) < 2:
        got += ours.receive()
    writer.join()
    theirs.sock.send(b"\x10\0\0\0\0\0\0\0only half")
    theirs.close()
    got += ours.drain()
    assert got == [frame[0] for frame in frames]
    assert list(ours.drain()) == []
    with pytest.raises(Closed):
        ours.receive()


def test_descriptors_travel_with_their_message_and_stay_the_senders(ends):
    ours, theirs = ends
    ours.send([unit(1, b"z" * 1_000_000)])
    fd = new_arena()
    os.write(fd, b"hello")
    before = len(os.listdir("/proc/self/fd"))
    ours.send([AddArena(1)], [fd])
    os.close(fd)  # although it may not be on its way yet
    got: list[object] = []
    reader = threading.Thread(target=lambda: [got.extend(theirs.receive()) for _ in iter(lambda: len(got) < 2, False)])
    reader.start()
    while not ours.flush():
        pass
    reader.join()
    received = theirs.fds.popleft()
    assert os.pread(received, 10, 0) == b"hello"
    assert not os.get_inheritable(received)
    os.close(received)
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_sending_to_a_dead_end_is_harmless(ends):
    ours, theirs = ends
    fd = new_arena()
    ours.send([unit(1, b"x" * 1_000_000)], [fd])
    theirs.close()
    ours.send([DropArena(1)], [fd])
    assert ours.flush() and not ours.pending
    os.close(fd)


def test_space_in_an_arena_is_used_again_and_given_back():
    fd = new_arena()
    writer = ArenaWriter(fd, retain=1 << 20)
    offset, length = writer.write([b"a" * 500_000])
    writer.free(offset, length)
    assert writer.write([b"b" * 500_000]) == (offset, length)
    places = [writer.write([bytes([i]) * 1_000_000]) for i in range(20)]
    assert read_arena(fd, *places[7]) == bytes([7]) * 1_000_000
    for place in places:
        writer.free(*place)
    assert os.fstat(fd).st_blocks * 512 < 3 << 20
    assert read_arena(fd, offset, length) == b"b" * 500_000
    os.close(fd)


@pytest.mark.parametrize("count", [1, 511, 512, 513, 2000])
def test_payloads_with_many_buffers(count):
    task = Task(data=[np.full(i % 7, i) for i in range(count)])
    fd = new_arena()
    writer = ArenaWriter(fd, 0)
    writer.write([b"something before"])
    again = unpack(read_arena(fd, *writer.write(pack(task, LocalNames()))))
    assert all((x == y).all() and y.flags.writeable for x, y in zip(task.data, again.data, strict=True))
    os.close(fd)


def test_a_new_worker_does_not_inherit_the_mark_of_the_worker_before_it_in_the_slot():
    processes = Processes()
    try:
        processes.load(False, cloudpickle.dumps(([], {})), Limits(1 << 20, 0, False, 0))
        first = processes.start(0, -1, 1.0, (), (), 0.0)
        mark(processes.slots, first.slot, 7, 1, 2)
        processes.ended(first)
        second = processes.start(1, -1, 1.0, (), (), 0.0)
        assert second.slot == first.slot
        assert read_mark(processes.slots, second.slot) == (None, 0, None)
    finally:
        processes.close()


def test_outputs_are_in_the_order_of_the_source():
    kept = KeptOutputs(True, True)
    labels = ["0", "1[0:5]", "1[5:10]", "1[10:12].0", "2.0", "2.1", "2.10", "3.1[0:50]", "3.1[50:70]", "3.2", "10"]
    for label in reversed(labels):
        kept.add(label, b"".join(pack(Task(data=label))))
    assert [task.data for task in kept.tasks() or ()] == labels
