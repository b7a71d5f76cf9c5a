"""The keys file of a configuration, looked at before anything starts: a model may take minutes to load."""

from services.cli.configuration import Configuration, ConfigurationError
from services.gateway import key_file
from services.gateway.key_file import KeyFileError


def check_keys(configuration: Configuration) -> None:
    """Raises ConfigurationError where the gateway would refuse to start for its keys."""
    path = configuration.gateway.keys_file
    if path is None:
        return
    try:
        key_file.read(path)
    except KeyFileError as error:
        lines = [f"gateway: keys_file: {line}" for line in str(error).splitlines()]
        raise ConfigurationError("\n".join(lines)) from None
