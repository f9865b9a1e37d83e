"""The parts of a two-stage detector in plain PyTorch: QDTrack, Faster R-CNN and Mask R-CNN are built from them."""
