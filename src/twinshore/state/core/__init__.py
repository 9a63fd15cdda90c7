"""The values that the store keeps."""
