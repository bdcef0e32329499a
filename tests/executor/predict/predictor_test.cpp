// A saved model gives the bits of the job that saved it, for every value of the forward and for any
// number of rows.
#include "executor/predict/predictor.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <random>

#include "base/error.h"
#include "executor/job/job.h"
#include "executor/predict/saved_model.h"
#include "net/transport/inproc.h"
#include "tests/executor/conv_model.h"
#include "tests/executor/small_model.h"
#include "tests/executor/test_batches.h"
#include "tests/executor/test_options.h"
#include "tests/temporary_folder.h"

namespace hetu {
namespace {

constexpr std::int64_t kBatch3 = 6, kMicro = 3;  // samples of a step and of a micro-batch
constexpr unsigned kSeed = 17;

using Bytes = std::vector<std::byte>;

// Returns random rows for every field of a graph.
std::map<std::string, Bytes> drawn(const Graph& g, std::int64_t rows) {
  std::mt19937 random(kSeed);
  std::map<std::string, Bytes> fields;
  for (const ValueId v : g.placeholders) {
    const TensorType& type = g.values[v].type;
    const std::int64_t count = tensor_bytes(type, rows) / 4;
    Bytes& bytes = fields[g.producer(v).name];
    for (std::int64_t i = 0; i < count; ++i) {
      const auto whole = static_cast<std::int32_t>(random() % 5);
      const float real = std::normal_distribution<float>()(random);
      const void* const from =
          type.dtype == DType::Int32 ? static_cast<const void*>(&whole) : &real;
      const auto* const at = static_cast<const std::byte*>(from);
      bytes.insert(bytes.end(), at, at + 4);
    }
  }
  return fields;
}

// Returns the graph with fetches of every forward value that has the batch axis, or only of the
// last such value.
Graph fetching(Graph g, bool all) {
  std::vector<std::pair<std::string, ValueId>> found;
  for (const Node& n : g.nodes) {
    if (n.phase != Phase::Forward || n.op == "parameter" || n.op == "buffer") continue;
    for (const ValueId v : n.outputs)
      if (is_per_sample(g.values[v].type))
        found.emplace_back(fmt::format("{}:{}", n.name, g.values[v].output), v);
  }
  if (!all) found.erase(found.begin(), found.end() - 1);
  g.fetches.insert(g.fetches.end(), found.begin(), found.end());
  return g;
}

class Saved : public testing::TestWithParam<std::tuple<bool, bool>> {};

TEST_P(Saved, GivesWhatTheJobGave) {
  const auto [images, all] = GetParam();
  const Graph g = fetching(images ? testing_model::residual_model()
                                  : testing_model::language_model(testing_model::Sizes()),
                           all);
  std::vector<std::string> names;
  for (const auto& [name, v] : g.fetches)
    if (is_per_sample(g.values[v].type)) names.push_back(name);
  JobOptions options = test_options();
  options.batch_size = kBatch3;
  options.micro_batches = kBatch3 / kMicro;
  options.threads = 1;
  OptimizerConfig sgd;
  sgd.rate.base = 0.05;
  const auto links = comm::make_inproc(1);
  Job trainer(g, sgd, options, *links[0]);
  const std::int64_t rows = 17;
  const std::map<std::string, Bytes> fields = drawn(g, rows);
  const auto part = [&](std::int64_t first, std::int64_t count) {
    Batch batch;
    for (const auto& [name, bytes] : fields) {
      const auto width = static_cast<std::int64_t>(bytes.size()) / rows;
      FieldData& field = batch.fields.emplace_back();
      field.name = name;
      field.bytes.assign(bytes.begin() + first * width, bytes.begin() + (first + count) * width);
    }
    return batch;
  };
  for (int step = 0; step < 2; ++step) trainer.train(part(step * kBatch3, kBatch3));
  std::map<std::string, Bytes> wanted;
  for (std::int64_t first = 0; first < rows; first += kBatch3) {
    const std::int64_t there = std::min(kBatch3, rows - first);
    for (NamedTensor& t : trainer.validate(part(first, there), {names, there}).tensors) {
      ASSERT_GT(t.bytes.size(), 0U) << t.name;
      Bytes& whole = wanted[t.name];
      whole.insert(whole.end(), t.bytes.begin(), t.bytes.end());
    }
  }
  EXPECT_EQ(wanted.size(), names.size());

  const TemporaryFolder folder;
  save_model({folder.path()}, trainer.step(), model_of(g, names), kMicro, trainer.save_parts(),
             *links[0]);
  PredictorOptions how;
  how.device = options.device;
  how.kernels = options.kernels;
  Predictor predictor(folder.path(), how);
  for (const std::int64_t count : {rows, std::int64_t{1}, std::int64_t{4}}) {
    std::map<std::string, ArrayView> views;
    for (const ValueId v : predictor.graph().placeholders) {
      TensorType type = predictor.graph().values[v].type;
      type.shape[0] = count;
      const std::string& name = predictor.graph().producer(v).name;
      views[name] = {type.dtype, type.shape, fields.at(name).data()};
    }
    const std::map<std::string, Array> found = predictor.predict(views);
    ASSERT_EQ(found.size(), names.size());
    for (const auto& [name, array] : found) {
      const Bytes& whole = wanted.at(name);
      ASSERT_EQ(array.bytes.size(), whole.size() / rows * count) << name;
      EXPECT_EQ(std::memcmp(array.bytes.data(), whole.data(), array.bytes.size()), 0)
          << name << ", " << count << " rows, seed " << kSeed;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Saved, testing::Combine(testing::Bool(), testing::Bool()));

// A model of another width must not replace a good one, whether its graph or a variant differs.
TEST(SaveModel, KeepsTheOldModelIfTheCheckpointBelongsToAnother) {
  const auto model = [](std::int64_t width, const char* weight = "w") {
    Builder b(op_set());
    const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 3});
    b.fetch("y", b.apply("mul", {x, b.parameter(weight, {width}, {})}));
    return model_of(b.finish(), {"y"});
  };
  const TemporaryFolder checkpoint, folder;
  std::vector<float> values = {1, 2, 3};
  const auto links = comm::make_inproc(1);
  save_checkpoint({checkpoint.path()}, 4, "{}",
                  {{"stage-0.safetensors", {{"w", "", {3}, host_span(values.data(), 3)}}}},
                  *links[0]);
  save_model(folder.path(), model(3), 1, checkpoint.path());
  const auto refused = [&](const char* text, const Graph& graph,
                           const std::map<std::string, Graph>& variants = {}) {
    EXPECT_THAT([&] { save_model(folder.path(), graph, 1, checkpoint.path(), variants); },
                testing::ThrowsMessage<Error>(testing::HasSubstr(text)));
    EXPECT_NO_THROW(Predictor(folder.path()));
  };
  refused("'w' is [3], but the model expects [1]", model(1));
  refused("'w' is [3], but the model expects [1]", model(3), {{"prompt", model(1)}});
  refused("has no 'v'; the checkpoint belongs to another model", model(3, "v"));
}

// Model: total = past + x w, and a second output of twice that value. `total` is a state that is
// carried to the next call.
class Carried : public testing::Test {
 protected:
  Carried() {
    Builder b(op_set());
    const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 3});
    const ValueId past = b.placeholder("past", DType::Float32, {kBatch, 3});
    const ValueId total = b.apply("add", {past, b.apply("mul", {x, b.parameter("w", {1, 1}, {})})});
    b.fetch("total", total);
    b.fetch("twice", b.apply("scale", {total}, {{"factor", 2.0}}));
    b.fetch("wide", b.apply("concat", {total, total}, {{"axis", std::int64_t{1}}}));
    std::vector<float> one = {1};
    const auto links = comm::make_inproc(1);
    save_model({folder_.path()}, 0, model_of(b.finish(), {"total", "twice", "wide"}), 2,
               {{"stage-0.safetensors", {{"w", "", {1, 1}, host_span(one.data(), 1)}}}}, *links[0]);
    PredictorOptions how;
    how.device = test_options().device;
    predictor_ = std::make_unique<Predictor>(folder_.path(), how);
  }
  std::map<std::string, Array> give(std::vector<float> x) {
    return predictor_->predict(
        {{"x", {DType::Float32, {static_cast<std::int64_t>(x.size()) / 3, 3}, x.data()}}});
  }
  static std::vector<float> floats(const Array& a) {
    return {a.as<float>(), a.as<float>() + a.bytes.size() / 4};
  }

