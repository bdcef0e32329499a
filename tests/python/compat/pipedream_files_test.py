"""PipeDream's files: the profile with its stages, and the configuration of the runtime, as `hetu plan` cuts the model."""
import contextlib
import io
import json
import pathlib
import tempfile
import unittest

from hetu.compat import pipedream_files

# Two light layers with few weights, and two heavy ones: with 4 workers, the light stage gets one copy, or the cut moves.
PROFILE = """\
node1 -- Input() -- forward_compute_time=0.000, backward_compute_time=0.000, activation_size=100.0, parameter_size=0.000
node2 -- Conv2d(3, 64) -- forward_compute_time=4.0, backward_compute_time=8.0, activation_size=1e3, parameter_size=1e3
node3 -- Conv2d(64, 64) -- forward_compute_time=4.0, backward_compute_time=8.0, activation_size=1e3, parameter_size=1e3
node4 -- Linear(64, 4096) -- forward_compute_time=2.0, backward_compute_time=6.0, activation_size=1e3, parameter_size=4e8
\tnode1 -- node2
\tnode2 -- node3
\tnode3 -- node4
"""


class PipeDreamFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "graph.txt").write_text(PROFILE)

    def run_main(self, *words):
        with contextlib.redirect_stdout(io.StringIO()) as said:
            self.assertEqual(pipedream_files.main(["-f", str(self.folder / "graph.txt"), *words]), 0)
        return said.getvalue().splitlines()

    def test_the_cut_is_written_as_pipedream_does(self):
        """3 workers share the 24 ms of convolutions, 8 ms each; the layer with 400 MB of weights has no copy to sum with."""
        out = self.folder / "new" / "vgg"
        self.assertEqual(self.run_main("-n", "4", "-o", str(out)), [str(out / "gpus=4.txt"), str(out / "conf.json")])
        lines = (out / "gpus=4.txt").read_text().splitlines()
        self.assertEqual(lines[4:], PROFILE.splitlines()[4:])
        for line, given, stage in zip(lines, PROFILE.splitlines(), (0, 0, 0, 1), strict=False):
            self.assertEqual(line, f"{given} -- stage_id={stage}")
        self.assertEqual(json.loads((out / "conf.json").read_text()),
                         {"module_to_stage_map": [0, 1, 1], "stage_to_rank_map": {"0": [0, 1, 2], "1": [3]}})

    def test_a_profile_with_stages_gets_new_ones(self):
        stages = [{"layers": ["node1 a", "node2 b"], "copies": 1}, {"layers": ["node3 c", "node4 d"], "copies": 2}]
        once = pipedream_files.with_stages(PROFILE, stages)
        self.assertEqual(pipedream_files.with_stages(once, stages[::-1]).count(" -- stage_id=1\n"), 2)
        self.assertEqual(pipedream_files.with_stages(once, stages), once)
        extra = PROFILE + "node9 -- __getitem__(1) -- activation_size=1\n\tnode2 -- node9\n"
        self.assertIn("node9 -- __getitem__(1) -- activation_size=1 -- stage_id=0\n",
                      pipedream_files.with_stages(extra, stages))
        with self.assertRaisesRegex(ValueError, "node3: .* no stage"):
            pipedream_files.with_stages(PROFILE, [{"layers": ["node2 b", "node1 a"], "copies": 1}])

    def test_levels(self):
        self.assertEqual(pipedream_files.levels_of([4, 2], [1.2e10, 1.25e9]), "4:1.2e+10,2:1.25e+09")
        self.assertEqual(pipedream_files.levels_of([4, 2], []), "4:1e+09,2:1e+09")
        with self.assertRaisesRegex(ValueError, "-n has 2 levels, but -b has 1"):
            pipedream_files.levels_of([4, 2], [1e9])
        self.run_main("-n", "2", "2", "-b", "1.2e10", "1.25e9", "-o", str(self.folder))
        self.assertTrue((self.folder / "gpus=4.txt").is_file())

    def test_another_file_is_refused(self):
        (self.folder / "graph.txt").write_text("no graph\n")
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            self.run_main("-n", "4", "-o", str(self.folder))
        self.assertEqual(said.getvalue().count("\n"), 1, said.getvalue())
        self.assertRegex(said.getvalue(), "graph.txt")


if __name__ == "__main__":
    unittest.main(verbosity=2)
