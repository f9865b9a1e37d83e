"""Steps for a real GPU, whose kernels are known beforehand."""

import torch


def _model(request):
    torch.manual_seed(request.seed)
    layer = torch.nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, dropout=0.0)
    model = torch.nn.Sequential(layer, torch.nn.LayerNorm(512), torch.nn.Linear(512, 4096))
    return model.to(request.device, torch.bfloat16).eval()


def block(request):
    """Attention, two normalizations and four matrix multiplies."""
    model, x = _model(request), torch.randn(8, 256, 512, device=request.device, dtype=torch.bfloat16)

    def step():
        with torch.no_grad():
            model(x)

    return step


def captured(request):
    """The same in a CUDA graph: one launch replays all kernels."""
    model, x = _model(request), torch.randn(8, 256, 512, device=request.device, dtype=torch.bfloat16)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph), torch.no_grad():
        model(x)
    return graph.replay


def module(request):
    """A module and its input, for backends that compile."""
    model, x = _model(request), torch.randn(8, 256, 512, device=request.device, dtype=torch.bfloat16)

    class Built:
        module = model
        items, item_name, notes = 8, "sequences", ()

        @staticmethod
        def step():
            with torch.no_grad():
                model(x)

    return Built()


def large_gemm(request):
    """One matrix multiply that fills the chip, again and again."""
    a = torch.randn(8192, 8192, device=request.device, dtype=torch.bfloat16)
    b, out = torch.randn_like(a), torch.empty_like(a)

    def step():
        for _ in range(20):
            torch.mm(a, b, out=out)

    return step


def large_copy(request):
    """One copy that fills the memory's bus, again and again."""
    a = torch.zeros(2**30, device=request.device, dtype=torch.uint8)
    out = torch.empty_like(a)

    def step():
        for _ in range(50):
            out.copy_(a)

    return step


def too_big(request):
    return lambda: torch.empty(2**46, dtype=torch.uint8, device=request.device)


def holds_memory(request):
    """Takes 2 GB and goes on for long."""
    held = torch.zeros(2 * 10**9, dtype=torch.uint8, device=request.device)

    def step():
        held.add_(1)

    return step


def counts_devices(request):
    assert torch.cuda.device_count() == 1, "a worker sees its own device alone"
    return block(request)
