"""An inference model for each client: graph, dictionary, ONNX, description, model card."""
