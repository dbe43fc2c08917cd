"""The public functions of relive, called by scripts and notebooks."""

from __future__ import annotations

import contextlib
import errno
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from relive.record import current_place, session

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from relive.checkpoint.io import Checkpoint
    from relive.hindsight import Answer
    from relive.query import RunsBackend
    from relive.record import Driver, PlainBlock, RecordedBlock
    from relive.record.background import Background
    from relive.store import Home

T = TypeVar("T")
Asked = TypeVar("Asked", bound=Callable[..., Any])
_here = current_place.get


def _open() -> Driver:
    """Opens the driver on the first call; the recorder is imported only then."""
    with _asking_git():
        from relive.record import open_driver

        return open_driver()


def _asking_git() -> AbstractContextManager[None]:
    try:
        from relive.record.provenance import prefetch_version
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        return contextlib.nullcontext()  # no file can be opened any more; opening the run says so, if it can
    return prefetch_version()


def _telling_disk_errors(question: Asked) -> Asked:
    """Has a question say which disk is full, or can't be written, instead of what the system says."""

    @functools.wraps(question)
    def asking(*args: Any, **how: Any) -> Any:
        from relive.store import telling_disk_errors

        with telling_disk_errors(lambda: _home(how.get("home")).path):
            return question(*args, **how)

    return asking  # type: ignore[return-value]


def log(name: str, value: T) -> T:
    """Record a value under a name in the current iteration of the current loops, and return the value.

    >>> loss = relive.log("loss", 0.31)
    """
    place = _here() or session.place(_open)
    place.driver.log(name, value, place)
    return value


def arg(name: str, default: T) -> T:
    """Declare a setting of the run: returns the default, or the value from `--kwargs name=value` in the default's type.

    >>> lr = relive.arg("lr", 1e-3)
    """
    return session.place(_open).driver.arg(name, default)  # type: ignore[no-any-return]


def loop(name: str, items: Iterable[T]) -> Iterable[T]:
    """Iterate over items as a named loop; values logged inside belong to its current iteration.

    >>> for epoch in relive.loop("epoch", range(10)):
    ...     for x, y in relive.loop("step", loader): ...
    """
    return session.place(_open).driver.loop(name, items)


def data(name: str, source: T, *, etag: str | None = None) -> T:
    """Record data by a fingerprint of its content: a file, folder, array, frame, dataset, or a URL with its etag.

    >>> train = relive.data("train", "data/train.csv")
    """
    return session.place(_open).driver.data(name, source, etag=etag)  # type: ignore[no-any-return]


def artifact(source: T, *, name: str | None = None) -> T:
    """Store an output of the run: a file, a folder, or an object.

    >>> relive.artifact("model.pt")
    """
    return session.place(_open).driver.artifact(source, name=name)  # type: ignore[no-any-return]


def checkpointing(
    *, overhead: float | None = None, every: int | None = None, **objects: Any
) -> AbstractContextManager[None]:
    """Checkpoint the state of these objects in the background while the loops inside run.

    `overhead` is the fraction of time that this may cost; `every` takes a checkpoint every N iterations instead.

    >>> with relive.checkpointing(model=net, optimizer=opt):
    ...     for epoch in relive.loop("epoch", range(10)): ...
    """
    return session.place(_open).driver.checkpointing(objects, overhead=overhead, every=every)


def skipblock(name: str) -> RecordedBlock | PlainBlock:
    """Mark code outside of loops that a replay may skip: its end state is checkpointed if that is worthwhile.

    >>> block = relive.skipblock("train")
    >>> if block.step_into():
    ...     long_running(net, opt)
    >>> block.end(net, opt)
    """
    return session.place(_open).driver.skipblock(name)  # type: ignore[no-any-return]


