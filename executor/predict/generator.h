// Rows of tokens that go on, by a saved model of the next one, in one process: the given ones
// several at a time, then one by one; keys and values of those before stay where the model
// computes.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "executor/predict/array.h"
#include "executor/predict/predictor.h"

namespace hetu {

struct GenerateOptions {
  std::int64_t tokens = 1;  ///< that each row goes on by
  /// 0: each next token is the likeliest, the first of equal ones; else one that is drawn from
  /// softmax(logits / temperature).
  double temperature = 0;
  std::uint64_t seed = 0;  ///< of what is drawn
};

/// A saved model that continues texts. Any number of threads may share one object: its calls run
/// one after the other. A call that throws changes nothing. Forked children may call it, as
/// Predictor.
class Generator {
 public:
  /// What Python's save_generator saved. Throws Io and InvalidArgument as Predictor does, and where
  /// the folder holds another model.
  explicit Generator(const std::string& folder, const PredictorOptions& options = {});
  ~Generator();
  Generator(const Generator&) = delete;
  Generator& operator=(const Generator&) = delete;

  /// The most tokens of a row, given ones included.
  std::int64_t length() const;
  /// Given tokens of a row that are computed at once; 1: one by one.
  std::int64_t prompt() const;
  /// Tokens that the model knows: ids are from 0 to below it.
  std::int64_t words() const;

  /// int32 [rows, T + tokens] of ids int32 [rows, T], these first. Throws
  /// InvalidArgument: ids of another type or shape, out of range, or more than length() in all; a
  /// row whose logits are no numbers.
  Array generate(const ArrayView& ids, const GenerateOptions& options);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
