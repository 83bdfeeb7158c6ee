"""The permissions that locks need: the server is asked about each of them, and no command is executed."""

import re
from importlib import resources

from redis.exceptions import ResponseError

from aiolock._cli.advice import PERMISSIONS, on_refusal
from aiolock._cli.doctor.check import Check
from aiolock._cli.probe import Probe
from aiolock._keys import LockKeys
from aiolock._scripts import FORCE_RELEASE, INSPECT, LOCK

_SCRIPTS = (LOCK.acquire, LOCK.release, LOCK.release_later, LOCK.release_clean, LOCK.renew, FORCE_RELEASE, INSPECT)

_ASK = resources.files(__package__).joinpath("allowed.lua").read_text("utf-8")
_KEYLESS = {"TIME"}
# No command of the scripts needs more words after its name.
_ENOUGH = 5

Command = tuple[str, ...]


def of_the_scripts() -> list[str]:
    """The commands that the scripts call."""
    return sorted({name for script in _SCRIPTS for name in re.findall(r"redis\.p?call\('([A-Z]+)'", script.source)})


def _of_a_client(channel: str, letter: str) -> list[Command]:
    """The commands that a client itself sends; *letter* is the prefix of its pub/sub commands."""
    messages = [(f"{letter}{name}", channel) for name in ("SUBSCRIBE", "UNSUBSCRIBE")]
    return [("EVAL", "return 1", "0"), ("EVALSHA", "0" * 40, "0"), (f"{letter}PUBLISH", channel, "0"), *messages]


_OF_A_CLUSTER: list[Command] = [("CLUSTER", "SLOTS"), ("PUBSUB", "SHARDNUMSUB"), ("ASKING",)]
_OF_SETTINGS: dict[Command, str] = {
    ("CLIENT", "SETNAME", "name"): "client_name",
    ("WAIT", "0", "0"): "replicas",
    ("ROLE",): 'replicas="all"',
}


async def try_permissions(probe: Probe, keys: LockKeys, *, in_a_cluster: bool = False, sharded: bool = False) -> Check:
    """Name all commands and keys that the user may not use, and the channel if it is not allowed."""
    client = [*_of_a_client(keys.channel, "S" if sharded else ""), *(_OF_A_CLUSTER if in_a_cluster else [])]
    scripts = {key: [_reach(key), *((name, *[key] * _ENOUGH) for name in of_the_scripts())] for key in keys.all}
    asked = [*client, *_OF_SETTINGS, *(command for commands in scripts.values() for command in commands)]
    try:
        answers = await probe.ask("EVAL", _ASK, "0", *(word for command in asked for word in (*command, "")))
    except ResponseError as error:
        return Check("permissions", "error", f"EVAL was refused: {error}", on_refusal(error))
    if not answers:
        advice = "The scripts are tried anyway, but a refusal may not name the command."
        return Check("permissions", "unknown", "not known: the server does not tell a script", advice)
    return _judge({command for command, allowed in zip(asked, answers, strict=True) if not allowed}, client, scripts)


def _judge(refused: set[Command], client: list[Command], scripts: dict[str, list[Command]]) -> Check:
    needed = [_name(command) for command in client if command in refused]
    for key, (reach, *commands) in scripts.items():
        of_the_key = [command[0] for command in commands if command in refused]
        if reach in refused:
            of_the_key = [f"the key {key}", *(name for name in of_the_key if name in _KEYLESS)]
        needed += of_the_key
    if needed:
        return Check("permissions", "error", f"refused: {', '.join(dict.fromkeys(needed))}", PERMISSIONS)
    if unusable := [f"{setting} ({_name(command)})" for command, setting in _OF_SETTINGS.items() if command in refused]:
        found = f"all that locks need, but not what these settings need: {', '.join(unusable)}"
        return Check("permissions", "note", found, f"Nothing to do if you do not use them. {PERMISSIONS}")
    return Check("permissions", "ok", "all that locks need")


def _reach(key: str) -> Command:
    """A command that the user may use, as `try_permissions` begins with it, if the user may reach *key*."""
    return "EVAL", "return 1", "1", key


def _name(command: Command) -> str:
    return " ".join(command[:2]) if command[0] in ("CLIENT", "CLUSTER", "PUBSUB") else command[0]
