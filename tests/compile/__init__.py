"""torch.compile, compiled steps, bounded sizes and export. Most of the time goes into Dynamo."""
