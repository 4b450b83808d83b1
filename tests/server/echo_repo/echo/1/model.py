"""The least decoupled model: answers with its input, after a pause if the text is `sleep N`."""

import json
import os
import time

import numpy as np
import torch
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        parameters = json.loads(args["model_config"])["parameters"]
        if refusal := parameters["refusal"]["string_value"]:
            raise ValueError(refusal)
        self.family = pb_utils.MetricFamily(
            name="echo_threads", description="torch threads", kind=pb_utils.MetricFamily.GAUGE
        )
        self.threads = self.family.Metric(labels={"kind": "torch"})
        self.threads.set(torch.get_num_threads())

    def execute(self, requests):
        for request in requests:
            text = pb_utils.get_input_tensor_by_name(request, "text_input").as_numpy()
            words = text.reshape(-1)[0].decode().split()
            if words[0] == "sleep":
                time.sleep(float(words[1]))
            if words[0] == "die":
                os.abort()
            output = pb_utils.Tensor("text_output", np.array([" ".join(words)], dtype=np.object_))
            request.get_response_sender().send(
                pb_utils.InferenceResponse([output]),
                flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL,
            )
