"""Two workers learn the sine function together: each has half of the points, and gradients are averaged."""
# Paddle is in the image, not on the developer's machine.
# mypy: disable-error-code="import-not-found"

import json
import os
from pathlib import Path

import paddle
import paddle.distributed as dist

# job-controller sets the rank of this worker and the addresses of all.
dist.init_parallel_env()
rank, size = dist.get_rank(), dist.get_world_size()
epochs = int(os.environ["EPOCHS"])

paddle.seed(0)
points = paddle.linspace(-3, 3, 1024).reshape([-1, 1])[rank::size]
net = paddle.nn.Sequential(paddle.nn.Linear(1, 32), paddle.nn.Tanh(), paddle.nn.Linear(32, 1))
model = paddle.DataParallel(net)
optimizer = paddle.optimizer.Adam(0.01, parameters=model.parameters())

for epoch in range(1, epochs + 1):
    loss = paddle.nn.functional.mse_loss(model(points), paddle.sin(points))
    loss.backward()
    optimizer.step()
    optimizer.clear_grad()
    if rank == 0 and epoch % 100 == 0:
        print(f"epoch {epoch} of {epochs}, loss {float(loss):.6f}", flush=True)

if rank == 0:
    # Numbers in the termination message become the job's results.
    results = {"loss": round(float(loss), 6), "epochs": epochs}
    Path("/dev/termination-log").write_text(json.dumps(results))
