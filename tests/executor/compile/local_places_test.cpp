// Tests the offsets of values in a stage's arena. The stage's functions run on names of values
// instead of numbers: each launch must read the values that were written there last.
#include "executor/compile/local_places.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "graph/op_def.h"
#include "ops/registry.h"
#include "tests/executor/conv_model.h"
#include "tests/executor/small_model.h"

namespace hetu {
namespace {

constexpr std::int64_t kSamples = 3;

struct Interval {
  std::int64_t begin = 0, end = 0;
  bool meets(const Interval& other) const { return begin < other.end && other.begin < end; }
};

/// The value at each offset, in the first slot of every ring.
class Arena {
 public:
  Arena(const Graph& graph, const StagePlan& plan) : graph_(graph), plan_(plan) {
    for (const Function* f : functions())
      for (const Launch& l : f->launches) made_.insert(l.node);
    for (const Function* f : functions())
      for (const Launch& l : f->launches)
        each_input(l, [&](ValueId v, const Loc& at) {
          if (made_.count(graph_.values[v].producer) == 0) write(of(v, at), v);
        });
  }

  void run(const Function& f) {
    for (const Launch& l : f.launches) {
      const Node& node = graph_.nodes[l.node];
      const Interval scratch = {l.scratch.offset, l.scratch.offset + l.kernel->scratch_bytes};
      write(scratch, kNone);
      each_input(l, [&](ValueId v, const Loc& at) { expect_there(v, at, node.name); });
      const int over = op_set().find(node.op).overwrites;
      for (std::size_t o = 0; o < l.outputs.size(); ++o) {
        const Interval out = of(node.outputs[o], l.outputs[o]);
        EXPECT_FALSE(out.meets(scratch)) << node.name;
        for (std::size_t i = 0; i < l.inputs.size(); ++i) {
          const Interval in = of(node.inputs[i], l.inputs[i]);
          const bool may = o == 0 && int(i) == over && in.begin == out.begin;
          EXPECT_TRUE(may || !out.meets(in)) << node.name << ", input " << i;
        }
        write(out, node.outputs[o]);
      }
    }
  }

  void expect_there(ValueId v, const Loc& at, const std::string& who) const {
    const Interval wanted = of(v, at);
    if (wanted.begin == wanted.end) return;
    for (const auto& [interval, value] : lie_)
      if (value == v && interval.begin == wanted.begin) return;
    ADD_FAILURE() << who << " reads value " << v << " of '" << graph_.producer(v).name
                  << "' where it lies no more";
  }

 private:
  std::vector<const Function*> functions() const {
    return {&plan_.rounded,  &plan_.count,      &plan_.forward,    &plan_.recompute,
            &plan_.backward, &plan_.input_grad, &plan_.weight_grad};
  }
  template <class Visit>
  void each_input(const Launch& l, const Visit& visit) const {
    for (std::size_t i = 0; i < l.inputs.size(); ++i)
      visit(graph_.nodes[l.node].inputs[i], l.inputs[i]);
  }
  Interval of(ValueId v, const Loc& at) const {
    return {at.offset, at.offset + tensor_bytes(graph_.values[v].type, plan_.micro_batch)};
  }
  void write(const Interval& to, ValueId v) {
    std::erase_if(lie_, [&](const auto& there) { return there.first.meets(to); });
    lie_.push_back({to, v});
  }

  const Graph& graph_;
  const StagePlan& plan_;
  std::set<NodeId> made_;
  std::vector<std::pair<Interval, ValueId>> lie_;
};

// Returns a graph whose logits are also read by another gradient, after or before that of the cross
// entropy.
Graph twice_read(bool first) {
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 8});
  const ValueId w = b.parameter("w", {5, 8}, {Initializer::Kind::Normal, 0, 0.2});
  const ValueId logits = b.apply("linear", {x, w}, {}, "logits");
  const ValueId labels = b.placeholder("labels", DType::Int32, {kBatch});
  const auto entropy = [&] { return b.apply("softmax_cross_entropy", {logits, labels}, {}, "ce"); };
  const auto square = [&] {
    return b.apply("sum", {b.apply("mul", {logits, logits}, {}, "square")}, {}, "sum");
  };
  const ValueId one = first ? entropy() : square(), two = first ? square() : entropy();
  const ValueId loss = b.apply("add", {one, two}, {}, "loss");
  b.fetch("loss", loss);
  b.differentiate(loss);
  return b.finish();
}

std::vector<Graph> models() {
  testing_model::Sizes plain, skip;
  plain.tied = false;
  skip.skip = true;
  return {testing_model::language_model(plain), testing_model::language_model(skip),
          testing_model::residual_model()};
}

int in_saved(const Function& f) {
  int found = 0;
  for (const Launch& l : f.launches)
    for (const Loc& at : l.outputs) found += at.region == Region::Saved;
  return found;
}

CompileOptions options_of(const std::vector<int>& first_block, int stage) {
  CompileOptions o;
  o.first_block = first_block;
  o.stage = stage;
  o.micro_batch = kSamples;
  o.micro_batches = 4;
  o.saved_copies = o.held_copies = 2;
  o.prepare = prepare_cpu;
  return o;
}

