"""Commands of the paper: `oneof paper COMMAND`."""

import oneof.cli  # noqa: F401 - which registers these commands
