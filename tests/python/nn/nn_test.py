"""Modules of hetu.nn: names, tied weights and several graphs. Common mistakes give one line that names the place in the
script."""

import copy
import pathlib
import re
import shutil
import unittest

import numpy as np

import hetu as ht
from hetu import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()  # PyTorch's modules need this call; here it does nothing
        self.fc = nn.Linear(width, width)
        self.scale = nn.Parameter([width], ht.init.ones())

    def forward(self, x):
        return ht.ops.relu(self.fc(x)) * self.scale


class Net(nn.Module):
    def __init__(self):
        self.wte = nn.Embedding(7, 4)
        self.blocks = nn.ModuleList([Block(4), Block(4)])
        self.head = nn.ModuleDict({"norm": nn.LayerNorm(4), "out": nn.Linear(4, 7, bias=False)})
        self.head.out.weight = self.wte.weight
        self.drop = nn.Dropout(0.5)

    def forward(self, ids):
        x = self.wte(ids)
        for block in self.blocks:
            ht.cut()
            x = self.drop(block(x))
        ht.cut()
        return self.head["out"](self.head.norm(x))


NAMES = ["wte.weight", "blocks.0.scale", "blocks.0.fc.weight", "blocks.0.fc.bias", "blocks.1.scale", "blocks.1.fc.weight",
         "blocks.1.fc.bias", "head.norm.weight", "head.norm.bias"]


def finished(value):
    """Returns the graph of the value's sum."""
    graph = ht.graph.current()
    graph.fetch("total", value.sum())
    return graph.builder.finish()