@_telling_disk_errors
def restore(
    run: str, *, into: Mapping[str, Any] | None = None, home: str | Path | None = None, rng: bool = True, **at: Any
) -> Checkpoint:
    """Restore a checkpoint of a run into live objects, bit for bit; returns the checkpoint with the rest of the state.

    `at` names the iteration (`epoch=7`); the default is the last undamaged checkpoint. `rng=False` leaves the global
    random number generators unchanged. From a home that you did not make, or a run that was fetched, only plain data is
    restored until you trust it with `relive trust`.

    >>> state = relive.restore("7c1f0b5e", epoch=7, into=dict(model=net, optimizer=opt))
    """
    from relive.checkpoint.io import find_checkpoints, restore_first_intact
    from relive.record.process import print_to_stderr, warn_once

    found = find_checkpoints(_recorded(home), run, at)
    if found[0].origin:
        print_to_stderr(found[0].origin)
    checkpoint, damaged = restore_first_intact(found, into or {}, random=rng and into is not None, only_first=bool(at))
    if damaged:
        warn_once("checkpoint-damaged", f"{damaged[0]}; an earlier one was restored, name its iteration to be sure")
    return checkpoint


def state_handler(kind: type, *, capture: Callable[[Any], Any], restore: Callable[[Any, Any], None]) -> None:
    """Tell checkpoints how to keep the objects of a class, and of classes derived from it.

    `capture(obj)` returns the state as a value that relive can keep: numbers, texts, containers, arrays, tensors.
    `restore(obj, value)` gives it back. Only objects that hide their state need this, such as those of C libraries.

    >>> relive.state_handler(Simulator, capture=Simulator.dump, restore=Simulator.load)
    """
    from relive.checkpoint.graph import UserHandler, register_handler

    register_handler(kind, UserHandler(capture, restore))


def background(writer: Any, /, *args: Any, max_bytes: int = 512 << 20, **kwargs: Any) -> Background:
    """Return a writer whose calls return once their data is copied; the work is done in the background, in order.

    Given a class or function with its arguments, the writer is created in a separate process, which can't slow training
    down; given an instance, a thread makes the calls. A call blocks while `max_bytes` wait to be written. `flush` and
    `close` wait for all calls, and raise errors.

    >>> with relive.background(SummaryWriter, "runs/x") as writer:
    ...     writer.add_histogram("weights", net.fc.weight, step)
    """
    from relive.record.background import background as open_background

    return open_background(writer, *args, max_bytes=max_bytes, **kwargs)


def run(name: str = "", *, tags: Mapping[str, Any] | None = None) -> AbstractContextManager[str | None]:
    """Record the block as a separate run; returns its id (None if relive is off).

    >>> with relive.run("baseline", tags={"sweep": 4}) as run:
    ...     relive.log("loss", 0.31)
    """
    from relive.record import explicit_run

    return explicit_run(name, dict(tags or {}))


@_telling_disk_errors
def dataframe(
    *names: str, where: str | None = None, ranks: str = "canonical", replays: str = "latest", sources: bool = False,
    contradicted: bool = False, fill: bool = False, home: str | Path | None = None,
) -> pandas.DataFrame:  # fmt: skip
    """Return one wide table over all runs: a column per name and per loop, with outer values joined onto inner rows.

    `run` and `tstamp` are columns, too; name `"project"`, `"version"` or `"filename"` to have these as well.
    `fill` first replays runs that lack the names, as `relive.replay` does. `replays` selects the replayed values to
    include: "latest", "all" or "none"; `sources` adds a column per name with the source of each value; `contradicted`
    includes replayed values that the record contradicts. A name with unverified values has a column of verdicts.

    >>> relive.dataframe("lr", "val_acc", where="lr < 0.1")
    """
    from relive.query import QueryEngine
    from relive.query.table import FIXED_DIMS

    if fill:
        _fill(tuple(name for name in names if name not in FIXED_DIMS), where, _recorded(home))
    return QueryEngine(_recorded(home)).dataframe(
        names, where=where, ranks=ranks, replays=replays, sources=sources, contradicted=contradicted
    )


