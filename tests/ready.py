"""What every process of the fork server would do first, done once in the server itself, which imports this file."""

import encodings.idna  # noqa: F401 - for names of servers

import cryptography.hazmat.backends.openssl.backend  # noqa: F401 - for the first key that is read
import dp_accounting  # noqa: F401 - for the first epsilon
import torch.fx.experimental.symbolic_shapes  # noqa: F401 - for the first gradient: it brings sympy

from colonnade.cli.main import command_line
from tests.site import TABLES

command_line()
for table in TABLES:
    _ = table.offered
