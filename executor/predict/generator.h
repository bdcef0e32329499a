// Continues rows of tokens with a saved model that predicts the next token, in one process. Given
// tokens are processed several at a time, then tokens are generated one by one. Keys and values of
// earlier tokens stay on the model's device.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "executor/predict/array.h"
#include "executor/predict/predictor.h"

namespace hetu {

/// Options of Generator::generate.
struct GenerateOptions {
  std::int64_t tokens = 1;  ///< number of tokens to append to each row
  /// 0 selects the likeliest token, the first of equally likely ones. Otherwise each token is
  /// sampled from softmax(logits / temperature).
  double temperature = 0;
  std::uint64_t seed = 0;  ///< seed of the sampling
};

/// A saved model that continues texts. Any number of threads may share one object; its calls run
/// one after the other. A call that throws changes nothing. Forked children may call it, as with
/// Predictor.
class Generator {
 public:
  /// Loads a model written by Python's save_generator. Throws Io and InvalidArgument as Predictor
  /// does, and InvalidArgument if the folder holds another kind of model.
  explicit Generator(const std::string& folder, const PredictorOptions& options = {});
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  /// Returns the largest number of tokens in a row, including the given ones.
  std::int64_t length() const;
  /// Returns the number of given tokens of a row that are processed at a time; 1 if one by one.
  std::int64_t prompt() const;
  /// Returns the size of the vocabulary: valid ids are 0 <= id < words().
  std::int64_t words() const;

  /// Continues `ids`, int32 [rows, T], and returns int32 [rows, T + tokens], which begins with
  /// `ids`. Throws InvalidArgument for ids of another type or shape, ids out of range, rows longer
  /// than length() in total, and logits that are NaN.
  Array generate(const ArrayView& ids, const GenerateOptions& options);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
