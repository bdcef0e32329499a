"""Device lists: text forms, fusing, layouts for every size, choices, and each error."""
import os
import pathlib
import random
import re
import subprocess
import sys
import unittest

import device_list
from hetu import devices
from hetu.devices import DeviceError, choose, cpu, fit, gpu, rcpu, rgpu

LISTS = devices.lists_of(device_list)


def hosts(number, workers=8):
    return [(f"w{i}", workers) for i in range(number)]


class Forms(unittest.TestCase):
    def test_text_and_back(self):
        for device, text in ((cpu(1), "localhost:cpu:1"), (gpu(0), "localhost:gpu:0"),
                             (rcpu("w-1.a", 2), "w-1.a:cpu:2"), (rgpu("w0", 7), "w0:gpu:7")):
            self.assertEqual(str(device), text)
            self.assertEqual(devices.parse_devices(text), [device])

    def test_separators(self):
        want = [rgpu("w0", 0), gpu(1), cpu(0), rgpu("w1", 3)]
        for text in ("w0:gpu:0;gpu:1;cpu;w1:gpu:3", "w0:gpu:0,gpu:1,cpu:0,w1:gpu:3",
                     " w0:gpu:0  gpu:1; cpu,w1:gpu:3; "):
            self.assertEqual(devices.parse_devices(text), want)

    def test_wrong_forms(self):
        for text in ("", "tpu:0", "w0:gpu:-1", "w0:gpu:x", "w0", "a b:gpu:0:1"):
            with self.assertRaisesRegex(DeviceError, "it must be host:gpu:0"):
                devices.parse_devices(text)
        for make in (lambda: gpu(-1), lambda: gpu("0"), lambda: rgpu("w0", 1.5), lambda: gpu(True)):
            self.assertRaisesRegex(DeviceError, "the index must be a whole number of at least 0", make)
        self.assertRaisesRegex(DeviceError, "it must be a host name", lambda: rgpu("w0:1", 0))


class Shipped(unittest.TestCase):
    def test_every_list_is_what_its_name_says(self):
        machines = {"pipe_2_4": 1, "pipe_4_4": 2, "pipe_8_4": 4, "pipe_16_4": 8, "pipe_8_2": 2, "pipe_16_1": 2}
        self.assertEqual(set(LISTS), {*machines, "my_device"})
        for name, number in machines.items():
            with self.subTest(name):
                self.assertEqual(len(LISTS[name]), 4)
                layout = choose(name, LISTS, hosts(number))
                pipelines, stages = map(int, re.findall(r"\d+", name))
                self.assertEqual((layout.pipelines, layout.stages), (pipelines, stages))
                # Columns are contiguous on a host, as in SD-PIPE, so the layout equals the plain grid.
                self.assertEqual(layout.worker_of, devices.lay_out(pipelines, stages, hosts(number)).worker_of)
                rows = 4 // stages
                self.assertEqual(layout.rows_of, tuple(tuple(range(s * rows, s * rows + rows)) for s in range(stages)))

    def test_pipe_4_4_is_sd_pipes(self):
        self.assertEqual([str(row[c]) for row in device_list.pipe_4_4 for c in (0,)],
                         ["w0:gpu:0", "w0:gpu:1", "w0:gpu:2", "w0:gpu:3"])
        self.assertEqual(list(map(str, device_list.pipe_4_4[0])), ["w0:gpu:0", "w0:gpu:4", "w1:gpu:0", "w1:gpu:4"])
        self.assertIs(device_list.my_device, device_list.pipe_4_4)


