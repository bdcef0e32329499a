"""The flags of PipeFisher's main_bert_simple.py in train_bert.py: each sets an option of Hetu, or is refused in one line."""
import re
import unittest

import train_bert
from hetu import training
from hetu.compat import pipefisher_flags

# Arguments of the script, and the options that they set.
SAME = [
    (["--adam"], {"optimizer": "adam"}), (["--sgd"], {"optimizer": "momentum"}),
    (["--sgd", "--momentum", "0.8"], {"optimizer": "momentum", "momentum": 0.8}),
    (["--learning_rate", "6e-3"], {"learning_rate": 6e-3}), (["--max_grad_norm", "2"], {"clip_norm": 2.0}),
    (["--subset_size", "100"], {"max_rows": 100}), (["--beta1", "0.8", "--beta2", "0.9"], {"beta1": 0.8, "beta2": 0.9}),
    (["--ngd_training"], {"optimizer": "kfac", "inner": "momentum"}),
    (["--ngd_training", "--ngd_with_lamb", "--damping", "1e-3", "--inv_interval", "10"],
     {"optimizer": "kfac", "inner": "lamb", "damping": 1e-3, "curvature_every": 10}),
    (["--ngd_training", "--ngd_with_adam"], {"optimizer": "kfac", "inner": "adam"}),
    (["--optimizer", "kfac", "--inner", "lamb", "--ngd_with_lamb"], {"optimizer": "kfac", "inner": "lamb"}),
    (["--ngd_training", "--ngd_learning_rate", "3e-5", "--ngd_max_grad_norm", "100", "--ngd_momentum", "0.7"],
     {"learning_rate": 3e-5, "clip_norm": 100.0, "momentum": 0.7}),
]
WRONG = [
    *(([f"--{name}", *(["x.pickle"] if name.endswith("_path") else [])], f"--{name} is not offered: ")
      for name in pipefisher_flags.NOT_OFFERED),
    (["--ngd_with_lamb"], "--ngd_with_lamb belongs to --ngd_training, and the optimizer is adamw"),
    (["--ngd_learning_rate", "1"], "--ngd_learning_rate belongs to --ngd_training"),
    (["--ngd_training", "--ngd_with_lamb", "--ngd_with_adam"], "--ngd_with_lamb and --ngd_with_adam contradict each other"),
    (["--ngd_training", "--ngd_with_lamb", "--inner", "sgd"], "--ngd_with_lamb and --inner sgd contradict each other"),
    (["--ngd_training", "--adam"], "--adam and --optimizer kfac contradict each other"),
    (["--ngd_training", "--ngd_learning_rate", "1", "--learning_rate", "2"],
     "--ngd_learning_rate 1 and --learning-rate 2.0 contradict each other"),
    (["--momentum", "0.5"], "--momentum belongs to momentum and nesterov, and the optimizer is adamw"),
    (["--ngd_training", "--ngd_with_lamb", "--ngd_momentum", "0.5"], "--momentum belongs to momentum and nesterov"),
    (["--sgd", "--momentum", "1"], "--momentum must be in [0, 1), got 1"),
]


class Flags(unittest.TestCase):
    def test_each_comes_to_ours(self):
        for words, wanted in SAME:
            args = train_bert.parse(words)
            for name, value in wanted.items():
                self.assertEqual(getattr(args, name), value, f"{words}: {name}")

    def test_what_is_wrong_is_said(self):
        for words, message in WRONG:
            with self.assertRaisesRegex(ValueError, re.escape(message)):
                training.optimizer_of(train_bert.parse(words), 0.1)

    def test_the_optimizer_is_told(self):
        args = train_bert.parse(["--ngd_training", "--ngd_momentum", "0.7", "--ngd_max_grad_norm", "100",
                                 "--inv_interval", "3"])
        settings = training.optimizer_of(args, 0.1).settings()
        self.assertEqual((settings["kind"], settings["momentum"], settings["clip_norm"], settings["curvature_every"]),
                         ("momentum", 0.7, 100.0, 3))


if __name__ == "__main__":
    unittest.main()
