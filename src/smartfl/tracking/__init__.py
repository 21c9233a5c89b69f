"""Callbacks: what happens beside a run while it goes on. Progress, TensorBoard, MLflow, early stopping, your own."""
