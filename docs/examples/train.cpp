// A model, its cut-point, its training and its prediction in C++. Alone: one process. Under
// heturun: a pipeline of two stages. If a folder is named, it saves the model there, and one of its
// processes then predicts:
//   heturun -w 2 build/bin/example_train 2 model
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "base/error.h"
#include "executor/job/executor.h"
#include "executor/predict/predictor.h"
#include "ops/layers.h"
#include "ops/registry.h"

int main(int count, char** words) try {
  hetu::Builder b(hetu::op_set());
  const auto x = b.placeholder("x", hetu::DType::Float32, {hetu::kBatch, 784});
  const auto y = b.placeholder("y", hetu::DType::Int32, {hetu::kBatch});
  const auto hidden = b.apply("relu", {hetu::ops::linear(b, x, 128, "fc1")});
  b.cut();  // the model may be split here
  const auto logits = hetu::ops::linear(b, hidden, 10, "fc2");
  const auto loss = hetu::ops::softmax_cross_entropy(b, logits, y);
  b.fetch("loss", loss);
  b.fetch("logits", logits);
  b.differentiate(loss);

  hetu::OptimizerConfig sgd;
  sgd.rate.base = 0.1;
  hetu::JobOptions options;
  options.method = "1f1b";
  options.stages = count > 1 ? std::atoi(words[1]) : 1;
  options.micro_batches = 4;
  options.batch_size = 32;
  hetu::Executor job(b.finish(), sgd, options,
                     hetu::synthetic_source({{{"x", hetu::DType::Float32, {784}}, 0, 1},
                                             {{"y", hetu::DType::Int32, {}}, 0, 10}},
                                            /*rows=*/32, /*seed=*/0));
  for (int step = 0; step < 50; ++step) {
    const hetu::StepResult result = job.step();
    if (job.is_chief() && step % 10 == 9)
      std::printf("step %d loss %.4f\n", step + 1, result.at("loss"));
  }
  if (count < 3) return 0;
  job.save(words[2], {"logits"});  // every worker has a part of the weights
  if (!job.is_chief()) return 0;

  hetu::Predictor model(words[2]);
  const std::vector<float> rows(3 * 784, 0.5F);
  const hetu::Array out =
      model.predict({{"x", {hetu::DType::Float32, {3, 784}, rows.data()}}}).at("logits");
  for (int i = 0; i < 10; ++i) std::printf("%.3f ", out.as<float>()[i]);
  std::printf("of the first of %s\n", hetu::to_string(out.shape).c_str());
} catch (const hetu::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return hetu::exit_status(error.code());
}
