"""What torchtpu plugs into PyTorch: autograd, the torch.tpu module, serialization, packaging, models, libraries."""
