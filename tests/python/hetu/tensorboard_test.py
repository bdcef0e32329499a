"""Event files: lengths, checksums and scalars of all records are right. The test reads them by the formats of TFRecord and
protocol buffers, and by TensorBoard itself where it is installed. A full disk is reported by name."""

import importlib.util
import pathlib
import resource
import struct
import tempfile
import types
import unittest

from event_files import fields, records, scalars_of
from hetu.tensorboard import Course, Events, take_back

SCALARS = [(0, {"Train/loss": 6.91, "Train/acc": 0.0}), (1, {"Train/loss": -1e-30}), (300, {"a" * 300: 3.0e38})]


def step_of(index: int) -> types.SimpleNamespace:
    return types.SimpleNamespace(index=index, loss=index / 8, learning_rate=index / 4, gradient_norm=index / 2, samples=3,
                                 seconds=0.5, loss_scale=2.0**index if index % 2 else None)


class EventFiles(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name) / "runs" / "one"

    def write(self) -> pathlib.Path:
        events = Events(self.folder)
        for step, scalars in SCALARS:
            events.add(step, scalars)
        events.close()
        return events.path

    def test_records_hold_what_was_added(self) -> None:
        first, *rest = records(self.write().read_bytes())
        self.assertEqual(dict(fields(first))[3], b"brain.Event:2")
        for body, (step, scalars) in zip(rest, SCALARS, strict=True):
            event = dict(fields(body))
            self.assertEqual(event[2], step)
            got = {}
            for number, value in fields(event[5]):  # type: ignore[arg-type]
                self.assertEqual(number, 1)
                one = dict(fields(value))  # type: ignore[arg-type]
                got[one[1].decode()] = one[2]  # type: ignore[attr-defined]
            self.assertEqual(got, {k: struct.unpack("<f", struct.pack("<f", v))[0] for k, v in scalars.items()})

    def test_points_of_the_course(self) -> None:
        """Scalars are written at every N-th step and after the last, with that step's values. Steps that other pipelines
        count twice are written once."""
        for every in (0, 1, 3, 10):
            for total in (1, 7, 30):
                with self.subTest(every=every, total=total):
                    folder = self.folder / f"{every}-{total}"
                    events = Events(folder)
                    course = Course(events, every, total)
                    for index in [*range(total), *range(max(0, total - 3), total)]:
                        course.add(step_of(index))
                    events.close()
                    got = scalars_of(events.path)
                    wanted = [n for n in range(1, total + 1) if every and (n % every == 0 or n == total)]
                    for tag, factor in (("loss", 8), ("learning_rate", 4), ("gradient_norm", 2)):
                        self.assertEqual([(n, v) for n, t, v in got if t == f"Step/{tag}"],
                                         [(n, (n - 1) / factor) for n in wanted])
                    self.assertEqual([(n, v) for n, t, v in got if t == "Step/samples_per_s"], [(n, 6.0) for n in wanted])
                    self.assertEqual([(n, v) for n, t, v in got if t == "Step/loss_scale"],  # of float16 only
                                     [(n, 2.0 ** (n - 1)) for n in wanted if n % 2 == 0])

    def test_a_run_that_goes_on_takes_back_what_it_writes_again(self) -> None:
        """A run is killed after any step or in the middle of a record, and resumed at any saved step. Together the files
        have the points of one run."""
        def write(name: str, first: int, end: int) -> pathlib.Path:
            events = Events(self.folder / name)
            course = Course(events, 2, 12)
            for index in range(first, end):
                course.add(step_of(index))
                if (index + 1) % 4 == 0:
                    events.add(index // 4, {"Train/loss": float(index), "Train/acc": 0.5})
            events.close()
            return pathlib.Path(str(events.path))

        def points(name: str) -> list[tuple[int, str, float]]:
            found = [p for path in sorted((self.folder / name).iterdir()) for p in scalars_of(path)]
            return sorted(found)

        write("whole", 0, 12)
        for end in range(1, 12):
            for first in range(end + 1):
                for torn in (0, 1, 30):
                    name = f"{end}-{first}-{torn}"
                    path = write(name, 0, end)
                    if torn and path.stat().st_size > 40 + torn:
                        with path.open("ab") as file:
                            file.write(path.read_bytes()[40:40 + torn])
                    path.rename(path.with_name("events.out.tfevents.1"))
                    take_back(self.folder / name, lambda step, tag, done=first: done < (
                        step if tag.startswith("Step/") else 4 * (step + 1)))
                    write(name, first, 12)
                    self.assertEqual([p for p in points(name) if "samples" not in p[1]],
                                     [p for p in points("whole") if "samples" not in p[1]], name)
                    for path in (self.folder / name).iterdir():
                        records(path.read_bytes())  # complete records only

    @unittest.skipUnless(importlib.util.find_spec("tensorboard"), "TensorBoard is not installed")
    def test_tensorboard_reads_them(self) -> None:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        self.write()
        read = EventAccumulator(str(self.folder)).Reload()
        self.assertEqual([(e.step, round(e.value, 5)) for e in read.Scalars("Train/loss")], [(0, 6.91), (1, 0.0)])

    def test_a_full_disk_is_named(self) -> None:
        events = Events(self.folder)
        self.addCleanup(events.close)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_FSIZE, before)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, before[1]))
        with self.assertRaisesRegex(OSError, f"^{events.path}: File too large"):
            for step in range(20):
                events.add(step, {"Train/loss": 1.0})


if __name__ == "__main__":
    unittest.main(verbosity=2)
