// Where rows come from. Implement RowSource, or wrap a function in one of the sources here; Loader
// (loader.h) does sharding, epochs, resuming and reading ahead for all of them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/batch.h"

namespace hetu {

/// An ordered set of rows per epoch. Used by one thread at a time, which need not be the one that
/// made it.
class RowSource {
 public:
  static constexpr std::int64_t kUnknown = -1;

  virtual ~RowSource() = default;

  /// Every column, in a fixed order.
  virtual const std::vector<Field>& fields() const = 0;

  /// Rows in each epoch, or kUnknown.
  virtual std::int64_t rows() const = 0;

  /// What fixes the order of the rows, as text, such as "bert_hdf5 files 4 rows 20000 window 4096
  /// seed 0". A saved position is refused where this differs.
  virtual std::string order() const = 0;

  /// True if the rows of an epoch are a function of order() alone, so that every process which
  /// reads them gets the same. Else (default: what a user's function gives may depend on anything)
  /// one worker reads for all of a job; see executor/job/shared_samples.h.
  virtual bool same_everywhere() const;

  /// True if it may be read before it is wanted: nobody else waits for it, nor it for anybody, and
  /// its owner does not mind. Default: true.
  virtual bool may_be_early() const;

  /// Only these columns will be asked for from now on; the others need not be read. Default: does
  /// nothing.
  virtual void select(const std::vector<Field>& fields);

  /// True if epoch `epoch` has a row number `row`. Default: row < rows().
  virtual bool has(std::int64_t epoch, std::int64_t row);

  /// How many of the rows [first, first + most) epoch `epoch` has; `first` is the start of a global
  /// batch of `most`. Default: by rows(), or, where that is unknown, all if it has the last one.
  virtual std::int64_t rows_from(std::int64_t epoch, std::int64_t first, std::int64_t most);

  /// Rows read so far whose data were no good and were replaced, by a rule of the source. Default:
  /// 0. May be asked by any thread.
  virtual std::int64_t skipped_rows() const;

  /// Writes the rows [batch.first, batch.first + batch.rows) of epoch batch.epoch into the fields
  /// of `batch`, which have their size already. Called with ascending rows, except after a seek.
  /// The rows exist (has()). It keeps names, types, shapes and sizes of the fields, which the
  /// loader checks (InvalidArgument).
  virtual void read(Batch& batch) = 0;
};

/// A user's own data with a known number of rows: `read` is called as RowSource::read, with the
/// epoch in the batch, so that it may use another order in each. It fills the fields that the batch
/// has, which are those of `fields` that the model reads, and no others. In a job of several
/// workers one of them calls it, with the rows of all pipelines, and sends each what it reads;
/// where `same_everywhere` says that rows depend on epoch and number alone, each worker calls it,
/// with its own pipeline's rows and the fields of its own stages. `name` should change when the
/// data or their order do.
struct CallbackSource {
  std::string name;
  std::vector<Field> fields;
  std::int64_t rows = 0;
  std::function<void(Batch&)> read;
  bool same_everywhere = false;
};
std::unique_ptr<RowSource> callback_source(CallbackSource callback);

/// A user's own stream of whole global batches (a Python iterable, say): item t of an epoch is the
/// global batch of its step t. `item` fills a batch and returns true, or returns false at the end
/// of the epoch; it is asked for items in ascending order, except after a seek. In a job of
/// several workers one of them asks, and sends each its slice. An item with fewer rows than the
/// global batch is dropped if it is the epoch's last, else refused (InvalidArgument); a loader that
/// gives every row once takes it.
struct StreamSource {
  std::string name;
  std::vector<Field> fields;
  std::int64_t global_batch = 0;
  std::function<bool(std::int64_t epoch, std::int64_t item, Batch& whole)> item;
  bool may_be_early = true;  ///< an item depends on nothing that a step before it does
};
std::unique_ptr<RowSource> stream_source(StreamSource stream);

/// A column of drawn numbers in [low, high): whole ones for integer types.
struct DrawnField {
  Field field;
  double low = 0;
  double high = 1;
};

/// Drawn rows: each number is a pure function of seed, column, row and place within the row; epochs
/// repeat. Types float32, int32, int64, int8 and bool.
std::unique_ptr<RowSource> synthetic_source(std::vector<DrawnField> columns, std::int64_t rows,
                                            std::uint64_t seed);

}  // namespace hetu
