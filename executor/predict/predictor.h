// A saved model in one process, from arrays to arrays, for C++ programs. Python's Predictor is
// built on it.
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

/// Options of a Predictor.
struct PredictorOptions {
  std::string device = "cpu";
  KernelChoice kernels = KernelChoice::Best;
  /// Samples that are computed at once. 0 means the micro-batch of the job that saved the model.
  /// The bits are then those of the job's predictions, whatever the number of rows.
  std::int64_t rows = 0;
  int threads = 0;  ///< kernel threads; 0: the current setting, at most machine_cores()
};

/// A saved model that computes predictions.
///
/// Any number of threads may share one object. Its calls run one after the other, each on
/// PredictorOptions::threads threads. For parallel calls, load the model once per thread. A call
/// that throws changes nothing: later calls return what they would have returned without it.
///
/// A process may load a model, fork, and call predict() in its children with device "cpu". With
/// other devices calls in a child throw. fork() waits until no call runs.
class Predictor {
 public:
  /// Loads the model in `folder`. Throws as read_model and load_checkpoint (Io), and as
  /// compile_stage.
  explicit Predictor(const std::string& folder, const PredictorOptions& options = {});
  /// Makes a predictor from a model that was already read (executor/predict/saved_model.h).
  explicit Predictor(SavedModel model, const PredictorOptions& options = {});
  ~Predictor();
  Predictor(const Predictor&) = delete;
  Predictor& operator=(const Predictor&) = delete;

  /// Returns the part of the graph that the fetches need, with its placeholders and fetches.
  const Graph& graph() const;
  /// Returns the number of samples that are computed at once.
  std::int64_t rows() const;

  /// Computes all fetches and returns them by name, as [rows, ...] or [k * rows, ...], where all
  /// fields must have the same number of rows. Runs in evaluation mode: no dropout, and batch norms
  /// use running statistics. The result's at() lists the outputs if a name is unknown.
  /// `fields` must contain exactly the fields of the graph, dense, except
  /// carried ones. Throws InvalidArgument, naming the field, if one is unknown or missing or has
  /// another type or shape.
  NamedArrays predict(const std::map<std::string, ArrayView>& fields);

  /// Feeds an output back: from this call on, `field` is not passed to predict(), but takes the
  /// value of `output` from the previous call, or zeros in the first call. The output is no longer
  /// returned. Use it for models with a state, such as the keys and values of earlier tokens. All
  /// calls must then have the same number of rows, at most rows(). Throws InvalidArgument if there
  /// is no such output or field, if their types differ, or if the field is already carried.
  void carry(const std::string& output, const std::string& field);
  /// As carry(), for a field [B, places, ...] that an output [B, N, ...] extends in place. Each
  /// call appends its output along axis 1 after those of earlier calls, starting at 0; unused
  /// entries are zeros. A call for which no space is left throws InvalidArgument. Other shapes
  /// throw InvalidArgument as well.
  void keep(const std::string& output, const std::string& field);
  /// Copies the values of carried and kept fields from the fields of the same names in `other`.
  /// Throws InvalidArgument unless `other` carries the same fields with the same types, and if
  /// `other` is this object.
  void take(const Predictor& other);
  /// Resets carried and kept fields to zeros. The number of rows may then change.
  void reset();

 private:
  NamedArrays predict_alone(const std::map<std::string, ArrayView>& fields);

  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
