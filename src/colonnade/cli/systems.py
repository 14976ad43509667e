"""What assumes Linux, by operating system: `colonnade doctor` names it. Tests run on Linux only."""

from __future__ import annotations

UNTESTED = "nothing is tested on {}: simulation and tables are expected to work, restarts may end in other bits"
NO_PROC = "the memory of this machine is not read: --jobs does not limit itself, and some benchmarks cannot run"
NO_CUDA = "a GPU is used through CUDA only, so not here"
ELSEWHERE = {
    "Darwin": (UNTESTED.format("macOS"), NO_PROC, NO_CUDA),
    "Windows": (
        UNTESTED.format("Windows"),
        "separate organisations (align, party, coordinator, serve) need Linux: folders are written as a whole "
        "before a message leaves, which Windows does not do; use WSL 2",
        "files of keys and stores are for their owner alone on Linux; on Windows the folder's permissions decide",
        "colonnade serve reads its policy again at SIGHUP, which is not there: start it again",
        NO_PROC,
    ),
}


def limits_of(system: str) -> tuple[str, ...]:
    """What does not work, or is not known to, on an operating system as `platform.system()` calls it."""
    if system == "Linux":
        return ()
    return ELSEWHERE.get(system, (UNTESTED.format(system or "an unknown system"), NO_PROC))
