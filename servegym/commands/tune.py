"""`servegym tune`: search a system's settings with Optuna, and judge what was found on held-out seeds."""

import importlib.util
import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from servegym.commands.arguments import (
    Flag,
    GivenNumber,
    Json,
    Names,
    Number,
    Path,
    Text,
    note,
    parse,
    value,
)
from servegym.commands.cluster_options import ClusterOptions
from servegym.commands.workload_options import DEFAULT_REQUESTS, WorkloadOptions

if TYPE_CHECKING:
    from servegym.simulator.config import ClusterConfig
    from servegym.tuning.outcome import Outcome
    from servegym.tuning.problem import Problem
    from servegym.tuning.search import Place
    from servegym.tuning.spaces import Dimension
    from servegym.tuning.studies import Study

DESCRIPTION = """Search a system's settings. Every trial plays the same seeds as every other (common random
numbers), and is given up early where a signed-rank test of the paired seeds says that it is worse than
the best; the paper's default is the first trial. At the end the best is played against the default on
held-out seeds. Run the same command again to go on after Ctrl-C or a crash, or with more --trials.

  headroom     n-tier: peak, decay and form of its headroom, number of tiers, migration threshold
  ema          driftsched-sjf: alpha, clips and safety factors, at four speeds of drift
  system NAME  any system: --param for each setting

examples:
  servegym tune headroom --trials 100 --workers 2
  servegym tune headroom --objective goodput --load 1.0 --out out/goodput
  servegym tune ema --trials 60
  servegym tune system power-of-two --param d=1:8 --load 0.95
  servegym tune system n-tier:form=1 --param peak=0:0.5 --param migration.threshold=0.01:10:log --tiers 4 \
--tier-mix fair-enterprise --scenario tight
  head -2 out/tune/headroom/best.yaml    (the command that compares what was found with the default)

Exit codes: 0 done; 1 a trial failed of itself; 2 a wrong option; 130 interrupted."""

NO_OPTUNA = "tuning needs Optuna and SciPy: pip install 'servegym[tune]'"
FOLDER = "out/tune"
Params = Annotated[list[str], tyro.conf.UseAppendAction]


@dataclass(kw_only=True)
class Options:
    """What to search."""

    study: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="{headroom,ema,system}")]
    """Which study."""
    name: Annotated[
        str | None, tyro.conf.Positional, value(str, "NAME"), tyro.conf.arg(help_behavior_hint="")
    ] = None
    """The system, after `system`."""
    param: Annotated[Params, tyro.conf.arg(metavar="KEY=RANGE", help_behavior_hint="")] = field(
        default_factory=list
    )
    """A setting to search: KEY=LOW:HIGH, KEY=LOW:HIGH:log, KEY=A,B,C, or KEY alone; again for more."""
    objective: Text = None
    """mean-e2e, p99-e2e, ttft-slo, goodput or prediction-mae (the study's, mean-e2e)."""
    trials: GivenNumber = 100
    """Trials that end with a value, complete or given up by the pruner (100)."""
    seeds: GivenNumber = 5
    """Seeds that a trial plays (5)."""
    held_out: GivenNumber = 10
    """Seeds for judging the best, which no trial plays (10)."""
    workers: GivenNumber = 1
    """Processes; with one, the same seed gives the same trials (1)."""
    sampler: Text = None
    """tpe or random (tpe)."""
    prune_p: Number = None
    """p value below which a trial is given up; 0: never (0.2)."""
    max_failures: GivenNumber = 10
    """Stop when so many trials have failed of themselves in this run (10)."""
    workloads: Names = None
    """Several workloads, a study for each (those of the study)."""
    out: Path = None
    """Folder for the journal, report, trials.csv, best.yaml and pictures (out/tune/STUDY)."""
    storage: Text = None
    """URL of a storage of Optuna's, as sqlite:///trials.db, instead of the journal in the folder."""
    study_name: Text = None
    """Name of the study in the storage (STUDY, or STUDY-WORKLOAD of several)."""
    take_over: Flag = False
    """Give up trials that another machine or container left running; it must be gone."""
    json_: Json = False
    """Print the report as one JSON document."""
    served: WorkloadOptions = field(default_factory=WorkloadOptions)
    cluster: ClusterOptions = field(default_factory=ClusterOptions)