class Fit(unittest.TestCase):
    def test_any_permutation_of_workers_over_any_hosts(self):
        seed = int(os.environ.get("SEED", random.randrange(2**32)))
        draw = random.Random(seed)
        for _ in range(200):
            sizes = [(f"h{i}", draw.randint(1, 5)) for i in range(draw.randint(1, 4))]
            total = sum(n for _, n in sizes)
            stages = draw.choice([s for s in range(1, total + 1) if total % s == 0])
            entries = [(rgpu(h, i), n) for n, (h, i) in enumerate((h, i) for h, k in sizes for i in range(k))]
            draw.shuffle(entries)
            rows, numbers, at = [], [], 0
            repeats = [draw.randint(1, 3) for _ in range(stages)]
            for repeat in repeats:
                part = entries[at:at + total // stages]
                at += total // stages
                rows += [[d for d, _ in part]] * repeat
                numbers.append([n for _, n in part])
            layout = fit("drawn", rows, sizes)
            message = f"SEED={seed}"
            self.assertEqual(layout.worker_of, tuple(zip(*numbers, strict=True)), message)
            self.assertEqual([len(r) for r in layout.rows_of], repeats, message)
            self.assertEqual([r for rows_of in layout.rows_of for r in rows_of], list(range(len(rows))), message)
            for p in range(layout.pipelines):
                for s in range(stages):
                    self.assertEqual(layout.place_of(layout.worker_of[p][s]), (p, s), message)

    def test_rows_may_be_text_and_localhost_means_the_only_host(self):
        layout = fit("mine", ["gpu:0; gpu:2", "gpu:1, gpu:3"], [("box", 4)])
        self.assertEqual(layout.worker_of, ((0, 1), (2, 3)))

    def refused(self, message, rows, *where):
        with self.assertRaises(DeviceError) as caught:
            fit("mine", rows, list(where))
        self.assertIn(message, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))

    def test_rows_of_different_lengths_are_replicas_of_stages(self):
        rows = [[gpu(3)], [gpu(0), gpu(2)], [gpu(0), gpu(2)], [gpu(1)]]
        layout = fit("mine", rows, [("localhost", 4)])
        self.assertEqual((layout.pipelines, layout.stages, layout.replicas), (1, 3, (1, 2, 1)))
        self.assertEqual([layout.number_of(worker) for worker in (3, 0, 2, 1)], [0, 1, 2, 3])
        self.assertEqual(layout.rows_of, ((0,), (1, 2), (3,)))
        self.assertEqual(layout.describe(), "mine: 3 stages on 1 + 2 + 1 workers")
        even = fit("mine", [[gpu(0), gpu(1)], [gpu(2), gpu(3)]], [("localhost", 4)])
        self.assertEqual((even.replicas, [even.number_of(worker) for worker in (0, 2, 1, 3)]), ((), [0, 1, 2, 3]))

    def test_refusals_name_row_and_entry(self):
        four = ("localhost", 4)
        self.refused("device list mine: 4 workers started, but the list's rows of 2, 1 entries name 3; worker 3",
                     [[gpu(0), gpu(1)], [gpu(2)]], four)
        self.refused("device list mine, row 1, entry 1: localhost:gpu:0 is already in row 0, entry 0",
                     [[gpu(0), gpu(1)], [gpu(2), gpu(0)]], four)
        self.refused("row 0, entry 1: localhost:gpu:0 is already in row 0, entry 0", [[gpu(0), gpu(0)]], four)
        self.refused("row 2, entry 0: localhost:gpu:0 is already in row 0, entry 0; a worker may occur only once "
                     "(equal neighbouring rows are joined)", [[gpu(0)], [gpu(1)], [gpu(0)]], ("localhost", 2))
        self.refused("row 0, entry 1: w2:gpu:0 is on a host that was not started; started: w0 with 1 worker, "
                     "w1 with 1 worker", [[rgpu("w0", 0), rgpu("w2", 0)]], ("w0", 1), ("w1", 1))
        self.refused("row 0, entry 1: w0:gpu:4: host w0 has 4 workers; the index must be below 4",
                     [[rgpu("w0", 0), rgpu("w0", 4)]], ("w0", 4))
        self.refused("device list mine: 4 workers started, but the list's rows of 1, 1 entries name 2; worker 1 "
                     "(localhost:gpu:1) has no entry; start 2 workers", [[gpu(0)], [gpu(2)]], four)
        self.refused("row 0, entry 0: localhost:cpu:0 is not a worker; write gpu(i)", [[cpu(0)]], four)
        self.refused("row 0, entry 0: it must be gpu(i) or rgpu(host, i); got 3", [[3]], four)
        self.refused("row 0: it must be a list of devices; got []", [[]], four)
        self.refused("it must be a list of rows", [], four)
        self.refused("it must be a list of rows", "gpu:0", four)


