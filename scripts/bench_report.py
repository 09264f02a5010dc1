#!/usr/bin/env python3
"""Tables and a chart of linrec_bench's results.

usage: bench_report.py [--readme README.md] [--chart speed.svg] LABEL=FILE...

FILE is the JSON of linrec_bench, with repetitions (--benchmark_out=FILE --benchmark_repetitions=9
--benchmark_enable_random_interleaving=true); what is reported is the median of the repetitions. LABEL names the
build, "AVX2" for one; files with one label are taken together. The tables go to standard output, or with --readme
between that file's lines <!-- bench:begin --> and <!-- bench:end -->. --chart draws them with gnuplot, as .svg or
.png.
"""
import argparse
import json
import math
import pathlib
import shutil
import statistics
import subprocess
import sys

TOKENS = (1, 16, 128, 2048)
KERNELS = {"Mamba2": "Mamba-2", "GatedDeltaNet": "Gated DeltaNet", "RWKV7": "RWKV-7", "GLA": "GLA",
           "RetNet": "RetNet"}
NO_NUMBER = ""
BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


class Refused(Exception):
    """What is wrong with what was given, for the user to read."""


# ---- reading --------------------------------------------------------------------------------------------------


class Build:
    """The medians of one label: benchmark name -> counter -> number."""

    def __init__(self, label):
        self.label = label
        self.peaks = {}
        self.samples = {}
        self.shapes = {}

    def take(self, path):
        results = read_json(path)
        context = results.get("context", {})
        for scalar in ("float", "double"):
            key = f"fma_peak_{scalar}_gflops"
            if key in context:
                peak = number(context[key], path, f"context, {key}")
                self.peaks[scalar] = max(self.peaks.get(scalar, 0.0), peak)
        found = False
        for entry in results["benchmarks"]:
            if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                raise Refused(f"{path}: expected each benchmark to be an object with a name, got {entry!r:.60}")
            if entry.get("run_type", "iteration") != "iteration":
                continue
            name = entry.get("run_name", entry["name"])
            if "us_per_token" not in entry and not entry.get("error_occurred"):
                continue  # of another kind: layers, SKA
            if entry.get("error_occurred"):
                raise Refused(f"{path}: {name} failed: {entry.get('error_message', 'no reason given')}")
            found = True
            counters = self.samples.setdefault(name, {})
            for counter in ("us_per_token", "of_peak", "of_stream"):
                value = number(entry.get(counter), path, f"{name}, {counter}")
                counters.setdefault(counter, []).append(value)
            self.note_shape(name)
        if not found:
            raise Refused(f"{path}: expected benchmarks with the counter us_per_token, such as "
                          "Mamba2/prefill/24x64x128/2048/float/none, found none")

    def note_shape(self, name):
        parts = name.split("/")
        if parts[0] == "Peer":
            parts = parts[2:]
        self.shapes.setdefault(parts[0], parts[2] if len(parts) > 2 else "")

    def get(self, counter, kernel, what, tokens, scalar="float", taper="none"):
        """The median, or None where it was not measured."""
        name = f"{kernel}/{what}/{self.shapes.get(kernel, '')}/{tokens}/{scalar}/{taper}"
        return self.median(name, counter)

    def median(self, name, counter="us_per_token"):
        values = self.samples.get(name, {}).get(counter)
        return statistics.median(values) if values else None

    def fewest_repetitions(self):
        return min(len(counters["us_per_token"]) for counters in self.samples.values())


def number(value, path, what):
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise Refused(f"{path}: {what}: expected a number, got {value!r:.40}") from None
    if not 0 < result < float("inf"):
        raise Refused(f"{path}: {what}: expected a finite number above 0, got {value}")
    return result


def read_json(path):
    try:
        results = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise Refused(f"{path}: cannot be read: {error.strerror}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: expected the JSON of linrec_bench (--benchmark_out), but: {error}") from None
    if not isinstance(results, dict) or not isinstance(results.get("benchmarks"), list):
        raise Refused(f'{path}: expected the JSON of linrec_bench, an object with a list "benchmarks"')
    return results


