"""torch.compile, compiled steps, bounded sizes and export. Most of the time is spent in Dynamo."""
