"""Does it fit? The memory that a request needs, found on the meta device before anything is allocated.

The step is run on meta tensors, and the bytes of all storages alive are followed (:class:`apps.meta.PeakMemory`):
parameters, buffers and inputs, then activations, gradients and the optimizer's state at the worst moment. What a real
device needs beyond that (its context, libraries' workspaces, rounding) is added as a flat amount, so the result is an
estimate and is called one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from apps.catalogue import BadRequest, Entry
from apps.workload import Request

#: Context and library workspaces of a CUDA process; read off nvidia-smi for small models it is 0.4 to 0.7 GB.
CUDA_OVERHEAD = 600_000_000
#: A caching allocator holds more than is alive: rounding and fragments.
ALLOCATOR = 1.05


class DoesNotFit(BadRequest):
    """The request needs more memory than the device has free; the message names a batch that fits, if one does."""


@dataclass(frozen=True)
class Memory:
    """Bytes, estimated. ``resident`` is what stays between steps: parameters, buffers, inputs, caches, gradients and
    the optimizer's state; ``peak`` is the worst moment, building included; ``total`` is what a device needs for it."""

    parameters: int
    resident: int
    peak: int
    device: str

    @property
    def total(self) -> int:
        overhead = CUDA_OVERHEAD if self.device.startswith("cuda") else 0
        return int(self.peak * ALLOCATOR) + overhead


def estimate(entry: Entry, request: Request) -> Memory:
    """Memory of this request. Loads torch and builds the model on the meta device: under a second for most.

    Raises :class:`BadRequest` when the sizes of this mode depend on the data, so that it cannot run there.
    """
    from apps.meta import PeakMemory

    if request.mode in entry.data_dependent:
        raise BadRequest(f"{entry.name}: in mode {request.mode} sizes depend on the data; its memory is not estimated")
    build = entry.load()
    memory = PeakMemory()
    with memory:
        built = build(replace(request, device="meta"))
        built.step()
        # Gradients and the optimizer's state are there from the second step on.
        built.step()
        resident = memory.live
    parameters = 0 if built.module is None else sum(p.nbytes for p in built.module.parameters())
    return Memory(parameters, resident, memory.peak, request.device)


def check(entry: Entry, request: Request, free_bytes: int) -> int:
    """Bytes that the request needs, estimated, if they are within ``free_bytes``; else raises :class:`DoesNotFit`.

    The catalogue's figure, scaled, settles what is far from the limit, and what cannot run on the meta device; the
    rest is estimated, which takes a second or a few.
    """
    stored = from_catalogue(entry, request)
    measurable = request.mode not in entry.data_dependent
    if stored and (stored < free_bytes / 2 or (not measurable and stored <= free_bytes)):
        return stored
    if not measurable:
        if not stored:
            return 0
        batch = min(request.batch - 1, int(request.batch * free_bytes / stored))
        raise DoesNotFit(_refusal(entry, request, stored, free_bytes, batch))
    total = estimate(entry, request).total
    if total <= free_bytes:
        return total
    raise DoesNotFit(_refusal(entry, request, total, free_bytes, largest_batch(entry, request, free_bytes)))


def from_catalogue(entry: Entry, request: Request) -> int:
    """Bytes by the catalogue's figure for the full size, scaled up in proportion to batch, sequence and precision (never
    down); 0 when there is no figure, or when attention stores its matrix and so grows faster than the sequence."""
    size = entry.sizes["full"]
    if request.size == "tiny" or request.mode not in size.memory_gb or request.attention == "eager":
        return 0
    normal = entry.request(mode=request.mode, device="cuda")
    scale = max(1.0, request.batch / normal.batch)
    if request.seq and normal.seq:
        scale *= max(1.0, request.seq / normal.seq)
    if request.dtype == "fp32" != normal.dtype:
        scale *= 2
    return int(size.memory_gb[request.mode] * 1e9 * scale) if request.size == "full" else 0


def _refusal(entry: Entry, request: Request, total: int, free_bytes: int, batch: int) -> str:
    seq = "" if request.seq is None else f", seq {request.seq}"
    head = (
        f"{entry.name} {request.size} {request.mode} {request.dtype}, batch {request.batch}{seq} needs about"
        f" {_gb(total)} on {request.device}, where {_gb(free_bytes)} are free"
    )
    if batch >= 1:
        return f"{head}; batch {batch} fits"
    others = " or ".join(s for s in entry.sizes if s != request.size)
    return f"{head}; no batch fits: try size {others}, another dtype or a larger device"


def largest_batch(entry: Entry, request: Request, free_bytes: int) -> int:
    """A batch below ``request.batch`` that fits, close to the largest one; 0 when not even one sample fits.

    Memory grows about linearly with the batch, so two estimates give a guess, and further ones prove it.
    """

    def total(batch: int) -> int:
        return estimate(entry, replace(request, batch=batch)).total

    low = total(1)
    if request.batch == 1 or low > free_bytes:
        return 0
    slope = (total(request.batch) - low) / (request.batch - 1)
    guess = min(request.batch - 1, 1 + int((free_bytes - low) / max(slope, 1.0)))
    while guess > 1 and total(guess) > free_bytes:
        guess = min(guess - 1, int(guess * 0.95))
    return max(guess, 1)


def _gb(amount: int) -> str:
    return f"{amount / 1e9:.1f} GB"