def read_builds(arguments):
    builds = {}
    for argument in arguments:
        label, equals, path = argument.partition("=")
        if not equals:
            label, path = pathlib.Path(argument).stem, argument
        builds.setdefault(label, Build(label)).take(path)
    return list(builds.values())


# ---- tables ---------------------------------------------------------------------------------------------------


def ratio(above, below):
    return above / below if above is not None and below is not None else None


def microseconds(value):
    if value is None:
        return NO_NUMBER
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def two_places(value):
    return NO_NUMBER if value is None else f"{value:.2f}"


def table(header, rows):
    """Markdown, without rows and columns that have no numbers."""
    rows = [row for row in rows if any(cell != NO_NUMBER for cell in row[2:])]
    used = [i for i in range(len(header)) if i < 2 or any(row[i] != NO_NUMBER for row in rows)]
    if not rows:
        return None
    lines = [header, ["---"] * len(header)] + rows
    return "\n".join("| " + " | ".join(line[i] for i in used) + " |" for line in lines)


def kernels_of(builds):
    return [kernel for kernel in KERNELS if any(kernel in build.shapes for build in builds)]


def shape_of(builds, kernel):
    shape = next(build.shapes[kernel] for build in builds if kernel in build.shapes)
    return shape.replace("x", " x ")


def speed_table(builds):
    header = ["prefill, T = 2048", "heads x P x N, or x K x V"]
    for build in builds:
        header += [f"{build.label}: us a token", "of peak"]
    rows = []
    for kernel in kernels_of(builds):
        row = [KERNELS[kernel], shape_of(builds, kernel)]
        for build in builds:
            row.append(microseconds(build.get("us_per_token", kernel, "prefill", 2048)))
            row.append(two_places(build.get("of_peak", kernel, "prefill", 2048)))
        rows.append(row)
    return table(header, rows)


def length_table(builds):
    header = ["prefill, us a token", ""] + [f"T = {tokens}" for tokens in TOKENS] + ["T = 16 / T = 2048"]
    rows = []
    for kernel in kernels_of(builds):
        for build in builds:
            times = [build.get("us_per_token", kernel, "prefill", tokens) for tokens in TOKENS]
            rows.append([KERNELS[kernel], build.label] + [microseconds(time) for time in times] +
                        [two_places(ratio(times[1], times[3]))])
    return table(header, rows)


def decode_table(builds):
    header = ["a step", "", "one state: us", "of stream", "24 states in turn: us", "of stream"]
    rows = []
    for kernel in kernels_of(builds):
        for build in builds:
            row = [KERNELS[kernel], build.label]
            for what in ("step", "decode24"):
                row.append(microseconds(build.get("us_per_token", kernel, what, 1)))
                row.append(two_places(build.get("of_stream", kernel, what, 1)))
            rows.append(row)
    return table(header, rows)


def variant_table(builds):
    cases = (("prefill", 2048), ("step", 1), ("decode24", 1))
    header = ["time over the plain kernel's in float", ""]
    header += [f"linear taper: {what}" for what, _ in cases] + [f"double: {what}" for what, _ in cases]
    rows = []
    for kernel in kernels_of(builds):
        for build in builds:
            row = [KERNELS[kernel], build.label]
            for scalar, taper in (("float", "linear"), ("double", "none")):
                for what, tokens in cases:
                    time = build.get("us_per_token", kernel, what, tokens, scalar, taper)
                    row.append(two_places(ratio(time, build.get("us_per_token", kernel, what, tokens))))
            rows.append(row)
    return table(header, rows)


def kernel_and_case(name):
    return (name.split("/") + [""])[:2]


def peers_of(builds):
    """All (library, rest of the name) that are not linrec's, in the order of the other tables."""
    pairs = set()
    for build in builds:
        for name in build.samples:
            peer, _, rest = name.partition("/")
            library, _, rest = rest.partition("/")
            if peer == "Peer" and library != "linrec":
                pairs.add((library, rest))
    places = {name: i for i, name in enumerate(["prefill", "step", "decode24", *KERNELS])}

    def order(pair):
        kernel, what = kernel_and_case(pair[1])
        return places.get(what, len(places)), places.get(kernel, len(places)), pair

    return sorted(pairs, key=order)