def run(arguments: Sequence[str]) -> int:
    """Search, report, and save."""
    options = parse(Options, arguments, "tune", DESCRIPTION)
    if any(importlib.util.find_spec(name) is None for name in ("optuna", "scipy")):
        raise RuntimeError(NO_OPTUNA)
    from servegym.tuning.report import check_folder, save, to_dict, to_text

    study = study_of(options)
    problems = problems_of(options, study)
    places = places_of(options, study, problems)
    for problem, place in zip(problems, places, strict=True):
        check_folder(place.folder, place.name, problem)
    command = shlex.join(["servegym", "tune", *arguments])
    outcomes = []
    for problem, place in zip(problems, places, strict=True):
        outcome = search_and_judge(options, problem, place)
        outcomes.append(outcome)
        if not options.json_:
            print(to_text(outcome), end="\n\n" if len(problems) > 1 else "\n")
        for path in save(outcome, place.folder, command):
            note(f"wrote {path}")
    if options.json_:
        documents = [to_dict(outcome) for outcome in outcomes]
        document = documents[0] if len(documents) == 1 else documents
        print(json.dumps(document, indent=2, allow_nan=False))
    elif len(outcomes) > 1:
        print(summary_text(outcomes))
    return 1 if any(outcome.tally.failed or not outcome.best for outcome in outcomes) else 0


def study_of(options: Options) -> "Study":
    """Return the study asked for, with the user's parameters in place of its own of the same keys."""
    from servegym.tuning.studies import SYSTEM, Study, find_study

    if options.study == SYSTEM:
        if options.name is None:
            raise ValueError("system needs a name: servegym tune system NAME --param KEY=RANGE")
        if not options.param:
            raise ValueError("nothing to search; give --param KEY=LOW:HIGH, once for each setting")
        return Study(
            name=stem_of(options.name),
            summary="",
            system=options.name,
            params=tuple(options.param),
            workloads=(options.served.workload_name,),
            objective="mean-e2e",
            requests=DEFAULT_REQUESTS,
        )
    study = find_study(options.study)
    if options.name is not None:
        raise ValueError(
            f"{study.name} tunes {study.system}; for another: tune system {options.name}"
        )
    own = {text.partition("=")[0].strip(): text for text in study.params}
    given = [text.partition("=")[0].strip() for text in options.param]
    if len(set(given)) < len(given):
        raise ValueError(f"--param {max(given, key=given.count)} is given twice")
    return replace(
        study, params=tuple((own | dict(zip(given, options.param, strict=True))).values())
    )


def stem_of(system: str) -> str:
    """Return what a study of a system is called: its name, or of a file that of the file."""
    from servegym.baselines.system_file import head_of, is_system_file

    head = head_of(system)
    family, colon, file = head.partition(":")
    if colon:
        return f"{family}-{FilePath(file).name.removesuffix('.safetensors')}"
    return FilePath(head).stem if is_system_file(head) else head


def problems_of(options: Options, study: "Study") -> list["Problem"]:
    """Return a problem for each workload, all of which can be played; ValueError for bad input."""
    from servegym.tuning.objectives import find_objective
    from servegym.tuning.problem import Problem
    from servegym.tuning.sampling import SeededSampler
    from servegym.tuning.trials import pruner_of

    served = options.served
    has_tiers = options.cluster.tiers is not None
    fill(options.cluster, study.cluster, options.cluster.scenario)
    config = options.cluster.to_config()
    objective = find_objective(options.objective or study.objective).name
    dimensions = dimensions_of(options, study, config, objective, has_tiers)
    sampler = options.sampler or "tpe"
    SeededSampler(sampler, 0)
    prune_p = 0.2 if options.prune_p is None else options.prune_p
    pruner_of(prune_p)
    check_counts(options)
    has_rate = served.load is not None or served.rate is not None or served.trace is not None
    problems = [
        Problem(
            study=study.name,
            system=study.system,
            dimensions=dimensions,
            objective=objective,
            workload=workload,
            trace=served.trace,
            cluster=config.model_dump(mode="json"),
            load=served.load if has_rate else study.load,
            rate_per_s=served.rate,
            n_requests=study.requests if served.requests is None else served.requests,
            arrivals=served.arrivals,
            tier_mix=served.tier_mix or study.tier_mix,
            horizon_s=served.horizon_s,
            seeds=options.seeds,
            seed=served.seed,
            held_out=options.held_out,
            sampler=sampler,
            prune_p=prune_p,
        )
        for workload in workloads_of(options, study)
    ]
    check_played(problems)
    return problems


def dimensions_of(
    options: Options, study: "Study", config: "ClusterConfig", objective: str, has_tiers: bool
) -> tuple["Dimension", ...]:
    """Return what is searched: tiers that were given are not, unless asked for, too. ValueError for bad input."""
    from servegym.tuning.objectives import OF_TIERS
    from servegym.tuning.spaces import TIERS, read_space

    dimensions = read_space(study.system, study.params, config)
    if not any(each.key == TIERS for each in dimensions):
        return dimensions
    is_asked = any(text.partition("=")[0].strip() == TIERS for text in options.param)
    if is_asked and objective in OF_TIERS:
        raise ValueError(f"{objective} does not compare numbers of tiers; leave {TIERS} out")
    if is_asked or not (has_tiers or objective in OF_TIERS):
        return dimensions
    reason = "given" if has_tiers else f"{objective} does not compare numbers of tiers"
    note(f"tiers stay {config.tiers}: {reason}")
    return tuple(each for each in dimensions if each.key != TIERS)


