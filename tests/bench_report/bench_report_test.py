"""scripts/bench_report.py as its users meet it: tables, the README between its marks, refusals, the chart."""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "bench_report.py"


def entry(name, us, of_peak=0.5, of_stream=0.25, **more):
    return {"name": name, "run_name": name, "run_type": "iteration", "us_per_token": us, "of_peak": of_peak,
            "of_stream": of_stream, **more}


def results(entries):
    return {"context": {"fma_peak_float_gflops": "83.4", "fma_peak_double_gflops": "41.9"}, "benchmarks": entries}


# Repetitions in no order; their medians are 20, 40, 10, 22, 30, 12.5; 30 / 12.5 is the ratio to the peer.
MAMBA2 = results(
    [entry("Mamba2/prefill/24x64x128/2048/float/none", us, peak)
     for us, peak in ((9, 0.1), (20, 0.5), (99, 0.9))] +
    [entry("Mamba2/prefill/24x64x128/16/float/none", us) for us in (40, 41, 39)] +
    [entry("Mamba2/decode24/24x64x128/1/float/none", us, of_stream=us / 20) for us in (11, 10, 9)] +
    [entry("Mamba2/prefill/24x64x128/2048/float/linear", us) for us in (22, 23, 21)] +
    [entry("Mamba2/prefill/24x64x128/2048/float/none/fixed", us) for us in (7, 7, 7)] +
    [entry("Peer/ggml/Mamba2/step/24x64x128/1/float", us) for us in (30, 29, 31)] +
    [entry("Peer/linrec/Mamba2/step/24x64x128/1/float", us) for us in (12.5, 13, 12)] +
    [{"name": "SKA/step/24/64", "run_type": "iteration", "cpu_time": 1.0},
     {**entry("Mamba2/prefill/24x64x128/2048/float/none", 1e6), "run_type": "aggregate"}])


class BenchReport(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def file(self, content, name="results.json"):
        path = self.directory / name
        path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def call(self, *arguments, environment=None):
        return subprocess.run([sys.executable, str(SCRIPT), *map(str, arguments)], text=True, capture_output=True,
                              env=environment)

    def refusal(self, *arguments):
        done = self.call(*arguments)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertNotIn("Traceback", done.stderr)
        return done.stderr.strip()

    def test_tables_of_medians(self):
        done = self.call(f"AVX2={self.file(MAMBA2)}")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for line in ("Medians of 3 runs. Peak: AVX2: 83 GFLOP/s in float, 42 GFLOP/s in double.",
                     "| Mamba-2 | 24 x 64 x 128 | 20.0 | 0.50 |",  # speed
                     "| Mamba-2 | AVX2 | 40.0 | 20.0 | 2.00 |",    # against length; T = 1, 128 were not measured
                     "| Mamba-2 | AVX2 | 10.0 | 0.50 |",           # decode
                     "| Mamba-2 | AVX2 | 1.10 |",                  # taper
                     "| Mamba-2, step | ggml | 30.0 | 12.5 | 2.40 |"):
            self.assertIn(line + "\n", done.stdout)
        self.assertNotIn("RetNet", done.stdout)

    def test_a_column_for_each_label_and_files_of_one_label_together(self):
        faster = results([entry("Mamba2/prefill/24x64x128/2048/float/none", 5)])
        more = results([entry("GLA/prefill/4x128x128/2048/float/none", 3)])
        done = self.call(f"AVX2={self.file(MAMBA2)}", f"AVX-512={self.file(faster, 'b.json')}",
                         f"AVX-512={self.file(more, 'c.json')}")
        self.assertIn("| AVX2: us a token | of peak | AVX-512: us a token | of peak |\n", done.stdout)
        self.assertIn("| Mamba-2 | 24 x 64 x 128 | 20.0 | 0.50 | 5.00 | 0.50 |\n", done.stdout)
        self.assertIn("| GLA | 4 x 128 x 128 |  |  | 3.00 | 0.50 |\n", done.stdout)

    def test_the_readme_keeps_what_is_outside_of_the_marks(self):
        readme = self.file("above\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nbelow\n", "README.md")
        for _ in range(2):
            done = self.call("--readme", readme, f"AVX2={self.file(MAMBA2)}")
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        text = readme.read_text(encoding="utf-8")
        self.assertTrue(text.startswith("above\n<!-- bench:begin -->\nMedians of 3"), text)
        self.assertTrue(text.endswith("| 2.40 |\n<!-- bench:end -->\nbelow\n"), text)
        self.assertNotIn("old", text)

    def test_a_readme_without_marks_is_refused_and_left_alone(self):
        for content in ("no marks\n", "<!-- bench:end -->\n<!-- bench:begin -->\n"):
            readme = self.file(content, "README.md")
            message = self.refusal("--readme", readme, self.file(MAMBA2))
            self.assertIn("README.md: expected one line <!-- bench:begin --> and after it one line <!-- bench:end",
                          message)
            self.assertEqual(readme.read_text(encoding="utf-8"), content)

    def test_bad_input_is_named(self):
        name = "Mamba2/prefill/24x64x128/2048/float/none"
        self.assertIn("gone.json: cannot be read: No such file", self.refusal(self.directory / "gone.json"))
        for content, expected in (
                ("{", "expected the JSON of linrec_bench (--benchmark_out), but: "),
                ([], 'expected the JSON of linrec_bench, an object with a list "benchmarks"'),
                ({"benchmarks": [3]}, "expected each benchmark to be an object with a name, got 3"),
                (results([]), "expected benchmarks with the counter us_per_token, such as Mamba2/prefill/"),
                (results([entry(name, "fast")]), f"{name}, us_per_token: expected a number, got 'fast'"),
                (results([entry(name, 0)]), f"{name}, us_per_token: expected a finite number above 0, got 0"),
                (results([entry(name, 1, of_peak=None)]), f"{name}, of_peak: expected a number, got None"),
                (results([{"name": name, "error_occurred": True, "error_message": "they differ"}]),
                 f"{name} failed: they differ")):
            message = self.refusal(self.file(content))
            self.assertTrue(message.startswith("bench_report.py: ") and "results.json: " in message, message)
            self.assertIn(expected, message)

    def test_the_chart(self):
        readable = self.file(MAMBA2)
        self.assertIn("speed.pdf: expected a picture that ends in .svg or .png",
                      self.refusal("--chart", self.directory / "speed.pdf", readable))
        picture = self.directory / "it's speed.svg"
        if shutil.which("gnuplot"):
            done = self.call("--chart", picture, f"AVX2={readable}")
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("Prefill of 2048 tokens", picture.read_text(encoding="utf-8"))
            self.assertIn("/gone/speed.svg: gnuplot could not draw it",
                          self.refusal("--chart", "/gone/speed.svg", readable))

    def test_without_gnuplot_there_are_tables(self):
        done = self.call("--chart", self.directory / "speed.svg", self.file(MAMBA2), environment={"PATH": ""})
        self.assertEqual(done.returncode, 0)
        self.assertIn("| Mamba-2 |", done.stdout)
        self.assertIn("gnuplot is not installed", done.stderr)


if __name__ == "__main__":
    unittest.main()
