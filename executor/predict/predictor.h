// A saved model in one process: arrays in, arrays out. For C++ programs; Python's Predictor stands
// on it.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/device.h"
#include "executor/predict/array.h"
#include "graph/graph.h"

namespace hetu {

struct SavedModel;

struct PredictorOptions {
  std::string device = "cpu";
  KernelChoice kernels = KernelChoice::Best;
  /// Samples that are computed at once. 0: as many as a micro-batch of the job that saved the model
  /// had; then the bits are those of its predictions, whatever the number of rows.
  std::int64_t rows = 0;
  int threads = 0;  ///< of kernels; 0: as they are, at most those of machine_cores()
};

/// A saved model. Any number of threads may share one object: its calls run one after the other,
/// each on PredictorOptions::threads threads. For calls side by side, load the model once per
/// thread. A call that throws changes nothing: later calls give what they would have given without
/// it.
///
/// A process may load a model, fork, and call predict() in its children (device "cpu"; elsewhere
/// calls in a child throw). fork() waits until no call runs.
class Predictor {
 public:
  /// Throws as read_model and load_checkpoint (Io), and as compile_stage.
  explicit Predictor(const std::string& folder, const PredictorOptions& options = {});
  /// Makes a predictor of a model that was read already (executor/predict/saved_model.h).
  explicit Predictor(SavedModel model, const PredictorOptions& options = {});
  ~Predictor();
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  /// What the fetched values need and are: placeholders and fetches.
  const Graph& graph() const;
  /// Samples that are computed at once.
  std::int64_t rows() const;

  /// The fetches of as many rows as the fields have, by name: [rows, ...], or [k * rows, ...]. In
  /// evaluation mode: no dropout, batch norms by their running statistics. Every field of the graph
  /// is given, and no other, dense, along the batch axis of equal length.
  /// Throws InvalidArgument, naming the field: unknown, missing, another type or shape.
  std::map<std::string, Array> predict(const std::map<std::string, ArrayView>& fields);

  /// From here on the field is not given: it is what the output was at the call before, zeros at
  /// the first, and that output stays here. For models that go on from a state: the keys and values
  /// of the tokens so far, say. Calls then have equally many rows, rows() at most. Throws
  /// InvalidArgument: no such output or field, another type, a field carried already.
  void carry(const std::string& output, const std::string& field);
  /// As carry, for a field [B, places, ...] that grows in place by an output [B, N, ...]: what each
  /// call gives stands behind what the calls before gave, from place 0 on; the other places are
  /// zeros. A call for which no place is left throws InvalidArgument, as do other shapes.
  void keep(const std::string& output, const std::string& field);
  /// Carried and kept fields become what those of the same names are in `other`, which must carry
  /// the same ones, of the same types, or InvalidArgument is thrown. Not of itself.
  void take(const Predictor& other);
  /// Carried and kept fields are zeros again, of any number of rows.
  void reset();

 private:
  std::map<std::string, Array> predict_alone(const std::map<std::string, ArrayView>& fields);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
