// A saved model in one process: arrays in, arrays out. For C++ programs; Python's Predictor stands
// on it.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "executor/predict/array.h"
#include "graph/base/device.h"
#include "graph/graph.h"

namespace hetu {

struct PredictorOptions {
  std::string device = "cpu";
  KernelChoice kernels = KernelChoice::Best;
  /// Samples that are computed at once. 0: as many as a micro-batch of the job that saved the model
  /// had; then the bits are those of its predictions, whatever the number of rows.
  std::int64_t rows = 0;
  int threads = 0;  ///< of kernels; 0: as they are
};

class Predictor {
 public:
  /// Throws as read_model and load_checkpoint (Io), and as compile_stage.
  explicit Predictor(const std::string& folder, const PredictorOptions& options = {});
  ~Predictor();
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  /// What the fetched values need and are: placeholders and fetches.
  const Graph& graph() const;
  /// Samples that are computed at once.
  std::int64_t rows() const;

  /// The fetches of as many rows as the fields have, by name: [rows, ...], or [k * rows, ...]. In
  /// evaluation mode: no dropout, batch norms by their running statistics. Every field of the graph
  /// is given, and no other, dense, along the batch axis of equal length. One caller at a time.
  /// Throws InvalidArgument, naming the field: unknown, missing, another type or shape.
  std::map<std::string, Array> predict(const std::map<std::string, ArrayView>& fields);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
