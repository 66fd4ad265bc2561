"""Runs in MLServer's Python: its runtime for a model of Paddle, with the predictor that ours has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import paddle.inference
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class PaddleModel(MLModel):  # type: ignore[misc]
    """One predictor."""

    async def load(self) -> bool:
        folder = Path(self.settings.parameters.uri)
        config = paddle.inference.Config(str(folder / "model.json"), str(folder / "model.pdiparams"))
        config.disable_glog_info()
        config.disable_gpu()
        config.set_cpu_math_library_num_threads(1)
        self._predictor: Any = paddle.inference.create_predictor(config)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        given = self._predictor.get_input_handle(self._predictor.get_input_names()[0])
        given.copy_from_cpu(NumpyCodec.decode_input(payload.inputs[0]))
        self._predictor.run()
        found = self._predictor.get_output_handle(self._predictor.get_output_names()[0]).copy_to_cpu()
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("scores", found)])