class Choose(unittest.TestCase):
    def test_a_name_that_the_file_lacks_is_laid_over_the_workers(self):
        for pipelines in range(1, 7):
            for stages in range(1, 7):
                layout = choose(f"pipe_{pipelines}_{stages}", {}, [("a", pipelines * stages - 1), ("b", 1), ("c", 0)])
                for p in range(pipelines):
                    for s in range(stages):
                        self.assertEqual(layout.worker_of[p][s], p * stages + s)
                self.assertEqual(layout.note, "")

    def test_the_files_list_wins_over_its_name(self):
        mine = {"pipe_1_2": [[gpu(1)], [gpu(0)]]}
        self.assertEqual(choose("pipe_1_2", mine, [("localhost", 2)]).worker_of, ((1, 0),))

    def test_rows_of_workers(self):
        self.assertEqual(choose("gpu:1/gpu:0", {}, [("localhost", 2)]).worker_of, ((1, 0),))
        layout = choose("a:gpu:0,b:gpu:0/a:gpu:1,b:gpu:1", {}, [("a", 2), ("b", 2)])
        self.assertEqual((layout.pipelines, layout.stages, layout.worker_of), (2, 2, ((0, 1), (2, 3))))
        with self.assertRaisesRegex(DeviceError, "device list of --devices, row 1, entry 0: c:gpu:0 is on a host"):
            choose("a:gpu:0/c:gpu:0", {}, [("a", 2)])

    def test_wrong_choices(self):
        with self.assertRaisesRegex(DeviceError, r"pipe_2_2: 2 pipelines x 2 stages need 4 workers, 3 started "
                                                 r"\(localhost with 3 workers\); start that many, e\.g\. heturun -w 4"):
            choose("pipe_2_2", {}, [("localhost", 3)])
        for name in ("pipe_0_2", "pipe_2", "mine", "pipe_2_2 "):
            with self.assertRaisesRegex(DeviceError, f"--devices {name}: no such list; device_list.py defines my_device, "):
                choose(name, LISTS, [("localhost", 4)])

    def test_without_a_choice_my_device_stands_where_its_hosts_do(self):
        layout = choose("", LISTS, hosts(2))
        self.assertEqual((layout.name, layout.pipelines, layout.stages, layout.note), ("my_device", 4, 4, ""))
        self.assertEqual(choose("", {"my_device": [[gpu(0), gpu(1)]]}, [("box", 2)]).pipelines, 2)
        with self.assertRaisesRegex(DeviceError, "my_device, row 0, entry 1: w0:gpu:4: host w0 has 4 workers"):
            choose("", LISTS, hosts(2, 4))

    def test_without_a_choice_elsewhere_up_to_4_stages_are_laid_out_and_said(self):
        for total, shape in ((1, (1, 1)), (2, (1, 2)), (3, (1, 3)), (4, (1, 4)), (5, (5, 1)), (6, (2, 3)), (7, (7, 1)),
                             (8, (2, 4)), (9, (3, 3)), (12, (3, 4)), (14, (7, 2))):
            for lists in ({}, LISTS):
                layout = choose("", lists, [("localhost", total)])
                self.assertEqual((layout.pipelines, layout.stages), shape)
                self.assertEqual(bool(layout.note), total > 1)
        for total, grid, other in ((4, "1 pipeline x 4 stages", "pipe_4_1"), (5, "5 pipelines x 1 stage", "pipe_1_5")):
            right = (f'for another layout: hetu.Executor(devices="{other}"), or --devices {other} of Hetu\'s scripts)')
            self.assertEqual(choose("", LISTS, [("localhost", total)]).note, f"{total} workers: {grid} ({right}")
        self.assertIn(" on box with 2 workers, because the list my_device of device_list.py names w0, w1 (",
                      choose("", LISTS, [("box", 2)]).note)

    def test_a_device_is_no_list(self):
        for name, meant in (("cuda", "cuda"), ("gpu", "cuda"), ("cpu", "cpu")):
            with self.assertRaisesRegex(DeviceError, f"^--devices {name}: .*; did you mean --device={meant}\\?$"):
                choose(name, LISTS, [("localhost", 2)])

    def test_place_of_a_worker_that_is_not_there(self):
        with self.assertRaisesRegex(DeviceError, "worker 4 is not in the layout pipe_2_2 of 4 workers"):
            choose("pipe_2_2", {}, [("localhost", 4)]).place_of(4)


