"""Checks of rows of SD-PIPE in docs/coming-from.md, as functions of a test case. coming_from_test.py calls them."""
import re
import shlex
import signal
import subprocess
import sys

from coming_from_rows import CHECKS, rows
from processes import wait_until
from train_cases import MANY_S


def older_launcher(case):
    (case.folder / "local.yml").write_text("shared:\n  PS_VERBOSE: 1\nlaunch:\n  worker: 2\n  server: 0\n")
    (case.folder / "train.py").write_text(
        "import argparse, os\nfrom hetu.launcher import launch\n"
        "launch(lambda args: print('worker of', args.num_local_worker, os.environ['PS_VERBOSE']),\n"
        "       argparse.Namespace(config='local.yml'))\nprint('ended')\n")
    done = case.run_words(sys.executable, "train.py", cwd=case.folder)
    case.assertEqual(sorted(done.stdout.splitlines()), ["[0] worker of 2 1", "[1] worker of 2 1", "ended"])
    case.assertIn("not used: PS_VERBOSE\n", done.stderr)


def older_servers(case):
    (case.folder / "local.yml").write_text("shared: {}\nlaunch:\n  server: 1\n")
    servers = subprocess.Popen([sys.executable, "-m", "hetu.launcher", "local.yml", "-n", "2", "--sched"],
                               cwd=case.folder, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    case.addCleanup(servers.stderr.close)
    keys = case.folder / "local.yml.keys"
    wait_until(lambda: keys.is_file() and keys.read_text().count("tcp://") == 2, MANY_S)
    servers.send_signal(signal.SIGINT)
    case.assertEqual(servers.wait(MANY_S), 0)
    case.assertIn("--sched: no scheduler is started", servers.stderr.read())


def bert_prep(case):
    """The page's command runs unchanged: 5200 documents are enough for 256 + 256 shards of at least two."""
    text = "\n\n".join("Houses are white .\nDoors are red .\nThey open ." for _ in range(5200))
    (case.folder / "TEXT").write_text(text)
    (case.folder / "FILE").write_text("\n".join("[PAD] [UNK] [CLS] [SEP] [MASK] houses doors are white red they open ."
                                                .split()))
    cell = rows()["SD-PIPE", CHECKS["bert_prep"][0]][0]
    case.run_words(*shlex.split(re.search(r"`(python3 [^`]+)`", cell)[1]), cwd=case.folder)
    for kind in ("training", "test"):
        case.assertEqual(len(list((case.folder / "DIR").glob(f"wikicorpus_en_{kind}_*.hdf5"))), 256)
    case.run_words("hetu", "data", "check", case.folder / "DIR")