def peer_table(builds):
    header = ["what", "against"]
    for build in builds:
        header += [f"{build.label}: us a token", "linrec's", "ratio"]
    rows = []
    for library, rest in peers_of(builds):
        kernel, what = kernel_and_case(rest)
        row = [f"{KERNELS.get(kernel, kernel)}, {what}", library.replace("_", " ")]
        for build in builds:
            theirs, ours = build.median(f"Peer/{library}/{rest}"), build.median(f"Peer/linrec/{rest}")
            row += [microseconds(theirs), microseconds(ours), two_places(ratio(theirs, ours))]
        rows.append(row)
    return table(header, rows)


def summary(builds):
    peaks = []
    for build in builds:
        measured = [f"{build.peaks[scalar]:.0f} GFLOP/s in {scalar}" for scalar in ("float", "double")
                    if scalar in build.peaks]
        if measured:
            peaks.append(f"{build.label}: " + ", ".join(measured))
    fewest = min(build.fewest_repetitions() for build in builds)
    text = "One run." if fewest == 1 else f"Medians of {fewest} runs."
    return text + (f" Peak: {'; '.join(peaks)}." if peaks else "")


def report(builds):
    tables = (speed_table, length_table, decode_table, variant_table, peer_table)
    return "\n\n".join([summary(builds)] + [text for text in (make(builds) for make in tables) if text]) + "\n"


def put_into(path, text):
    try:
        old = pathlib.Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise Refused(f"{path}: cannot be read: {error.strerror}") from None
    begin, end = old.find(BEGIN + "\n"), old.find("\n" + END)
    if begin < 0 or end < begin or old.count(BEGIN) != 1 or old.count(END) != 1:
        raise Refused(f"{path}: expected one line {BEGIN} and after it one line {END}")
    new = old[:begin + len(BEGIN)] + "\n" + text.rstrip("\n") + old[end:]
    pathlib.Path(path).write_text(new, encoding="utf-8")


# ---- chart ----------------------------------------------------------------------------------------------------

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9")  # told apart by all eyes


def quoted(text):
    return "'" + text.replace("'", "''") + "'"


def steps(low, high):
    """1, 2, 5, 10, 20, ... from below low to above high."""
    decade, marks = 10.0 ** math.floor(math.log10(low)), []
    while not marks or marks[-1] < high:
        marks += [decade, 2 * decade, 5 * decade]
        decade *= 10
    first = max(i for i, mark in enumerate(marks) if mark <= low)
    last = min(i for i, mark in enumerate(marks) if mark >= high)
    return marks[first:last + 1]