@_telling_disk_errors
def replay(
    *names: str, where: str | None = None, runs: Sequence[str] = (), workers: int | None = None,
    threads: int | None = None, patience: float | None = None, from_start: bool = False, again: bool = False,
    strict: bool = False, guesses: bool = False, beyond_the_end: bool = False, source: str | None = None,
    at: str | None = None, home: str | Path | None = None,
) -> Answer:  # fmt: skip
    """Compute what log statements added to the script later would have logged in past runs, and store the values.

    The arguments are the options of `relive replay`; `source` is `--from`.

    >>> relive.replay("grad_norm", where="lr < 0.01 and epoch >= 8", workers=4)
    """
    from relive.hindsight import Question, ReplaySession, execute_plan, plan_replay
    from relive.hindsight.abandoned import take_up_killed

    question = Question(
        names, where, tuple(runs), workers, from_start=from_start, again=again, threads=threads, source=source, at=at,
        beyond_the_end=beyond_the_end, patience=patience,
    )  # fmt: skip
    with ReplaySession(_recorded(home)) as session:
        take_up_killed(session)
        plan = plan_replay(session, question)
        chosen = plan if guesses else plan.without_guesses()
        return execute_plan(session, chosen, watch=lambda _tasks: None, strict=strict)


def _fill(names: tuple[str, ...], where: str | None, home: Home) -> None:
    """Replays what is missing, after showing the cost; asks first if stdin and stderr are a terminal."""
    import sys

    from relive.hindsight import Question, ReplaySession, execute_plan, plan_replay
    from relive.hindsight.abandoned import take_up_killed
    from relive.model import count_words
    from relive.record.process import print_to_stderr

    with ReplaySession(home) as session:
        take_up_killed(session)
        plan = plan_replay(session, Question(names, where)).without_guesses()
        if not plan.cases:
            return
        print_to_stderr(
            f"{len(plan.cases)} runs lack {', '.join(names)}: about {plan.cost_s:.1f} s with {plan.workers} workers"
        )
        if sys.stdin.isatty() and sys.stderr.isatty() and input("Replay them? [Y/n] ").strip().lower() in ("n", "no"):
            return
        found = execute_plan(session, plan, watch=lambda _tasks: None)
        print_to_stderr(f"{found.added:,} values added: {count_words(found.verdicts)}")


@_telling_disk_errors
def sql(query: str, *, home: str | Path | None = None) -> pandas.DataFrame:
    """Run read-only SQL over `runs`, `args`, `logs`, `loops`, `checkpoints` and the wide table `frame('a', 'b')`.

    >>> relive.sql("select run, max(val_acc) best from frame('val_acc') group by run")
    """
    from relive.query import QueryEngine

    return QueryEngine(_recorded(home)).sql(query).df()


@_telling_disk_errors
def leaderboard(
    metric: str, *, by: str = "last", k: int = 10, order: str | None = None, where: str | None = None,
    group: str | Sequence[str] = (), columns: str | Sequence[str] = (), guard: str | Sequence[str] = ("data",),
    across_data: bool = False, ranks: str = "canonical", limit: int = 0, home: str | Path | None = None,
) -> pandas.DataFrame:  # fmt: skip
    """Return the runs that logged a metric, best first; runs on different data are ranked apart, see `data_version`.

    `by` is "last", "best", "min", "max" or "mean" (of the last `k`), `order` "min" or "max", `guard` any of "data",
    "code" and "environment", `ranks` "canonical", "mean", "min" or "max".

    >>> relive.leaderboard("val_acc", by="best", where="wd = 0", group=["lr"])
    """
    from relive.query.compare import LeaderboardTerms, leaderboard_rows
    from relive.query.table import rows_to_pandas

    terms = LeaderboardTerms.of(
        by=by, k=k, order=order, where=where, group=group, columns=columns, guard=guard, across_data=across_data,
        ranks=ranks, limit=limit,
    )  # fmt: skip
    return rows_to_pandas(leaderboard_rows(_runs(home).leaderboard(metric, terms)))