  TemporaryFolder folder_;
  std::unique_ptr<Predictor> predictor_;
};

TEST_F(Carried, GoesOnFromWhatItGave) {
  predictor_->carry("total", "past");
  EXPECT_EQ(floats(give({1, 2, 3}).at("twice")), (std::vector<float>{2, 4, 6}));
  const std::map<std::string, Array> next = give({10, 20, 30});
  EXPECT_EQ(floats(next.at("twice")), (std::vector<float>{22, 44, 66}));
  EXPECT_EQ(next.count("total"), 0U) << "it stays there";
  EXPECT_EQ(floats(next.at("wide")), (std::vector<float>{11, 22, 33, 11, 22, 33}));
  predictor_->reset();
  EXPECT_EQ(floats(give({1, 2, 3, 4, 5, 6}).at("twice")), (std::vector<float>{2, 4, 6, 8, 10, 12}));
  EXPECT_EQ(floats(give({1, 1, 1, 1, 1, 1}).at("twice")),
            (std::vector<float>{4, 6, 8, 10, 12, 14}));
}

TEST_F(Carried, Refuses) {
  const auto refused = [](const auto& act, const char* text) {
    EXPECT_THAT(act, testing::ThrowsMessage<Error>(testing::HasSubstr(text)));
  };
  refused([&] { give({1, 2, 3}); }, "field 'past' is missing");
  refused([&] { predictor_->carry("nope", "past"); }, "unknown fetch 'nope'");
  refused([&] { predictor_->carry("total", "nope"); }, "the model reads no field 'nope'");
  refused([&] { predictor_->carry("wide", "past"); },
          "output 'wide' is float32[B, 6], but field 'past'");
  predictor_->carry("total", "past");
  refused([&] { predictor_->carry("twice", "past"); }, "field 'past' is carried already");
  refused([&] { give(std::vector<float>(9)); }, "got 3 rows, but a predictor that carries a field");
  give({1, 2, 3});
  refused([&] { give({1, 2, 3, 4, 5, 6}); }, "got 2 rows, but the carried state has 1");
  const float past[3] = {};
  const ArrayView one{DType::Float32, {1, 3}, past};
  refused(
      [&] {
        predictor_->predict({{"x", one}, {"past", one}});
      },
      "field 'past' is carried between calls, so it must not be given");
}

