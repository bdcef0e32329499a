// Rows of your own, training and prediction: docs/tutorial-cpp.md explains this program.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numbers>
#include <random>
#include <vector>

#include "base/error.h"
#include "datasets/order.h"
#include "executor/job/executor.h"
#include "executor/predict/predictor.h"
#include "ops/layers.h"
#include "ops/registry.h"

// Points on two spirals, and the spiral that each point is on.
struct Spirals {
  std::vector<float> points;  // [rows, 2]
  std::vector<std::int32_t> arms;
};

Spirals drawn(int rows, unsigned seed) {
  std::mt19937 random(seed);
  Spirals s;
  for (int r = 0; r < rows; ++r) {
    const double turn = 9 * std::sqrt(static_cast<double>(random()) / std::mt19937::max());
    const int arm = static_cast<int>(random() % 2);
    s.points.push_back(static_cast<float>(turn / 2 * std::cos(turn + std::numbers::pi * arm)));
    s.points.push_back(static_cast<float>(turn / 2 * std::sin(turn + std::numbers::pi * arm)));
    s.arms.push_back(arm);
  }
  return s;
}

// A source that fills any batch from the rows in memory.
std::unique_ptr<hetu::RowSource> source_of(const Spirals& s) {
  hetu::CallbackSource source;
  source.name = "two spirals, seed 1";  // change it whenever the rows change
  source.fields = {{"x", hetu::DType::Float32, {2}}, {"arm", hetu::DType::Int32, {}}};
  source.rows = std::ssize(s.arms);
  source.same_everywhere = true;  // every process draws the same rows
  source.read = [s, rows = source.rows](hetu::Batch& batch) {
    const auto key = hetu::drawn_bits(/*key=*/1, static_cast<std::uint64_t>(batch.epoch));
    for (std::int64_t r = 0; r < batch.rows; ++r) {
      const std::int64_t row = hetu::drawn_place(batch.first + r, rows, key);  // a random order
      for (hetu::FieldData& field : batch.fields) {
        if (field.name == "x")
          std::copy_n(s.points.begin() + 2 * row, 2, field.as<float>() + 2 * r);
        if (field.name == "arm") field.as<std::int32_t>()[r] = *(s.arms.begin() + row);
      }
    }
  };
  return hetu::callback_source(std::move(source));
}

hetu::Graph model() {
  hetu::Builder b(hetu::op_set());
  const auto x = b.placeholder("x", hetu::DType::Float32, {hetu::kBatch, 2});
  const auto arm = b.placeholder("arm", hetu::DType::Int32, {hetu::kBatch});
  const hetu::ops::LinearOptions wide{.weight = hetu::ops::kKaimingUniform};
  auto hidden = b.apply("tanh", {hetu::ops::linear(b, x, 64, "first", wide)});
  for (const char* name : {"second", "third", "fourth"}) {
    b.cut();  // a stage may begin here
    hidden = b.apply("tanh", {hetu::ops::linear(b, hidden, 64, name, wide)});
  }
  const auto logits = hetu::ops::linear(b, hidden, 2, "last");
  const auto loss = hetu::ops::softmax_cross_entropy(b, logits, arm);
  b.fetch("loss", loss);
  b.fetch("logits", logits);
  b.fetch("hits", b.apply("top_k_hits", {logits, arm}, {{"k", std::int64_t{1}}}));
  b.differentiate(loss);
  return b.finish();
}

void train(const char* folder, int stages) {
  hetu::OptimizerConfig adam = hetu::defaults_of(hetu::OptimizerConfig::Kind::Adam);
  adam.rate.base = 5e-3;
  hetu::JobOptions options;
  options.method = "1f1b";
  options.stages = stages;
  options.micro_batches = 4;
  options.batch_size = 100;
  hetu::Executor job(model(), adam, options, source_of(drawn(2000, 1)));
  for (int step = 0; step < 400; ++step) {
    const hetu::StepResult result = job.step();
    if (job.is_chief() && step % 100 == 99)
      std::printf("step %d loss %.9f\n", step + 1, result.at("loss"));
  }
  double hits = 0;
  std::int64_t rows = 0;
  job.evaluate(source_of(drawn(250, 2)), {"hits"}, [&](const hetu::StepResult& batch) {
    hits += batch.at("hits");
    rows += batch.rows;
  });
  if (job.is_chief()) std::printf("held out: accuracy %.3f\n", hits / static_cast<double>(rows));
  job.save(folder, {"logits"});  // every worker calls it, because each has a part of the weights
}

void predict(const char* folder) {
  hetu::Predictor predictor(folder);
  const Spirals fresh = drawn(400, 2);  // points that the training has not seen
  const hetu::ArrayView x{hetu::DType::Float32, {400, 2}, fresh.points.data()};
  const hetu::Array logits = predictor.predict({{"x", x}}).at("logits");
  int right = 0;
  for (int r = 0; r < 400; ++r) {
    const float* row = logits.as<float>() + 2 * r;
    right += (row[1] > row[0]) == (fresh.arms[static_cast<std::size_t>(r)] == 1);
  }
  std::printf("%d of 400 points right\n", right);
}

int main(int count, char** words) try {
  if (count < 2) return std::fputs("usage: own_rows MODEL [STAGES]; STAGES trains\n", stderr), 2;
  if (count > 2)
    train(words[1], std::atoi(words[2]));
  else
    predict(words[1]);
} catch (const hetu::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return hetu::exit_status(error.code());
}
