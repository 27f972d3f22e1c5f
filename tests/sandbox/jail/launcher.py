"""A script: confine a forked child by the files of agent_rl/sandbox/jail and run a program in it.

Reads its orders from argv[1] as JSON: folder, layers, extra (readable paths, also put on sys.path), program, scratch,
outside, limits, abi (of Landlock, when older than the kernel's), and probe (candidates: report the probe of them
instead). Prints one JSON object.
"""

import contextlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import sysconfig
import traceback


def load(folder, *names):
    """Modules of the jail as the sandbox's own process loads them: from a package of another name, made by hand."""
    spec = importlib.machinery.ModuleSpec("confined_files", None, is_package=True)
    spec.submodule_search_locations = [folder]
    sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    return [importlib.import_module(f"confined_files.{name}") for name in names]


def readable(extra):
    prefix = sys.base_prefix + "/lib" if sys.base_prefix != "/usr" else "/usr/lib"
    system = ["/usr/lib", "/lib", "/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/dev/null", "/dev/urandom"]
    return [sysconfig.get_path("stdlib"), prefix, *system, *extra]


def tried(act, *arguments, **named):
    """The outcome of a call: "done", or the name of the error."""
    try:
        act(*arguments, **named)
    except OSError as error:
        return f"{type(error).__name__} {error.errno}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    return "done"


def close_all_but(kept):
    for number in set(range(256)) - kept:
        with contextlib.suppress(OSError):
            os.close(number)


def child(orders, confinement, report_to, go):
    report = {}
    try:
        confinement.apply(**orders["limits"], scratch=orders["scratch"])
        close_all_but({0, 1, 2, report_to, go})
        scope = {"report": report, "tried": tried, "scratch": orders["scratch"], "outside": orders["outside"]}
        exec(orders["program"], scope)  # noqa: S102 - this is the point
    except BaseException:
        report["error"] = traceback.format_exc()
    os.write(report_to, json.dumps(report).encode())
    os.close(report_to)
    os.read(go, 1)


def main():
    orders = json.loads(sys.argv[1])
    sys.path[:0] = orders["extra"]
    layers, namespace, probe, landlock = load(orders["folder"], "layers", "namespace", "probe", "landlock")
    if abi := orders.get("abi"):
        newest = landlock.call
        landlock.call = lambda name, *rest: (
            abi if (name, rest) == ("landlock_create_ruleset", (0, 0, 1)) else newest(name, *rest)
        )
    paths = readable(orders["extra"])
    if orders["probe"]:
        report = probe.probe(paths, [frozenset(layers) for layers in orders["probe"]])
        plan = None if report.plan is None else sorted(report.plan.layers)
        print(
            json.dumps({"plan": plan, "missing": report.missing, "acts": report.acts, "layers": sorted(report.layers)})
        )
        return
    if "namespace" in orders["layers"]:
        namespace.enter_namespace(paths, orders["scratch"])
    plan = layers.Plan(frozenset(orders["layers"]), tuple(paths))
    confinement = layers.Confinement(plan)
    (reader, report_to), (go, start) = os.pipe(), os.pipe()
    pid = os.fork()
    if pid == 0:
        close_all_but({0, 1, 2, report_to, go, *confinement.descriptors})
        child(orders, confinement, report_to, go)
        os._exit(0)
    os.close(report_to)
    text = b"".join(iter(lambda: os.read(reader, 1 << 16), b""))
    kernel = {}
    if os.path.exists(f"/proc/{pid}/status"):
        with open(f"/proc/{pid}/status") as file:
            kernel = {key: value.strip() for key, _, value in (line.partition(":") for line in file)}
    os.close(start)
    status = os.waitpid(pid, 0)[1]
    print(json.dumps({"report": json.loads(text or "{}"), "status": status, "kernel": kernel, "pid": pid}))


if __name__ == "__main__":
    main()