// Models with a window of 6 values per row. A call gives `added` new values (1 or 2), and returns
// the window followed by the new values. The predictor then keeps the new values in the window.
class Kept : public testing::Test {
 protected:
  static Graph model(std::int64_t added) {
    Builder b(op_set());
    const ValueId x = b.placeholder("x", DType::Float32, {kBatch, added, 1});
    const ValueId past = b.placeholder("past", DType::Float32, {kBatch, 6, 1});
    const ValueId now = b.apply("mul", {x, b.parameter("w", {1, 1}, {})});
    b.fetch("now", now);
    b.fetch("seen", b.apply("concat", {past, now}, {{"axis", std::int64_t{1}}}));
    return b.finish();
  }
  Kept() {
    for (const std::int64_t added : {1, 2}) {
      std::vector<float> one = {1};
      const auto links = comm::make_inproc(1);
      save_model({folders_[added - 1].path()}, 0, model_of(model(added), {"now", "seen"}), 2,
                 {{"stage-0.safetensors", {{"w", "", {1, 1}, host_span(one.data(), 1)}}}},
                 *links[0]);
      PredictorOptions how;
      how.device = test_options().device;
      models_.push_back(std::make_unique<Predictor>(folders_[added - 1].path(), how));
      models_.back()->keep("now", "past");
    }
  }
  // Gives `added` new values to each row, and returns the output "seen".
  std::vector<float> give(std::int64_t added, std::vector<float> x) {
    const auto rows = static_cast<std::int64_t>(x.size()) / added;
    const Array seen = models_[added - 1]
                           ->predict({{"x", {DType::Float32, {rows, added, 1}, x.data()}}})
                           .at("seen");
    return {seen.as<float>(), seen.as<float>() + seen.bytes.size() / sizeof(float)};
  }

