// A C++ program that trains over two workers. The last worker fails in the middle, in its data or
// by an exception of its own. The error propagates to main, which reports it.
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "base/error.h"
#include "executor/job/executor.h"
#include "ops/layers.h"
#include "ops/registry.h"

namespace hetu {
namespace {

Graph model() {
  Builder b(op_set());
  const auto x = b.placeholder("x", DType::Float32, {kBatch, 4});
  const auto y = b.placeholder("y", DType::Int32, {kBatch});
  const auto hidden = b.apply("relu", {ops::linear(b, x, 4, "fc1")});
  b.cut();
  const auto loss = ops::softmax_cross_entropy(b, ops::linear(b, hidden, 2, "fc2"), y);
  b.fetch("loss", loss);
  b.differentiate(loss);
  return b.finish();
}

/// Returns rows of zeros. In the column that the last worker reads, row 80 is invalid if `damaged`.
std::unique_ptr<RowSource> rows(bool damaged) {
  CallbackSource source;
  source.name = "zeros";
  source.fields = {{"x", DType::Float32, {4}}, {"y", DType::Int32, {}}};
  source.rows = 1000;
  source.read = [damaged](Batch& batch) {
    for (FieldData& field : batch.fields) {
      std::fill(field.bytes.begin(), field.bytes.end(), std::byte{0});
      if (damaged && field.name == "y" && batch.first >= 80) fail(Code::Io, "row 80 is damaged");
    }
  };
  return callback_source(std::move(source));
}

void train(const std::string& mode) {
  OptimizerConfig sgd;
  sgd.rate.base = 0.1;
  JobOptions options;
  options.stages = 2;
  options.micro_batches = 4;
  options.batch_size = 8;
  options.threads = 1;
  Executor job(model(), sgd, options, rows(mode == "data"));
  for (int step = 0; step < 40; ++step) {
    job.step();
    if (mode == "own" && step == 10 && !job.is_chief()) throw std::runtime_error("an own error");
    if (mode == "returns" && step == 10 && !job.is_chief()) return;
  }
}

}  // namespace
}  // namespace hetu

// Imitates a busy machine: no worker may end the job before the cause has been reported.
void take_time() { std::this_thread::sleep_for(std::chrono::milliseconds(500)); }

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  try {
    hetu::train(mode);
  } catch (const hetu::Error& error) {
    if (mode == "returns" || error.code() != hetu::Code::Comm) take_time();
    fmt::print(stderr, "caught: {}\n", error.what());
    return hetu::exit_status(error.code());
  } catch (const std::exception& error) {
    take_time();
    fmt::print(stderr, "caught: {}\n", error.what());
    return 1;
  }
}
