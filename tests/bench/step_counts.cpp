// Runs three training steps of a graph in text form, on random rows and one thread. check_counts.py
// counts their instructions.
//   step_counts GRAPH.txt
#include <cstdio>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "base/error.h"
#include "executor/job/executor.h"
#include "graph/graph.h"

namespace {

constexpr std::int64_t kBatch = 4;
constexpr int kMicroBatches = 2, kSteps = 3;

hetu::Graph read_graph(const char* path) {
  std::ifstream in(path);
  if (!in) hetu::fail(hetu::Code::Io, "{}: cannot be read", path);
  std::stringstream text;
  text << in.rdbuf();
  return hetu::parse_graph(text.str());
}

// Returns the fields of random rows. Integers are 0 and 1, which are valid indices and labels of
// any model.
std::vector<hetu::DrawnField> drawn_fields(const hetu::Graph& graph) {
  std::vector<hetu::DrawnField> fields;
  for (const hetu::ValueId v : graph.placeholders) {
    const hetu::TensorType& type = graph.values[v].type;
    fields.push_back({{graph.producer(v).name, type.dtype,
                       hetu::Shape(type.shape.begin() + 1, type.shape.end())},
                      0,
                      type.dtype == hetu::DType::Float32 ? 1.0 : 2.0});
  }
  return fields;
}

}  // namespace

int main(int count, char** words) try {
  hetu::require(count == 2, "usage: step_counts GRAPH.txt");
  hetu::Graph graph = read_graph(words[1]);
  hetu::OptimizerConfig adamw;
  adamw.kind = hetu::OptimizerConfig::Kind::AdamW;
  adamw.rate.base = 1e-4;
  hetu::JobOptions options;
  options.micro_batches = kMicroBatches;
  options.batch_size = kBatch;
  options.threads = 1;
  auto rows = hetu::synthetic_source(drawn_fields(graph), kBatch, /*seed=*/0);
  hetu::Executor job(std::move(graph), adamw, options, std::move(rows));
  for (int step = 0; step < kSteps; ++step)
    std::printf("step %d loss %.4f\n", step + 1, job.step().at("loss"));
} catch (const hetu::Error& error) {
  std::fprintf(stderr, "step_counts: %s\n", error.what());
  return hetu::exit_status(error.code());
}
