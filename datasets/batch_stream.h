// A sequence of batches that a training job reads, one per step. Loader (loader.h) is the sequence
// of a data set's batches.
#pragma once
#include <vector>

#include "datasets/batch.h"

namespace hetu {

/// A sequence of batches. Only one thread may call it at a time.
class BatchStream {
 public:
  virtual ~BatchStream() = default;

  /// Fills `batch` with the rows of the next step, and reuses the buffers that `batch` held.
  virtual void next(Batch& batch) = 0;

  /// Returns the batch that next() will return, or nullptr if it isn't known yet. The pointer is
  /// valid until next() or a function that moves the position.
  virtual const Batch* ahead() { return nullptr; }

  /// Reads the next batch now, where that is possible, so that ahead() knows it.
  virtual void prepare() {}

  /// Remembers the position. return_to_mark() goes back to it, so that next() reads those batches
  /// again.
  virtual void mark() {}
  virtual void return_to_mark() {}

  /// Returns the fields of a batch, with the shape of one row. Empty: they are known only from the
  /// batches.
  virtual const std::vector<Field>& fields() const {
    static const std::vector<Field> none;
    return none;
  }
};

}  // namespace hetu