@_telling_disk_errors
def skew(run: str, name: str, *, home: str | Path | None = None) -> pandas.DataFrame:
    """Return how far the ranks of a run differ, per step: canonical, mean, min, max, skew, and the farthest rank.

    >>> relive.skew("last", "loss").query("skew > 0.05")
    """
    from relive.query.compare import skew_rows
    from relive.query.table import rows_to_pandas

    return rows_to_pandas(skew_rows(_runs(home).skew(run, name)))


@_telling_disk_errors
def diverge(
    one: str, other: str | None = None, *, ignore: Iterable[str] = (), replay: bool = False,
    home: str | Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Return where two runs parted, or without a second one the ranks of a run, and what differed before.

    `ignore` are variables and logged names to leave out; `replay` also looks at iterations of which nothing is known.

    >>> relive.diverge("first", "last")["parted"]["where"]
    """
    from relive.hindsight.divergence import diverge_ranks, diverge_runs

    if other is None:
        return diverge_ranks(_recorded(home), one).to_json()
    return diverge_runs(_recorded(home), one, other, ignored=tuple(ignore), replays=replay).to_json()


@_telling_disk_errors
def load(reference: str, *, home: str | Path | None = None, allow_pickle: bool = False) -> Any:
    """Load the model `name`, `name@alias` or `name@3` and verify its hash: an object, or the path of a file or folder.

    Loads from the server if one is configured and no home is given; data from a server is never unpickled.

    >>> weights = relive.load("my-model@production")
    """
    from relive.record.process import select_server
    from relive.record.provenance import load_from_server, load_object
    from relive.store import require_trust
    from relive.store.chunks import Chunks, artifact_files
    from relive.store.registry import Registry

    place, remote = _home(home), select_server(home)
    if remote is not None:
        return load_from_server(remote, reference, place, allow_pickle=allow_pickle)
    model = Registry(_recorded(home)).find(reference)
    artifact = model.require_artifact()
    if allow_pickle:
        require_trust(place, model.run, doing="unpickling its artifact")
    if artifact["kind"] in artifact_files.PATH_KINDS:
        return artifact_files.verified_copy(artifact, place)
    return load_object(artifact, Chunks(place.chunks), allow_pickle=allow_pickle)


def should_prune(name: str, step: int, *, pruner: Any = None, order: str | None = None) -> bool:
    """Whether this run should be stopped, because it is worse than the other runs of its sweep at the same step.

    The decision is made by an Optuna pruner, by default `MedianPruner`. `order` ("min", "max") says which values are
    better, if the name does not.

    >>> if relive.should_prune("val_loss", epoch): break
    """
    from relive.integrations import should_prune

    return should_prune(session.place(_open).driver, _home(None).path, name, step, pruner=pruner, order=order)


def _runs(home: str | Path | None) -> RunsBackend:
    """Returns the runs of the given home, or else of the configured server, or else of the project."""
    from relive.query import HomeRuns, ServerRuns
    from relive.record.process import select_server
    from relive.store.catalog import Index

    remote = select_server(home)
    return HomeRuns(Index(_recorded(home))) if remote is None else ServerRuns(remote)


def _recorded(home: str | Path | None) -> Home:
    """Returns a home to read from; raises if there is none, rather than making one."""
    remedy = 'name another home with home="…"'
    if home is not None:
        return _home(home).require_runs(remedy)
    from relive.record.process import find_home_to_read

    return find_home_to_read(remedy)


def _home(home: str | Path | None) -> Home:
    from pathlib import Path

    from relive.record.process import read_launch_context
    from relive.store import Home

    return Home(Path(home).expanduser().absolute()) if home is not None else read_launch_context().home