class Names(unittest.TestCase):
    def setUp(self):
        ht.new_graph()
        self.ids = ht.placeholder("ids", "int32", [ht.BATCH, 3])

    def test_they_are_ways_and_a_tied_weight_has_one(self):
        net = Net()
        self.assertEqual([name for name, _ in net.named_parameters()], NAMES)
        graph = finished(net(self.ids))
        self.assertEqual(sorted(name for name, _ in graph.parameters), sorted(NAMES))
        # ordered by first use
        self.assertEqual([name for name, _ in graph.parameters][:2], ["wte.weight", "blocks.0.fc.weight"])
        self.assertEqual(graph.blocks, 4)
        for node in ("blocks.1.fc/linear", "blocks.1/relu", "drop/dropout_1", "head.out/linear"):
            self.assertIn(f'"{node}"', str(graph))

    def test_a_tied_weight_may_be_given_the_other_way(self):
        net = Net()
        net.head.out.weight = nn.Parameter([7, 4], ht.init.zeros())
        net.wte.weight = net.head.out.weight
        self.assertEqual([name for name, _ in net.named_parameters()][0], "wte.weight")

    def test_a_part_is_called_by_its_whole_way(self):
        net = Net()
        names = [name for name, _ in finished(net.blocks[1](net.wte(self.ids))).parameters]
        self.assertEqual(names, ["wte.weight", "blocks.1.fc.weight", "blocks.1.fc.bias", "blocks.1.scale"])

    def test_outermost_modules_may_have_names(self):
        x = ht.placeholder("x", "float32", [ht.BATCH, 3])
        y = nn.Linear(3, 2).named("left")(x) + nn.Linear(3, 2).named("right")(x)
        self.assertEqual([name for name, _ in finished(y).parameters],
                         ["left.weight", "left.bias", "right.weight", "right.bias"])

    def test_a_scope_stands_before_them(self):
        x = ht.placeholder("x", "float32", [ht.BATCH, 3])
        with ht.scope("a"):
            y = nn.Linear(3, 2)(x)
        with ht.scope("b"):
            y = y + nn.Linear(3, 2)(x)
        self.assertEqual([name for name, _ in finished(y).parameters], ["a/weight", "a/bias", "b/weight", "b/bias"])

    def test_a_model_called_twice_is_one(self):
        net = Net()
        y = net(self.ids) + net(self.ids)
        self.assertEqual(len(finished(y).parameters), len(NAMES))

    def test_a_second_graph_has_its_own(self):
        net = Net()
        first = str(finished(net(self.ids)))
        for _ in range(2):
            ht.new_graph()
            self.assertEqual(str(finished(net(ht.placeholder("ids", "int32", [ht.BATCH, 3])))), first)

    def test_a_copy_has_weights_of_its_own(self):
        net = nn.Sequential(nn.Linear(3, 3), copy.deepcopy(nn.Linear(3, 3)))
        net[0](ht.placeholder("x", "float32", [ht.BATCH, 3]))
        twin = copy.deepcopy(net)
        self.assertIsNot(twin[0].weight, net[0].weight)
        stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 2, cuts=True)
        y = stack(ht.placeholder("y", "float32", [ht.BATCH, 5, 4]))
        graph = finished(y)
        self.assertEqual(graph.blocks, 2)
        self.assertEqual(len(graph.parameters), 24)
        self.assertIn("layers.1.self_attn.in_proj_weight", dict(graph.parameters))

    def test_a_stack_of_a_part_is_no_copy_of_the_whole(self):
        class Model(nn.Module):
            def __init__(self):
                self.layer = nn.TransformerEncoderLayer(4, 2, 8)
                self.stack = nn.TransformerEncoder(self.layer, 2)

            def forward(self, x):
                return self.stack(x)

        model, y = Model(), ht.placeholder("y", "float32", [ht.BATCH, 5, 4])
        model.stack.layers[1](y)  # a part first
        names = [name for name, _ in finished(model(y)).parameters]
        self.assertEqual(len(names), 24)
        self.assertTrue(all(name.startswith("stack.layers.") for name in names), names)

    def test_what_a_forward_leaves_out_is_not_in_the_graph(self):
        net = Net()
        graph = finished(net.wte(self.ids))
        self.assertEqual([name for name, _ in graph.parameters], ["wte.weight"])

    def test_decay(self):
        net = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 3))
        net[2].bias.decay = True
        text = str(finished(net(ht.placeholder("x", "float32", [ht.BATCH, 3]))))
        decays = {name: text.split(f'parameter "{name}"() {{')[1].split("decay=")[1][0]
                  for name, _ in net.named_parameters()}
        self.assertEqual(decays, {"0.weight": "1", "0.bias": "0", "1.weight": "0", "1.bias": "0", "2.weight": "1",
                                  "2.bias": "1"})

    def test_a_parameter_may_start_from_an_array(self):
        layer = nn.Linear(2, 2, bias=False)
        layer.weight = nn.Parameter(np.array([[1.5, 2], [3, 4]]))
        data = ht.data.Batches([{"x": np.ones((1, 2), np.float32)}], 1)
        loss = layer(data.x).sum()
        job = ht.Executor({"train": [loss, ht.optim.SGD(0.0).minimize(loss)]})
        (step,) = job.run("train", steps=1)
        self.assertEqual(step.loss, 10.5)

    def test_a_dict_of_modules_is_like_one(self):
        heads = nn.ModuleDict({"a": nn.Linear(3, 2)})
        heads["b"] = nn.Identity()
        self.assertEqual((len(heads), list(heads), "a" in heads, "c" in heads), (2, ["a", "b"], True, False))
        self.assertEqual(heads.items(), list(zip(heads.keys(), heads.values(), strict=True)))
        self.assertEqual([name for name, _ in heads.named_parameters()], ["a.weight", "a.bias"])
        with self.assertRaisesRegex(KeyError, r"^\"nn_test\.py:\d+: ModuleDict has no 'c'; there are: a, b\"$"):
            heads["c"]

    def test_numbers_may_be_numpys(self):
        """NumPy numbers work as sizes, for example nn.Linear(width, y.max() + 1)."""
        ht.new_graph()
        two, three = np.int64(2), np.int32(3)
        images = nn.Conv2d(two, three, (three, two), stride=(two, two), padding=np.int64(1))(
            ht.placeholder("x", "float32", [ht.BATCH, 2, 6, 6]))
        rows = nn.Linear(three, two).named("head")(nn.AdaptiveAvgPool2d(1)(images).reshape(ht.BATCH, three))
        self.assertEqual((images.shape, rows[:, np.int64(1)].shape, rows.sum(np.int64(1)).shape),
                         ([-1, 3, 3, 4], [-1], [-1]))
        self.assertEqual([p.shape for p in nn.Embedding(two, three).parameters()], [[2, 3]])

    def test_they_print_as_in_pytorch(self):
        self.assertEqual(str(nn.Linear(3, 2).weight), "Parameter(unnamed, float32[2, 3])")
        self.assertEqual(repr(nn.Sequential(nn.Linear(3, 2), nn.ModuleList([nn.Dropout(0.1)]))),
                         "Sequential(\n  (0): Linear(3, 2, bias=True)\n  (1): ModuleList(\n    (0): Dropout(p=0.1)\n  )\n)")


