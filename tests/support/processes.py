"""What a test may ask about processes of the operating system."""

import psutil


def is_alive(pid: int) -> bool:
    """Whether the process is there and still runs; it may end at any moment."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
