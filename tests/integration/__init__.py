"""torchtpu's integration with PyTorch: autograd, the torch.tpu module, serialization, packaging, models,
libraries."""
