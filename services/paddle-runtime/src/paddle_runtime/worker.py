"""The process that runs the model: `python -m paddle_runtime.worker FD`, with a socket to the server.

Paddle holds Python's global lock while a model runs, so in the server's process every run would stop all
other requests, and the health endpoints. It ends when the server closes the socket or dies.
"""

from __future__ import annotations

import signal
import socket
import sys

from paddle_runtime import frames
from paddle_runtime.domain.files import ModelFault
from paddle_runtime.domain.model import InvalidInputs
from paddle_runtime.orders import Answer, Done, Failed, Fault, Load, Order, Prepare, Run, WarmUp
from paddle_runtime.paddle_model import PaddleModel, choose_device


class Worker:
    """Carries out orders, one after the other."""

    def __init__(self) -> None:
        self._prepared: Prepare | None = None
        self._model: PaddleModel | None = None

    def answer(self, order: Order) -> Answer:
        """Never raises for what the model or its files cause."""
        try:
            return Done(self._carry_out(order))
        except ModelFault as error:
            return Fault(error.reason, error.message)
        except InvalidInputs as error:
            return Failed(str(error))

    def _carry_out(self, order: Order) -> object:
        match order:
            case Prepare():
                self._prepared = Prepare(
                    choose_device(order.device), order.math_threads, order.gpu_memory_mib
                )
                return self._prepared.device
            case Load():
                assert self._prepared is not None, "Prepare comes first"
                self._model = PaddleModel(order, self._prepared)
                return None
            case WarmUp():
                return self._loaded.warm_up(order.shapes, tries_joining=order.tries_joining)
            case Run():
                return self._loaded.run(order.inputs)

    @property
    def _loaded(self) -> PaddleModel:
        assert self._model is not None, "Load comes first"
        return self._model


def main() -> int:
    """Serve orders until the server is gone."""
    # Ctrl-C reaches the whole process group; the server decides when this process ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    worker, assembler = Worker(), frames.Assembler()
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        while True:
            try:
                order = frames.receive(connection, assembler)
                frames.send(connection, worker.answer(order))
            except (EOFError, ConnectionError):
                return 0


if __name__ == "__main__":
    sys.exit(main())