class Compute(unittest.TestCase):
    def setUp(self):
        devices._said.clear()

    def test_resolution(self):
        table = {("auto", ""): "cuda", ("auto", "no driver"): "cpu", ("cpu", ""): "cpu", ("cpu", "no driver"): "cpu",
                 ("cuda", ""): "cuda"}
        for (name, problem), want in table.items():
            self.assertEqual(devices.resolve_device(name, lambda p=problem: p, 0, lambda _: None, "auto"), want)
        with self.assertRaisesRegex(NotImplementedError, "--device cuda: no driver .docs/gpu.md.; use --device cpu or auto"):
            devices.resolve_device("cuda", lambda: "no driver", 0)
        with self.assertRaisesRegex(DeviceError, "--device tpu: it must be one of auto, cuda, cpu, far"):
            devices.resolve_device("tpu", lambda: "", 0)

    def test_the_variable_is_told_where_it_is_what_was_asked(self):
        self.assertEqual(devices.resolve_device("auto", lambda: "no driver", 0, lambda _: None, "cpu"), "cpu")
        self.assertEqual(devices.resolve_device("cpu", lambda: "", 0, lambda _: None, "cuda"), "cpu")
        says = "variable HETU_DEVICE: cuda: no driver .docs/gpu.md.; use cpu or auto there, or "
        with self.assertRaisesRegex(NotImplementedError, says):
            devices.resolve_device("auto", lambda: "no driver", 0, variable="cuda")
        says = "^environment variable HETU_DEVICE: gpu: it must be one of auto, cuda, cpu, far"
        with self.assertRaisesRegex(DeviceError, says):
            devices.resolve_device("auto", lambda: "", 0, variable="gpu")

    def test_worker_0_says_it_once(self):
        said = []
        for worker in (0, 1, 0):
            devices.resolve_device("auto", lambda: "no driver", worker, said.append, "auto")
        self.assertEqual(said, ["computing on cpu (no driver)"])

    def test_the_module_answers(self):
        self.assertEqual(devices.resolve_device("cpu"), "cpu")
        environment = {name: value for name, value in os.environ.items() if name != "HETU_DEVICE"}
        asks = "from hetu import _hetu, devices; print(devices.resolve_device(), _hetu.cuda_problem())"
        done = subprocess.run([sys.executable, "-c", asks], env=environment, capture_output=True, text=True, check=True)
        found, _, problem = done.stdout.strip().partition(" ")
        self.assertEqual(found, "cpu" if problem else "cuda")
        self.assertEqual(done.stderr, f"hetu: computing on {found}" + (f" ({problem})" if problem else "") + "\n")
        self.assertEqual(devices.layout("pipe_1_1", {}).worker_of, ((0,),))
        self.assertEqual(devices.layout().stages, 1)  # the list that Hetu ships; one process


class EnvironmentNames(unittest.TestCase):
    def test_every_variable_in_the_python_sources_stands_in_the_table(self):
        from hetu import _hetu
        known = {row[0] for row in _hetu.env_table()}
        root = pathlib.Path(__file__).resolve().parents[3] / "python"
        for path in [*root.rglob("*.py"), root / "heturun"]:
            for name in re.findall(r"[\"']((?:HETU|OMPI_COMM)_[A-Z_]+)[\"']", path.read_text()):
                self.assertIn(name, known, path)


if __name__ == "__main__":
    unittest.main()
