// Tests pipelines with different cuts (hetpipe). Batch-norm statistics, validation and checkpoints
// equal those of pipelines with equal cuts. Models that don't allow different cuts are refused.
#include <gmock/gmock.h>

#include <filesystem>

#include "base/error.h"
#include "executor/job/job_check.h"
#include "executor/state/checkpoint.h"
#include "graph/builder.h"
#include "ops/registry.h"
#include "ps/client/local_servers.h"
#include "tests/executor/replay.h"

namespace hetu {
namespace {

namespace fs = std::filesystem;
using testing_replay::Setting;
using testing_replay::Tensors;

// Settings for the residual network. It has 4 blocks, a skip over the second block, and batch norms
// in the first, third and last blocks.
Setting setting(std::vector<Cut> cuts) {
  Setting s;
  s.method = "hetpipe";
  s.pipelines = static_cast<int>(cuts.size());
  s.stages = static_cast<int>(cuts.front().size());
  s.micro_batches = 2;
  s.batch_size = 8;
  s.images = true;
  s.optimizer = testing_replay::optimizer(OptimizerConfig::Kind::Momentum);
  // The norm for clipping is computed per stage, so it depends on the cut.
  s.optimizer.clip_norm = 0;
  s.cuts = std::move(cuts);
  return s;
}

// Returns four blocks for the same images. The parameters are created in another order than they
// are used, so that the segments of a stage are not contiguous.
Graph made_early() {
  using testing_model::kImage;
  Builder b(op_set());
  ValueId x = b.placeholder("image", DType::Float32, {kBatch, 3, kImage, kImage});
  const ValueId labels = b.placeholder("label", DType::Int32, {kBatch});
  const Initializer normal = {Initializer::Kind::Normal, 0, 0.05};
  const ValueId first = b.parameter("first", {16, 3 * kImage * kImage}, normal);
  const ValueId third = b.parameter("third", {16, 16}, normal);
  const ValueId scale = b.parameter("scale", {16}, normal);
  const ValueId second = b.parameter("second", {16, 16}, normal);
  const ValueId head = b.parameter("head", {testing_model::kClasses, 16}, normal);
  x = b.apply("reshape", {x}, {{"shape", std::vector<std::int64_t>{-1, 3 * kImage * kImage}}});
  x = b.apply("gelu", {b.apply("linear", {x, first, scale})});
  b.cut();
  x = b.apply("gelu", {b.apply("linear", {x, second})});
  b.cut();
  x = b.apply("gelu", {b.apply("linear", {x, third})});
  b.cut();
  const ValueId logits = b.apply("linear", {x, head});
  const ValueId count = b.apply("step_sum", {b.apply("count_labels", {labels})});
  const ValueId loss =
      b.apply("div_scalar", {b.apply("softmax_cross_entropy", {logits, labels}), count});
  b.fetch("loss", loss);
  b.fetch("top1", b.apply("top_k_hits", {logits, labels}));
  b.differentiate(loss);
  return b.finish();
}

struct Part {
  int until = 6;     // last step (exclusive), counted from 0
  std::string from;  // folder of the checkpoint to load
  std::string to;
  bool early = false;  // trains made_early()
};

struct Outcome {
  std::map<int, Tensors> tensors;  // by pipeline
  Tensors loaded;
  double validation = 0, top1 = 0;
};

void work(const Setting& s, const Part& part, ps::LocalServers& servers, Outcome& out,
          comm::Transport& links) {
  static std::mutex mutex;
  JobOptions options = testing_replay::options_of(s);
  options.servers.emplace();
  options.servers->connect = [&](const ps::ParameterOptions& o) { return servers.client(o); };
  const Graph graph = part.early ? made_early() : testing_replay::graph_of(s);
  Job trainer(graph, s.optimizer, options, links);
  if (!part.from.empty()) {
    const Manifest manifest = read_manifest(part.from);
    load_checkpoint(manifest, trainer.state());
    trainer.set_step(manifest.step);
    const std::lock_guard lock(mutex);
    for (const StateTensor& t : trainer.state())
      out.loaded[testing_replay::key(t)] = t.values.values();
  }
  const int start = static_cast<int>(trainer.step());
  DrawnBatches batches = testing_replay::batches_of(s, trainer.plan().pipeline, start);
  while (trainer.step() < part.until) {
    trainer.begin_run(std::min<std::int64_t>(3, part.until - trainer.step()));
    while (trainer.next(&batches)) {
    }
  }
  DrawnBatches held_out = testing_replay::batches_of(s, trainer.plan().pipeline, 100);
  const StepResult seen = trainer.validate(&held_out);
  trainer.settle();
  {
    const std::lock_guard lock(mutex);
    for (const StateTensor& t : trainer.state())
      out.tensors[trainer.plan().pipeline][testing_replay::key(t)] = t.values.values();
    out.validation = seen.at("loss");
    out.top1 = seen.at("top1");
  }
  if (!part.to.empty())
    save_checkpoint({part.to}, trainer.step(), "{}", trainer.save_parts(), links);
}

Outcome train(const Setting& s, const Part& part = {}) {
  Outcome out;
  ps::LocalServers servers(1);
  comm::Options links;
  links.timeout_s = 60;
  EXPECT_EQ(on_worker_threads(
                s.pipelines * s.stages, [&](comm::Transport& t) { work(s, part, servers, out, t); },
                links),
            "");
  return out;
}

// Servers add in arbitrary order, so runs differ in the last bits.
void expect_near(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a)
    EXPECT_LE(testing_replay::difference(values, b.at(name)), 1e-5) << name;
}

TEST(CutApart, TrainsAndValidatesAsPipelinesThatAreCutAlike) {
  const Outcome alike = train(setting({{0, 2}, {0, 2}}));
  for (const auto& cuts : {std::vector<Cut>{{0, 1}, {0, 2}}, {{0, 3}, {0, 1}}}) {
    const Outcome apart = train(setting(cuts));
    ASSERT_EQ(apart.tensors.size(), 2U);
    EXPECT_EQ(apart.tensors.at(0), apart.tensors.at(1)) << "pipelines end with one state";
    expect_near(alike.tensors.at(0), apart.tensors.at(0));
    EXPECT_NEAR(alike.validation, apart.validation, 1e-5);
    EXPECT_EQ(alike.top1, apart.top1);
  }
}

TEST(CutApart, SegmentsMayLieInSeveralPieces) {
  const Part early = {.early = true};
  const Outcome alike = train(setting({{0, 2}, {0, 2}}), early);
  const Outcome pieces = train(setting({{0, 1}, {0, 3}}), early);
  EXPECT_EQ(pieces.tensors.at(0), pieces.tensors.at(1));
  expect_near(alike.tensors.at(0), pieces.tensors.at(0));
}

TEST(CutApart, CheckpointsGoOnUnderOtherCuts) {
  const fs::path folder =
      fs::temp_directory_path() / ("hetu-cut-apart-" + std::to_string(::getpid()));
  const Outcome whole = train(setting({{0, 1}, {0, 3}}));
  for (const auto& then :
       {std::vector<Cut>{{0, 2}, {0, 1}}, {{0, 1, 2}, {0, 2, 3}}, {{0, 3}, {0, 3}}}) {
    fs::remove_all(folder);
    const Outcome half = train(setting({{0, 1}, {0, 3}}), {3, "", folder.string()});
    const Outcome on = train(setting(then), {6, folder.string(), ""});
    EXPECT_EQ(on.loaded, half.tensors.at(0));
    expect_near(whole.tensors.at(0), on.tensors.at(0));
    EXPECT_NEAR(whole.validation, on.validation, 1e-5);
  }
  fs::remove_all(folder);
}

void expect_refused(const Graph& graph, const Setting& s, const char* why) {
  JobOptions options = testing_replay::options_of(s);
  if (wants_servers(options)) options.servers.emplace();
  EXPECT_THAT([&] { check_job(graph, s.optimizer, options); },
              testing::ThrowsMessage<Error>(testing::HasSubstr(why)));
}

void expect_refused(const Setting& s, const char* why) {
  expect_refused(testing_replay::graph_of(s), s, why);
}

// Returns three blocks. The middle block divides by a count.
Graph counts_in_the_middle() {
  Builder b(op_set());
  ValueId x = b.placeholder("x", DType::Float32, {kBatch, 4});
  const ValueId labels = b.placeholder("label", DType::Int32, {kBatch});
  x = b.apply("linear", {x, b.parameter("first", {4, 4}, {})});
  b.cut();
  x = b.apply("linear", {x, b.parameter("second", {4, 4}, {})});
  const ValueId count = b.apply("step_sum", {b.apply("count_labels", {labels})});
  x = b.apply("div_scalar", {x, count});
  b.cut();
  x = b.apply("linear", {x, b.parameter("third", {4, 4}, {})});
  const ValueId loss = b.apply("softmax_cross_entropy", {x, labels});
  b.fetch("loss", loss);
  b.differentiate(loss);
  return b.finish();
}

TEST(CutApart, WhatCannotBeCutSoIsRefused) {
  expect_refused(setting({{0, 1}, {0, 4}}),
                 "stage 1 starts at block 4, but the first blocks of stages must ascend and lie "
                 "between 0 and 3");
  expect_refused(setting({{0, 2}, {1, 2}}), "the first stage must start at block 0");
  expect_refused(
      setting({{0, 2}, {0}}),
      "first blocks of 1 stages are given for pipeline 1, but the schedule has 2 stages");
  Setting s = setting({{0, 1}, {0, 2}});
  s.cuts.push_back({0, 3});
  expect_refused(s, "cuts of 3 pipelines are given, but the job has 2 pipelines");
  s = setting({{0, 1}, {0, 2}});
  s.method = "pipedream";
  s.micro_batches = 1;
  expect_refused(s, "'pipedream' needs the same cut in all pipelines");
  s = setting({{0, 1}, {0, 2}});
  s.images = false;  // In the language model the decoder shares its weight with the embedding.
  expect_refused(s, "stages 0 and 1 of pipeline 0 share a weight");
  s = setting({{0, 1}, {0, 2}});
  expect_refused(counts_in_the_middle(), s, "stage 0 computes other step_sums in pipeline 1");
}

}  // namespace
}  // namespace hetu