class Traps(unittest.TestCase):
    def refused(self, says, make):
        ht.new_graph()
        x = ht.placeholder("x", "float32", [ht.BATCH, 5, 4])
        with self.subTest(says), self.assertRaises(ValueError) as caught:
            make(x)
        text = str(caught.exception)
        self.assertRegex(text, r"^nn_test\.py:\d+: ")
        self.assertIn(says, text)
        self.assertNotIn("\n", text)

    def test_errors_of_modules_name_the_line(self):
        def two(x):
            return nn.Linear(4, 4)(nn.Linear(4, 4)(x))

        class Bare(nn.Module):
            pass

        class Listed(nn.Module):
            def __init__(self):
                self.blocks = [nn.Linear(4, 4)]

        class Named(nn.Module):
            def __init__(self):
                self.heads = {"a": nn.Linear(4, 4)}

        for says, make in (
            ("'weight' is already in this graph: give each outermost module a name of its own", two),
            ("Listed.blocks: modules in a list have no names; use nn.ModuleList", lambda _: Listed()),
            ("Bare has no method forward, which computes the result of a call", lambda x: Bare()(x)),
            ("Parameter(unnamed, float32[3]) has no name yet", lambda _: nn.Parameter([3], ht.init.zeros()) + 1),
            ("parameter: the shape must be a list of integers, such as [2, 3], got 3",
             lambda _: nn.Parameter(3, ht.init.zeros())),
            ("Parameter: expected a shape and an initializer of hetu.init, or an array; got only [3]",
             lambda _: nn.Parameter([3])),
            ("ModuleList: expected modules, got the function relu", lambda _: nn.ModuleList([ht.ops.relu])),
            ("Sequential: expected modules, got the class ReLU; make one: ReLU(…)", lambda _: nn.Sequential(nn.ReLU)),
            ("Sequential: expected modules, got a list; give them one by one: *list",
             lambda _: nn.Sequential([nn.ReLU(), nn.ReLU()])),
            ("Sequential: 'a' must be a module, got the function relu", lambda _: nn.Sequential({"a": ht.ops.relu})),
            ("ModuleDict: a module can't be named 'items'", lambda _: nn.ModuleDict({"items": nn.ReLU()})),
            ("ModuleDict: 'a' must be a module, got 3", lambda _: nn.ModuleDict({"a": 3})),
            ("Named.heads: modules in a dict are not found; use nn.ModuleDict", lambda _: Named()),
            ("Linear.named: expected a string, got 3", lambda _: nn.Linear(4, 3).named(3)),
        ):
            self.refused(says, make)

    def test_errors_of_layers_name_the_line(self):
        for says, make in (
            ("nn.Linear: the last axis of x must be in_features = 3, got Value(float32[B, 5, 4])",
             lambda x: nn.Linear(3, 4)(x)),
            ("nn.Linear: out_features must be a whole number >= 1, got 0", lambda _: nn.Linear(3, 0)),
            ("nn.Linear: in_features must be a whole number >= 1, got 2.5", lambda _: nn.Linear(2.5, 3)),
            ("linear: input 0 must be a Value, got an array (numpy.ndarray)", lambda _: nn.Linear(4, 3)(np.ones((2, 4)))),
            ("nn.Conv2d: x must be [B, in_channels = 3, H, W], got Value(float32[B, 5, 4])",
             lambda x: nn.Conv2d(3, 4, 3)(x)),
            ('nn.Conv2d: padding must be whole numbers, "valid", or "same" with stride 1 and an odd kernel, got',
             lambda _: nn.Conv2d(3, 4, 4, padding="same")),
            ("nn.Conv2d: padding must be >= 0, got (1, -1)", lambda _: nn.Conv2d(3, 4, 3, padding=(1, -1))),
            ("nn.Conv2d: stride must be the same for height and width, got (2, 1)",
             lambda _: nn.Conv2d(3, 4, 3, stride=(2, 1))),
            ("nn.Conv2d: kernel_size must be a whole number, or two (height, width), got 3.0",
             lambda _: nn.Conv2d(3, 4, 3.0)),
            ("nn.MaxPool2d: kernel_size must be the same for height and width, got (2, 1)",
             lambda _: nn.MaxPool2d((2, 1))),
            ("nn.Conv1d: x must be [B, in_channels = 3, L], got Value(float32[B, 5, 4])", lambda x: nn.Conv1d(3, 4, 3)(x)),
            ("nn.BatchNorm1d: x must be [B, num_features = 4] or [B, 4, L], got Value(float32[B, 5, 4])",
             lambda x: nn.BatchNorm1d(4)(x)),
            ("nn.Conv2d: groups 2 must divide both 3 and 4 channels", lambda _: nn.Conv2d(3, 4, 3, groups=2)),
            ("nn.RMSNorm: normalized_shape must be one number, the length of the last axis; got [5, 4]",
             lambda _: nn.RMSNorm([5, 4])),
            ("nn.LayerNorm: the last axes of x must be normalized_shape = [4, 5], got Value(float32[B, 5, 4])",
             lambda x: nn.LayerNorm([4, 5])(x)),
            ("nn.LayerNorm: normalized_shape must be a whole number >= 1, got 'a'", lambda _: nn.LayerNorm("a")),
            ("nn.Dropout: p must be in [0, 1), got 1", lambda _: nn.Dropout(1)),
            ("nn.Dropout: p must be in [0, 1), got '0.5'", lambda _: nn.Dropout("0.5")),
            ("nn.GELU: approximate 'new' is not known; known: none, tanh", lambda _: nn.GELU("new")),
            ("nn.Softmax: Value(float32[B, 5, 4]) has 3 axes, there is no axis 3", lambda x: nn.Softmax(3)(x)),
            ("nn.Softmax: dim must be the number of an axis, got None", lambda _: nn.Softmax(None)),
            ("nn.AdaptiveAvgPool2d: output_size must be 1", lambda _: nn.AdaptiveAvgPool2d(7)),
        ):
            self.refused(says, make)

    def test_errors_of_attention_and_recurrence_name_the_line(self):
        hidden = np.triu(np.ones((5, 5), bool))
        for says, make in (
            ("nn.MultiheadAttention: embed_dim 4 is not divisible by num_heads 3", lambda _: nn.MultiheadAttention(4, 3)),
            ("nn.MultiheadAttention: the batch is always the first axis",
             lambda _: nn.MultiheadAttention(4, 2, batch_first=False)),
            ("nn.MultiheadAttention: attn_mask must be a bool value, true where a key is masked, or a float32 one that "
             "is added to the scores; got an array (numpy.ndarray), which hetu.constant converts to a Value",
             lambda x: nn.MultiheadAttention(4, 2)(x, x, x, attn_mask=np.zeros((5, 5)))),
            ("nn.MultiheadAttention: key_padding_mask must be a bool value, true where a key is masked; got "
             "Value(float32", lambda x: nn.MultiheadAttention(4, 2)(x, x, x, x[:, :, 0])),
            ("nn.MultiheadAttention: key_padding_mask must be [B, S] to fit key Value(float32[B, 5, 4])",
             lambda x: nn.MultiheadAttention(4, 2)(x, x, x, ht.constant(hidden))),
            ("nn.TransformerEncoderLayer: activation 'swish' is not known; known: relu, gelu, silu, tanh",
             lambda _: nn.TransformerEncoderLayer(4, 2, activation="swish")),
            ("nn.LSTM: the batch is always the first axis", lambda _: nn.LSTM(4, 3, batch_first=False)),
            ("nn.GRU: num_layers must be a whole number >= 1, got 0", lambda _: nn.GRU(4, 3, 0)),
            ("nn.GRU: dropout applies between layers, but there is only one; got dropout=0.5",
             lambda _: nn.GRU(4, 3, dropout=0.5)),
            ("nn.LSTM: the last axis of x must be input_size = 3, got Value(float32[B, 5, 4])", lambda x: nn.LSTM(3, 2)(x)),
            ("nn.LSTM: x must be [batch, steps, input_size], got Value(float32[B, 5])",
             lambda x: nn.LSTM(5, 2)(x[:, :, 0])),
            ("nn.LSTM: hx must be (h, c), each [-1, 2, 3] for x Value(float32[B, 5, 4])",
             lambda x: nn.LSTM(4, 3, 2)(x, x[:, :2, :3])),
            ("nn.GRU: hx must be h [-1, 1, 3] for x Value(float32[B, 5, 4])", lambda x: nn.GRU(4, 3)(x, x[:, :2, :3])),
        ):
            self.refused(says, make)

    def test_a_batch_norm_is_called_once(self):
        """Its running statistics can have one reader only."""
        ht.new_graph()
        norm, x = nn.BatchNorm2d(3), ht.placeholder("x", "float32", [ht.BATCH, 3, 2, 2])
        with self.assertRaisesRegex(ValueError, r"^nn_test\.py:\d+: .*is read more than once; only one operator may"):
            norm(norm(x))


class Page(unittest.TestCase):
    def test_its_lines_run(self):
        page = pathlib.Path(__file__).resolve().parents[3] / "docs" / "nn.md"
        codes = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        self.assertEqual(len(codes), 3)
        ht.new_graph()
        names = {}
        for code in codes:
            exec(compile(code, str(page), "exec"), names)
        self.assertLess(names["losses"][-1], names["losses"][0])
        self.assertEqual(names["names"][:3], ["wte.weight", "blocks.0.scale", "blocks.0.norm.weight"])
        self.assertEqual(names["loaded"].missing, ["blocks.0.scale"])
        self.assertEqual(names["more"].shape, (1, 16))
        self.assertTrue(names["said"].startswith("One and "))
        shutil.rmtree(names["folder"])


if __name__ == "__main__":
    unittest.main()
