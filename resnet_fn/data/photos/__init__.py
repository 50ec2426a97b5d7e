"""Training pictures from files, as torchvision's transforms compute them with Pillow."""
