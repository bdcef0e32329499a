"""Chimera's and PipeFisher's scripts without a training: what they refuse in one line, and the commands that they start.

tests/python/pages/script_checks.py runs them whole."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[3] / "python" / "scripts"
# Stands in for heturun and hetu, and prints its arguments.
ECHO = '#!/bin/sh\nprintf "%s|" "$(basename "$0")" "$@"\necho\n'


class Scripts(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name in ("heturun", "hetu"):
            (self.folder / name).write_text(ECHO)
            (self.folder / name).chmod(0o755)
        (self.folder / "scripts").symlink_to(SCRIPTS)
        (self.folder / "bert_data").mkdir()
        for name in ("wikipedia.segmented.nltk.txt", "vocab.txt"):
            (self.folder / "bert_data" / name).write_text("")

    def run_script(self, *words, **settings):
        return subprocess.run(["sh", *words], cwd=self.folder, capture_output=True, text=True,
                              env={"PATH": f"{self.folder}:/usr/bin:/bin", **settings})

    def refused(self, message, *words, **settings):
        done = self.run_script(*words, **settings)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)
        self.assertIn(message, done.stderr)

    def test_the_published_settings(self):
        said = self.run_script("scripts/prof_steps.sh").stdout
        for words in ("heturun|-w|8|python3|", "|--pipeline_method|chimera|--num_stages|8|--micro_batch_size|32|",
                      "|--corpus_path|bert_data/wikipedia.segmented.nltk.txt|", "bert_config_bert-large-uncased.json|",
                      "|--max_seq_length|128|", "|--gradient_accumulation_steps|1|--profile|"):
            self.assertIn(words, said)
        said = self.run_script("scripts/train_kfac.sh", "--checkpoint_dir", "a b").stdout
        for words in ("heturun|-w|32|", "bert_config_bert-base-uncased.json|", "|--batch_size|8192|",
                      "|--learning_rate|6e-3|", "|--gradient_accumulation_steps|64|", "|--num_optimization_steps|7038|",
                      "|--warmup_proportion|0.08525|",
                      "|--ngd_training|--ngd_with_lamb|--damping|1e-3|--inv_interval|10|", "|--checkpoint_dir|a b|"):
            self.assertIn(words, said)
        said = self.run_script("scripts/train.sh").stdout
        for words in ("|--gradient_accumulation_steps|8|", "|--warmup_proportion|0.2843|"):
            self.assertIn(words, said)
        self.assertNotIn("ngd", said)

    def test_where_the_workers_start(self):
        self.assertIn("heturun|-c|w.yml|--pre-command|make data|python3|",
                      self.run_script("scripts/prof_steps.sh", cluster="w.yml", pre_cmd="make data").stdout)
        slurm = {"SLURM_JOB_NODELIST": "n[0-7]", "SLURM_NTASKS": "8"}
        self.assertIn("heturun|python3|", self.run_script("scripts/prof_steps.sh", **slurm).stdout)
        self.refused("ngpus is 4, but the Slurm allocation has 8 tasks", "scripts/prof_steps.sh", ngpus="4", **slurm)

    def test_slurms_copy_of_a_script(self):
        spool = self.folder / "spool"
        spool.mkdir()
        shutil.copy(SCRIPTS / "prof_kfac_steps.sh", spool / "slurm_script")
        self.assertIn("|scripts/../main_bert.py|", self.run_script("spool/slurm_script").stdout)

    def test_files_of_a_step_before(self):
        self.refused("bert_prof/bert-large_chimera_8stages_8gpus_microbs32_acc1.json: no such file; run "
                     "scripts/prof_steps.sh with the same settings first", "scripts/plot_cuda_timeline.sh")
        self.refused("_acc1_kfac_node0_timeline.pickle: no such file; run scripts/prof_kfac_steps.sh",
                     "scripts/auto_schedule.sh")
        (self.folder / "bert_prof").mkdir()
        name = "mine_gpipe_2stages_2gpus_microbs1_acc3_kfac"
        for node in (0, 1):
            (self.folder / "bert_prof" / f"{name}_node{node}_timeline.pickle").write_text("")
        said = self.run_script("scripts/auto_schedule.sh", model="x/bert_config_mine-uncased.json", pipeline="gpipe",
                               stages="2", ngpus="2", microbs="1", acc="3").stdout
        self.assertEqual(said, f"hetu|fill|bert_prof/{name}_node0_timeline.pickle|bert_prof/{name}_node1_timeline.pickle|"
                               f"--save_path|bert_prof/{name}_schedule.pickle|\nbert_prof/{name}_schedule.pickle\n")

    def test_a_corpus_or_a_vocabulary_that_is_missing(self):
        self.refused("c.txt: no such file; put the corpus there, or give corpus=FILE", "scripts/train.sh", corpus="c.txt")
        self.refused("v.txt: no such file; put the vocabulary there", "scripts/train.sh", vocab="v.txt")

    def test_started_by_hand(self):
        self.refused("type 'sh scripts/manual.sh 0' in one shell and", "scripts/manual.sh")
        self.refused("the same with 1 on the other host", "scripts/manual4.sh", "2")
        self.refused("MASTER_ADDR is not set; give the first host", "scripts/manual4.sh", "1")

    def test_hetu_is_not_in_the_path(self):
        (self.folder / "heturun").unlink()
        self.refused("heturun is not in PATH; type 'source hetu.exp'", "scripts/train.sh")

    def test_rays_scripts_name_the_line_to_type(self):
        for name, line in (("prof_steps_ray.py", "sh scripts/prof_steps.sh"),
                           ("prof_steps_ray_mutlinode.py", "cluster=config/w0_w1.yml ngpus=16 sh scripts/prof_steps.sh")):
            done = subprocess.run([sys.executable, SCRIPTS / name], capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (1, f"{name}: Hetu starts workers without Ray; type: {line}\n"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
