"""What runs in a worker's process, copied there file by file; see ``main.py``.

The files use the standard library, NumPy, torch on a GPU, and each other; nothing of this product.
"""
