// Key states: first call runs directly; second call captures and launches the graph; later calls
// launch it. A failed capture marks the key as refused, and it runs directly from then on.
#include "executor/device/cuda_graphs.h"

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "ops/cuda/gpu/check.h"

namespace hetu::cuda {

bool Graphs::repeat(const std::string& key, const std::function<void()>& give,
                    cudaStream_t stream) {
  if (recorded_.size() >= kMost && recorded_.count(key) == 0) {
    refuse(fmt::format("the limit of {} graphs is reached", kMost));
    give();
    return false;
  }
  const auto [at, first] = recorded_.try_emplace(key);
  Recorded& one = at->second;
  const bool repeats = one.graph != nullptr;
  if (!repeats && (first || one.refused || !record(one, give, stream))) {
    give();
    return false;
  }
  check(cudaGraphLaunch(one.graph.get(), stream), "launching a graph");
  if (repeats) ++repeated_;
  return repeats;
}

// Captures the work that `give` gives; nothing runs during the capture.
bool Graphs::record(Recorded& to, const std::function<void()>& give, cudaStream_t stream) {
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "starting a capture");
  std::string problem;
  try {
    give();
  } catch (const Error& e) {
    problem = e.what();
  }
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(stream, &captured);
  if (problem.empty() && ended != cudaSuccess) problem = cudaGetErrorString(ended);
  if (problem.empty()) {
    const cudaError_t made = cudaGraphInstantiate(&graph, captured, 0);
    if (made != cudaSuccess) problem = cudaGetErrorString(made);
  }
  if (captured != nullptr) static_cast<void>(cudaGraphDestroy(captured));
  to.graph.reset(graph);
  if (problem.empty()) return true;
  static_cast<void>(cudaGetLastError());  // the error is reported here
  to.refused = true;
  refuse(problem);
  return false;
}

void Graphs::refuse(const std::string& why) {
  if (!std::exchange(reported_, true))
    log(Level::Warning,
        "device cuda: a function of a stage could not be recorded as a CUDA graph: {}; its kernels "
        "are launched one by one",
        why);
}

}  // namespace hetu::cuda
