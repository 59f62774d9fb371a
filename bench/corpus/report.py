"""The tables of bench/corpus.py."""
import math
import statistics
from typing import Callable, Optional

# What is reported of a model beside its times, by the key in its row.
TROUBLES = {
    "failure": "sconce fails, LibTorch does not",
    "wrong": "Results differ from eager LibTorch's; not among the ratios",
    "left_out": "sconce left out a pass or a plan that failed",
    "libtorch_failure": "LibTorch cannot run what the corpus builds",
}
REMARKS = {
    "rounding": "Results differ, but agree in double precision",
    "remark": "Training steps that ran as no plan",
}
# Rows of the tables of operators.
OPERATORS = 25
# Above this spread of sconce's medians within a process, the machine was busy otherwise.
NOISY = 0.15
TITLES = {"best jit": "torch::jit", "best": "the best of torch::jit and eager",
          "plain": "the best of torch::jit and eager, sconce without its step plan",
          "loop": "the best of torch::jit and eager, forward and backward alone, sconce without its step plan"}


def tenth(values: list[float]) -> float:
    """The 10th percentile."""
    return statistics.quantiles(values, n=10, method="inclusive")[0] if len(values) > 1 else values[0]


def distribution(values: list[float]) -> list[str]:
    if not values:
        return ["0", "-", "-", "-", "-", "-"]
    mean = math.exp(statistics.fmean(map(math.log, values)))
    numbers = (statistics.median(values), mean, tenth(values), min(values))
    return [str(len(values)), *(f"{number:.2f}" for number in numbers), str(sum(value < 1 for value in values))]


def table(header: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table that is aligned as text, too."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    text = ["| " + " | ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                              for i, (cell, width) in enumerate(zip(line, widths))) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (width + 2) if i == 0 else "-" * (width + 1) + ":"
                                  for i, width in enumerate(widths)) + "|")
    return text


def duration(seconds: float) -> str:
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def groups_of(rows: dict[str, dict]) -> dict[str, dict[str, dict]]:
    """Rows by mode and threads, then by model."""
    groups: dict[str, dict[str, dict]] = {}
    for name, row in rows.items():
        mode, threads, model = name.split(" ")
        groups.setdefault(f"{mode}, {threads} thread{'s' if threads != '1' else ''}", {})[model] = row
    return groups


def distributions(rows: dict[str, dict]) -> list[str]:
    """A table for each kind of ratio, by family and in all."""
    families = list(dict.fromkeys(row["family"] for row in rows.values()))
    lines: list[str] = []
    for who, title in TITLES.items():
        if not any(who in row["ratios"] for row in rows.values()):
            continue
        cells = []
        for family in [*families, None]:
            values = [row["ratios"][who] for row in rows.values()
                      if who in row["ratios"] and "wrong" not in row and family in (None, row["family"])]
            cells.append([family or "all", *distribution(values)])
        lines += [f"Ratios to sconce of {title}:", "",
                  *table(["family", "models", "median", "geom. mean", "10th pct.", "min", "below 1"], cells), ""]
    return lines


def troubles(rows: dict[str, dict]) -> list[str]:
    lines: list[str] = []
    for key, title in {**TROUBLES, **REMARKS}.items():
        found = {name: row[key] for name, row in rows.items() if key in row}
        if found:
            lines += [f"{title}: {len(found)}", "", *(f"- {name}: {what}" for name, what in found.items()), ""]
    return lines


def profile_of(profile: dict) -> dict:
    """What the tables need of the profile of `sconce bench --profile`: shares of the time in steps, by what holds it."""
    whole = profile["seconds"] if profile["trains"] else profile["step_seconds"]
    shares: dict[str, float] = {}
    prepared = others = 0.0
    for step in profile["steps"]:
        share = step["seconds"] / whole if whole else 0.0
        ordinary = 1 - step["prepared_runs"] / step["runs"]
        prepared += share * (1 - ordinary)
        if "::" not in step["operator"] and not step["operator"].startswith("kernel"):
            others += share * ordinary  # jumps, moves
        elif ordinary > 0:
            shares[step["operator"]] = shares.get(step["operator"], 0) + share * ordinary
    return {"prepared": prepared, "control": others, "operators": shares,
            "outside": profile["outside_of_plans_seconds"] / whole if profile["trains"] and whole else 0.0}


def operators(rows: dict[str, dict]) -> list[str]:
    """The operators that hold time in steps that are not prepared. Each model counts alike."""
    profiles = {name: row["profile"] for name, row in rows.items() if "profile" in row}
    if not profiles:
        return []
    count = len(profiles)
    sums: dict[str, float] = {}
    users: dict[str, list[tuple[float, str]]] = {}
    for name, profile in profiles.items():
        for operator, share in profile["operators"].items():
            sums[operator] = sums.get(operator, 0) + share / count
            users.setdefault(operator, []).append((share, name))
    parts = {key: statistics.fmean(each[key] for each in profiles.values()) for key in ("prepared", "control", "outside")}
    lines = [f"Time of {count} models, each counted alike: {parts['prepared']:.1%} in prepared steps and kernels, "
             f"{sum(sums.values()):.1%} in operators that are not prepared, {parts['control']:.1%} in jumps and moves"
             + (f", {parts['outside']:.1%} outside of plans" if parts["outside"] else "") + ".", ""]
    cells = []
    for operator in sorted(sums, key=lambda each: -sums[each])[:OPERATORS]:
        share, most = max(users[operator])
        cells.append([operator, f"{sums[operator]:.2%}", str(len(users[operator])), f"{share:.0%} {most}"])
    return lines + table(["operator that is not prepared", "share", "models", "most in"], cells) + [""]


def sorted_models(rows: dict[str, dict]) -> list[str]:
    measured = {name: row for name, row in rows.items() if row["ratios"]}
    columns = sorted({who for row in measured.values() for who in row["ratios"]} - {"best"})
    has_profile = any("profile" in row for row in measured.values())
    cells = []
    for name, row in sorted(measured.items(), key=lambda each: each[1]["ratios"].get("best", math.inf)):
        ratios = [f"{row['ratios'][who]:.2f}" if who in row["ratios"] else "-" for who in ("best", *columns)]
        spread = row.get("spread")
        note = " ".join(["differs"] * ("wrong" in row) + ["noisy"] * (spread is not None and spread > NOISY))
        unprepared = [f"{sum(row['profile']['operators'].values()):.0%}" if "profile" in row else "-"] * has_profile
        cells.append([name, row["family"], duration(row["sconce_seconds"]), *ratios, *unprepared, note])
    return table(["model", "family", "sconce", "best", *columns, *["unprepared"] * has_profile, "note"], cells) + [""]


def sections(rows: dict[str, dict], *parts: Callable[[dict[str, dict]], list[str]], heading: Optional[str] = "## ") -> str:
    lines: list[str] = []
    for title, group in groups_of(rows).items():
        lines += [f"{heading}{title}", ""]
        for part in parts:
            lines += part(group)
    return "\n".join(lines).rstrip()


def summary(rows: dict[str, dict]) -> str:
    return sections(rows, distributions, operators, troubles, heading="")


def markdown(content: dict) -> str:
    machine = ", ".join(f"{key} {value}" for key, value in content["machine"].items())
    head = f"# sconce on the corpus\n\n{machine}. Ratios to sconce: above 1, sconce is faster.\n\n"
    return head + sections(content["rows"], distributions, troubles, operators, sorted_models) + "\n"