  TemporaryFolder folders_[2];
  std::vector<std::unique_ptr<Predictor>> models_;
};

TEST_F(Kept, StandsBehindWhatIsThere) {
  EXPECT_EQ(give(2, {1, 2, 3, 4}),
            (std::vector<float>{0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4}));
  EXPECT_EQ(give(2, {5, 6, 7, 8}),
            (std::vector<float>{1, 2, 0, 0, 0, 0, 5, 6, 3, 4, 0, 0, 0, 0, 7, 8}));
  models_[0]->take(*models_[1]);
  EXPECT_EQ(give(1, {9, 10}), (std::vector<float>{1, 2, 5, 6, 0, 0, 9, 3, 4, 7, 8, 0, 0, 10}));
  EXPECT_EQ(give(1, {11, 12}), (std::vector<float>{1, 2, 5, 6, 9, 0, 11, 3, 4, 7, 8, 10, 0, 12}));
  models_[0]->reset();
  EXPECT_EQ(give(1, {1}), (std::vector<float>{0, 0, 0, 0, 0, 0, 1}));
}

TEST_F(Kept, Refuses) {
  const auto refused = [](const auto& act, const char* text) {
    EXPECT_THAT(act, testing::ThrowsMessage<Error>(testing::HasSubstr(text)));
  };
  refused([&] { models_[0]->take(*models_[1]); }, "must have 1 to 2 rows, got 0");
  for (int i = 0; i < 3; ++i) give(2, {1, 2});
  refused(
      [&] {
        give(2, {1, 2});
      },
      "field 'past' keeps 6 of at most 6 positions, and 2 more do not fit");
  models_[1]->reset();
  give(2, {1, 2});
  refused([&] { give(2, {1, 2, 3, 4}); }, "got 2 rows, but the carried state has 1");
  refused([&] { models_[1]->keep("seen", "past"); }, "field 'past' is carried already");
  PredictorOptions how;
  how.device = test_options().device;
  Predictor fresh(folders_[0].path(), how);
  refused([&] { fresh.take(*models_[1]); },
          "this predictor carries 0 fields, but the other one carries 1");
  refused(
      [&] {
        fresh.keep("now", "x");
        fresh.keep("now", "nope");
      },
      "no field 'nope'");
}

TEST(Model, RefusesWhatIsNotOfEachSample) {
  const Graph g = testing_model::residual_model();
  const auto why = [](const char* text) {
    return testing::ThrowsMessage<Error>(testing::HasSubstr(text));
  };
  EXPECT_THAT(
      [&] { model_of(g, {"top1"}); },
      why("a saved model returns values per sample, but 'top1' is float32[], without the batch"));
  EXPECT_THAT([&] { model_of(g, {"nope"}); }, why("unknown fetch 'nope'; the fetches are: loss"));
  Builder b(op_set());
  const ValueId x = b.placeholder("x", DType::Float32, {kBatch, 2});
  const ValueId rows = b.apply("step_sum", {b.apply("sum", {x})}, {}, "rows");
  b.fetch("share", b.apply("div_scalar", {x, rows}));
  EXPECT_THAT(
      [&] { model_of(b.finish(), {"share"}); },
      why("a saved model returns values per sample, but 'share' depends on 'rows', a sum over"));
}

}  // namespace
}  // namespace hetu