TEST(LocalPlaces, WhatALaunchReadsIsThere) {
  for (const Graph& graph : models())
    for (const std::vector<int>& cut : {std::vector<int>{0}, std::vector<int>{0, 2}})
      for (int stage = 0; stage < static_cast<int>(cut.size()); ++stage)
        for (const bool split : {false, true})
          for (const bool recompute : {false, true}) {
            SCOPED_TRACE(fmt::format("{} nodes, stage {} of {}, split {}, recompute {}",
                                     graph.nodes.size(), stage, cut.size(), split, recompute));
            CompileOptions o = options_of(cut, stage);
            o.split_backward = split;
            o.recompute = recompute;
            const StagePlan plan = compile_stage(graph, o);
            Arena arena(graph, plan);
            for (const Function* f : {&plan.rounded, &plan.count, &plan.forward}) arena.run(*f);
            if (recompute) arena.run(plan.recompute);
            if (split) arena.run(plan.input_grad);
            arena.run(split ? plan.weight_grad : plan.backward);
            EXPECT_GT(in_saved(plan.backward), 0) << "takes no memory of what it has spent";
            if (recompute) continue;
            for (const StageFetch& f : plan.fetches) arena.expect_there(f.value, f.loc, "a fetch");
            for (const Boundary& b : plan.boundaries)
              for (const BoundaryValue& v : b.values)
                if (!b.incoming && !b.backward) arena.expect_there(v.value, v.loc, "a message");
          }
}

TEST(LocalPlaces, AnInputThatIsReadAgainStays) {
  for (const bool first : {false, true}) {
    const Graph graph = twice_read(first);
    const StagePlan plan = compile_stage(graph, options_of({0}, 0));
    Arena arena(graph, plan);
    arena.run(plan.forward);
    arena.run(plan.backward);
  }
}

TEST(LocalPlaces, HalvesOfMicroBatchesLeaveEachOthersValues) {
  testing_model::Sizes sizes;
  sizes.tied = false;
  const Graph graph = testing_model::language_model(sizes);
  CompileOptions o = options_of({0}, 0);
  o.half_backward = true;
  EXPECT_EQ(in_saved(compile_stage(graph, o).backward), 0);
}

TEST(LocalPlaces, AGradientIsWrittenOverTheInputThatItsKernelReadsLast) {
  const Graph graph = models()[0];
  for (const Launch& l : compile_stage(graph, options_of({0}, 0)).backward.launches) {
    if (graph.nodes[l.node].op != "softmax_cross_entropy_grad") continue;
    EXPECT_EQ(l.outputs[0].region, Region::Saved);
    EXPECT_EQ(l.outputs[0].offset, l.inputs[0].offset);
    return;
  }
  ADD_FAILURE() << "no cross entropy";
}

std::int64_t copies_of_gradients(const Graph& graph, const Function& f) {
  return std::count_if(f.launches.begin(), f.launches.end(), [&](const Launch& l) {
    const Node& n = graph.nodes[l.node];
    return n.op == "reshape" && n.phase == Phase::WeightGrad;
  });
}

// A batch norm's gradient also produces the gradients of its parameters. They are summed where they
// are produced, and copied if the weight gradient runs on its own.
TEST(LocalPlaces, GradientsAreNotCopiedWhereTheyAreMade) {
  const Graph graph = models()[2];
  CompileOptions o = options_of({0}, 0);
  o.split_backward = true;
  const StagePlan plan = compile_stage(graph, o);
  const auto copies = [&](const Function& f) { return copies_of_gradients(graph, f); };
  const auto summed = [](const Function& f, bool copied) {
    return std::count_if(f.accumulates.begin(), f.accumulates.end(), [&](const Accumulate& a) {
      return (a.copied_by != kNone) == copied && (!copied || a.output > 0);
    });
  };
  const auto all = std::ssize(plan.uses);
  const std::int64_t norms = 10;  // gammas and betas
  EXPECT_EQ(copies(plan.backward), 0);
  EXPECT_EQ(summed(plan.backward, true), norms);
  EXPECT_EQ(summed(plan.backward, false), all - norms);
  EXPECT_EQ(copies(plan.weight_grad), norms);
  EXPECT_EQ(summed(plan.weight_grad, false), all);
  EXPECT_TRUE(plan.input_grad.accumulates.empty());
}

TEST(LocalPlaces, AGradientOfTwoParametersIsCopied) {
  Builder b(op_set());
  const auto parameter = [&](const char* name, Shape shape) {
    return b.parameter(name, std::move(shape), {Initializer::Kind::Normal, 0, 0.2});
  };
  const auto buffer = [&](const char* name) { return b.buffer(name, {4}, {}); };
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 3, 5, 5});
  const ValueId y = b.apply("conv2d", {x, parameter("w", {4, 3, 1, 1})});
  const ValueId gamma = b.apply("add", {parameter("gamma1", {4}), parameter("gamma2", {4})});
  const ValueId z =
      b.apply("batch_norm", {y, gamma, parameter("beta", {4}), buffer("mean"), buffer("variance")});
  const ValueId loss = b.apply("sum", {b.apply("mul", {z, z})});
  b.fetch("loss", loss);
  b.differentiate(loss);
  const Graph graph = b.finish();
  const StagePlan plan = compile_stage(graph, options_of({0}, 0));
  EXPECT_EQ(copies_of_gradients(graph, plan.backward), 2);
  EXPECT_EQ(plan.backward.accumulates.size(), 4);
}

// Places three values of 100 bytes (128 with alignment) in turn, next to a value that stays.
TEST(LocalPlaces, OffsetsLieBesideWhatIsPlaced) {
  const std::vector<Placed> there = {{{0, 9, 100}, 0}, {{0, 3, 200}, 128}};
  const std::vector<Lifetime> lives = {{4, 5, 100}, {2, 4, 100}, {4, 4, 200}, {6, 7, 256}};
  EXPECT_EQ(offsets_beside(there, 384, lives), (std::vector<std::int64_t>{-1, -1, 128, 128}));
  EXPECT_EQ(offsets_beside(there, 640, lives), (std::vector<std::int64_t>{384, 512, 128, 128}));
}

}  // namespace
}  // namespace hetu