def chart_script(builds, output):
    """For gnuplot: bars for every build, lines for the last."""
    kernels, last = kernels_of(builds), builds[-1]
    terminal = {".svg": "svg size 1100,440 font 'sans,14' background 'white'",
                ".png": "pngcairo size 1100,440 font 'sans,11' background 'white'"}[output.suffix]
    lines = [f"set terminal {terminal}", f"set output {quoted(str(output.resolve()))}", "set encoding utf8",
             "set border 3 lc rgb '#404040'", "set tics nomirror out textcolor rgb '#202020'",
             "set grid ytics lt 1 lc rgb '#e0e0e0'", "set bmargin 4", "set multiplot layout 1,2",
             "set title 'Prefill of 2048 tokens, one thread, float'",
             "set ylabel 'useful flops, fraction of FMA peak'", "set yrange [0:1.2]", "set ytics 0,0.2,1",
             f"set xrange [-0.7:{len(kernels) - 0.3}]", "set xtics scale 0",
             "set key top right horizontal samplen 1.5 width 1",
             "set style data histograms", "set style histogram clustered gap 1",
             "set style fill solid border lc rgb 'white'", "set boxwidth 0.95", "$peak << EOD"]
    for kernel in kernels:
        fractions = [build.get("of_peak", kernel, "prefill", 2048) for build in builds]
        name = KERNELS[kernel].replace(" ", "\\n")  # neighbours' names must not meet
        lines.append(" ".join([f'"{name}"'] + ["NaN" if f is None else f"{f:.4f}" for f in fractions]))
    bars = []
    for i, build in enumerate(builds):
        colour = COLOURS[i % len(COLOURS)]
        bars.append(f"$peak using {i + 2}:xtic(1) lc rgb '{colour}' title {quoted(build.label)}")
    lines += ["EOD", "plot " + ", ".join(bars)]

    curves = {}
    for kernel in kernels:
        times = [last.get("us_per_token", kernel, "prefill", tokens) for tokens in TOKENS]
        if times[-1] is not None:
            curves[kernel] = times
    measured = [time for times in curves.values() for time in times if time is not None]
    if measured:
        marks = steps(min(measured), max(measured))
        lines += [f"set title {quoted('Time a token by length, one thread, float, ' + last.label)}",
                  "set xlabel 'tokens of a prefill'", "set ylabel 'microseconds a token'", "unset boxwidth",
                  "set logscale xy", "set xrange [0.8:2600]", f"set yrange [{marks[0]}:{marks[-1]}]",
                  "set xtics scale 1 (" + ", ".join(str(tokens) for tokens in TOKENS) + ")",
                  "set ytics (" + ", ".join(f"{mark:g}" for mark in marks) + ")",
                  "set grid xtics ytics lt 1 lc rgb '#e0e0e0'",
                  "set key outside right top vertical Left reverse samplen 2 width 0"]
        plots = []
        for kernel in sorted(curves, key=lambda kernel: -curves[kernel][-1]):  # the legend as the lines
            i = kernels.index(kernel)
            lines.append(f"$times{i} << EOD")
            points = [(tokens, time) for tokens, time in zip(TOKENS, curves[kernel]) if time is not None]
            lines += [f"{tokens} {time:.4f}" for tokens, time in points]
            lines.append("EOD")
            plots.append(f"$times{i} using 1:2 with linespoints lw 2 pt {(7, 5, 9, 11, 13)[i % 5]} ps 0.9 "
                         f"lc rgb '{COLOURS[i % len(COLOURS)]}' title {quoted(KERNELS[kernel])}")
        lines.append("plot " + ", ".join(plots))
    lines.append("unset multiplot")
    return "\n".join(lines) + "\n"


def draw(builds, output):
    if output.suffix not in (".svg", ".png"):
        raise Refused(f"{output}: expected a picture that ends in .svg or .png")
    if all(build.get("of_peak", kernel, "prefill", 2048) is None for build in builds for kernel in KERNELS):
        raise Refused(f"{output}: a chart needs prefill with T = 2048, in float and without a taper")
    if shutil.which("gnuplot") is None:
        print(f"{output} is not drawn: gnuplot is not installed (scripts/setup.sh --demo installs it)",
              file=sys.stderr)
        return
    done = subprocess.run(["gnuplot", "-d"], input=chart_script(builds, output), text=True, capture_output=True)
    if done.returncode != 0:
        raise Refused(f"{output}: gnuplot could not draw it: {done.stderr.strip()}")


def main():
    description, _, epilog = __doc__.partition("\n\nusage")
    parser = argparse.ArgumentParser(description=description, epilog="FILE" + epilog.partition("\n\nFILE")[2])
    parser.add_argument("--readme", metavar="README.md", help="put the tables into this file, do not print them")
    parser.add_argument("--chart", metavar="PICTURE", type=pathlib.Path, help="draw .svg or .png with gnuplot")
    parser.add_argument("files", metavar="LABEL=FILE", nargs="+")
    arguments = parser.parse_args()
    try:
        builds = read_builds(arguments.files)
        text = report(builds)
        if arguments.chart:
            draw(builds, arguments.chart)
        if arguments.readme:
            put_into(arguments.readme, text)
        else:
            print(text, end="")
    except Refused as refused:
        print(f"bench_report.py: {refused}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
