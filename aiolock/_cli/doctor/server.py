"""Checks of the facts that the server reports; pure functions of these facts."""

from collections.abc import Callable

from aiolock._cli.doctor.check import Check
from aiolock._cli.doctor.facts import Facts

_OLDEST = (6, 2)
_TESTED = {"Redis": "7.0", "Valkey": "9.1"}
_OTHERS = {"dragonfly_version": "Dragonfly", "kvrocks_version": "Kvrocks", "garnet_version": "Garnet"}


def judge(facts: Facts) -> list[Check]:
    """The results of all checks of a single server's facts."""
    return [check(facts) for check in (_version, _topology, _role, *_OF_ANY)]


def judge_primary(facts: Facts) -> list[Check]:
    """The results of the checks that each primary of a cluster has of its own."""
    return [check(facts) for check in (_version, _role, _coverage, *_OF_ANY)]


def _version(facts: Facts) -> Check:
    name, version = _product(facts)
    if version is None:
        return Check("version", "unknown", facts.not_known, "See that it is Redis 6.2 or later, or Valkey.")
    found = f"{name} {version}"
    if name == "Redis" and _numbers(version) < _OLDEST:
        return Check("version", "error", found, "Use Redis 6.2 or later, or Valkey.")
    if name not in _TESTED:
        return Check("version", "warning", f"{found}, which aiolock was never tested on", "Use Redis or Valkey.")
    if _numbers(version) != _numbers(_TESTED[name]):
        tested = " and ".join(f"{name} {series}" for name, series in _TESTED.items())
        return Check("version", "note", f"{found}; aiolock is tested on {tested}", "Run your own tests on it, too.")
    return Check("version", "ok", found)


def _product(facts: Facts) -> tuple[str, str | None]:
    """Name and version of the product; one that is compatible with Redis reports a version of Redis next to its own."""
    for field, name in _OTHERS.items():
        if field in facts.info:
            return name, facts.info[field]
    if "valkey_version" in facts.info:
        return "Valkey", facts.info["valkey_version"]
    return "KeyDB" if "keydb" in facts.info.get("executable", "") else "Redis", facts.first("redis_version")


def _numbers(version: str) -> tuple[int, ...]:
    """The major and the minor version."""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


def _topology(facts: Facts) -> Check:
    mode = facts.mode
    if mode is None:
        return Check("topology", "unknown", facts.not_known, "See that it is a single server: no Cluster, no Sentinel.")
    if mode == "standalone":
        return Check("topology", "ok", "a single server")
    return Check("topology", "error", mode, "Name a server that keeps locks, alone or in a cluster.")


def _role(facts: Facts) -> Check:
    role = facts.info.get("role")
    if role is None:
        return Check("role", "unknown", facts.not_known, "See that the address is that of a primary.")
    if role == "master":
        return Check("role", "ok", "primary")
    if role in ("slave", "replica"):
        return Check("role", "error", f"replica: it takes no locks; {link(facts)}", "Use the address of its primary.")
    return Check("role", "error", f"{role}: two servers may grant the same lock", "Use a server that is sole primary.")


def link(facts: Facts) -> str:
    """The state of a replica's link to its primary."""
    if facts.info.get("master_link_status") == "up":
        return "its link to the primary is up"
    since = facts.info.get("master_link_down_since_seconds")
    if facts.info.get("master_link_status") is None:
        return "its link to the primary is not known"
    return f"its link to the primary is down{'' if since in (None, '-1') else f', for {since} s'}"


def _eviction(facts: Facts) -> Check:
    policy = facts.policy
    if policy is None:
        return Check("eviction", "unknown", facts.not_known, "See that maxmemory-policy is noeviction.")
    limit = facts.number("maxmemory")
    if policy == "noeviction":
        return Check("eviction", "ok", policy)
    found = f"{policy}, maxmemory {'not known' if limit is None else limit or 'not set'}"
    if limit == 0:
        advice = "With a limit it would evict locks: set maxmemory-policy noeviction."
        return Check("eviction", "warning", found, advice)
    which = "keys with a time to live, and only those" if policy.startswith("volatile") else "any key"
    advice = f"When the memory is full it evicts {which}: locks, too. Set maxmemory-policy noeviction."
    return Check("eviction", "error", found, advice)


def _persistence(facts: Facts) -> Check:
    log, fsync, snapshots = facts.append_only, facts.config.get("appendfsync"), facts.config.get("save")
    always = "If a restart must not forget locks: appendonly yes, appendfsync always."
    if log == "yes":
        found = f"append-only file, appendfsync {fsync or facts.not_known}"
        if fsync is None:
            return Check("persistence", "unknown", found, always)
        return Check("persistence", "ok", found) if fsync == "always" else Check("persistence", "note", found, always)
    if log is None or snapshots is None:
        return Check("persistence", "unknown", facts.not_known, always)
    if snapshots:
        found = "snapshots only: a crash forgets the locks since the last one"
        return Check("persistence", "note", found, always)
    return Check("persistence", "warning", "none: a restart forgets every lock", always)


def _min_replicas(facts: Facts) -> Check:
    name = "min-replicas"
    wanted = facts.number("min-replicas-to-write")
    if wanted is None:
        advice = "With replicas, see that min-replicas-to-write is 1 or more."
        return Check(name, "unknown", facts.not_known, advice)
    found = f"min-replicas-to-write {wanted}"
    if wanted == 0 and facts.number("connected_slaves"):
        advice = "Set it to 1 or more: a primary that is cut off from its replicas goes on granting locks."
        return Check(name, "note", found, advice)
    return Check(name, "ok", found)


def _coverage(facts: Facts) -> Check:
    required = facts.config.get("cluster-require-full-coverage")
    if required is None:
        return Check("coverage", "unknown", facts.not_known, "See that cluster-require-full-coverage is no.")
    found = f"cluster-require-full-coverage {required}"
    if required == "no":
        return Check("coverage", "ok", found)
    return Check("coverage", "note", found, "If one primary is lost, no name at all can be locked: set it to no.")


_OF_ANY: tuple[Callable[[Facts], Check], ...] = (_eviction, _persistence, _min_replicas)