def check_counts(options: Options) -> None:
    """ValueError unless there are trials and seeds."""
    for name, count, least in (
        ("--trials", options.trials, 1),
        ("--seeds", options.seeds, 1),
        ("--held-out", options.held_out, 0),
        ("--workers", options.workers, 1),
        ("--max-failures", options.max_failures, 1),
        ("--seed", options.served.seed, 0),
    ):
        if count < least:
            raise ValueError(f"{name} {count}; must be >= {least}")


def workloads_of(options: Options, study: "Study") -> Iterable[str]:
    """Return the workloads to play; of a trace one, that is not looked at."""
    served = options.served
    for name, given in (("--start-s", served.start_s), ("--end-s", served.end_s)):
        if given is not None:
            raise ValueError(
                f"tune plays a whole file; cut it with servegym trace convert, not {name}"
            )
    if served.sort or served.max_rows is not None:
        raise ValueError("tune plays a whole file; leave --sort and --max-rows out")
    if served.trace is not None:
        if options.workloads or served.workload or served.requests or served.arrivals:
            raise ValueError(
                "--trace plays a file; leave --workload(s), --requests, --arrivals out"
            )
        return [study.workloads[0]]
    if options.workloads is not None:
        if served.workload is not None:
            raise ValueError("--workloads names all workloads; leave --workload out")
        for name in options.workloads:
            if options.workloads.count(name) > 1:
                raise ValueError(f"--workloads: {name!r} is named twice")
        return options.workloads
    return [served.workload] if served.workload is not None else study.workloads


def check_played(problems: Iterable["Problem"]) -> None:
    """ValueError if any workload cannot be played, before the first one is searched on; a trace its search reads."""
    from servegym.baselines.offered_rate import check_load_and_rate
    from servegym.tuning.drift import find_played

    for problem in problems:
        if problem.trace is None:
            source = find_played(None, problem.workload)
            check_load_and_rate(source, problem.load, problem.rate_per_s)


def fill(group: Any, defaults: dict[str, Any], scenario: str | None) -> None:
    """Set options that were not given to a study's defaults, but for those that a scenario sets."""
    from servegym.simulator.config import SCENARIOS

    named = SCENARIOS.get(scenario or "", {})
    for name in (each.name for each in fields(group)):
        now = getattr(group, name)
        if is_dataclass(now):
            fill(now, defaults, scenario)
        elif now is None and name in defaults and name not in named:
            default = defaults[name]
            setattr(group, name, [default] if name == "profile" else default)


def places_of(options: Options, study: "Study", problems: Sequence["Problem"]) -> list["Place"]:
    """Return where each study is kept: one folder, of several workloads one in it for each."""
    from servegym.tuning.search import Place

    if options.out == "":
        raise ValueError("--out is empty; name a folder")
    folder = FilePath(options.out or f"{FOLDER}/{study.name}")
    name = options.study_name or study.name
    if len(problems) == 1:
        return [Place(folder, name, options.storage)]
    places = [
        Place(folder / FilePath(each.workload).stem, f"{name}-{each.workload}", options.storage)
        for each in problems
    ]
    if len({place.folder for place in places}) < len(places):
        told = ",".join(each.workload for each in problems)
        raise ValueError(f"--workloads {told}: two have one file name, and would share a folder")
    return places


def search_and_judge(options: Options, problem: "Problem", place: "Place") -> "Outcome":
    """Run one study to its total and judge its best; interrupted, say how to go on."""
    from servegym.experiments.progress import announce_compilation
    from servegym.tuning.outcome import outcome_of
    from servegym.tuning.progress import progress
    from servegym.tuning.search import search

    announce_compilation()
    try:
        with progress(place.name, options.trials) as watch:
            study = search(
                problem,
                place,
                options.trials,
                options.workers,
                options.max_failures,
                options.take_over,
                note,
                watch,
            )
    except KeyboardInterrupt:
        where = place.storage or place.folder
        note(f"{place.name} is kept in {where}; run the same command again to go on")
        raise
    return outcome_of(study, problem)


def summary_text(outcomes: Sequence["Outcome"]) -> str:
    """Return one line a workload: its best settings and their gain on held-out seeds."""
    from servegym.tuning.report import shown

    keys = [each.key for each in outcomes[0].problem.dimensions]
    rows = [["workload", *keys, "change", "verdict"]]
    for outcome in outcomes:
        cells = ["-"] * len(keys)
        change = told = "-"
        if outcome.best is not None:
            cells = [shown(outcome.best_params.get(key)) for key in keys]
        if outcome.held_out is not None:
            percent = outcome.held_out.change_percent
            change = "-" if percent is None else f"{percent:+.1f} %"
            told = outcome.held_out.verdict or "-"
        rows.append([outcome.problem.workload, *cells, change, told])
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
