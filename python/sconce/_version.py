__version__ = "0.1.0"
LIBTORCH_VERSION = "2.11.0"
