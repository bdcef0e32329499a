// Sources of rows. Implement RowSource, or wrap a function in one of the sources below. Loader
// (loader.h) does the sharding, epochs, resuming and reading ahead for all of them.
//
// The source decides the order of rows; nothing shuffles them afterwards. An epoch takes whole
// global batches from the start of this order. The remaining rows, fewer than a global batch, are
// not read in that epoch. So a source whose order is the same in every epoch never gives its last
// rows. The readers of files draw a new order for each epoch. A function of your own does the same
// with drawn_place (order.h), from Batch::epoch:
//
//   const std::uint64_t key = drawn_bits(seed, batch.epoch);
//   for (std::int64_t r = 0; r < batch.rows; ++r)
//     copy(row drawn_place(batch.first + r, rows, key) of the data, row r of the batch);
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "datasets/batch.h"

namespace hetu {

/// An ordered set of rows per epoch. Used by one thread at a time, which may differ from the thread
/// that created it.
class RowSource {
 public:
  static constexpr std::int64_t kUnknown = -1;

  virtual ~RowSource() = default;

  /// Returns all columns, in a fixed order.
  virtual const std::vector<Field>& fields() const = 0;

  /// Returns the rows per epoch, or kUnknown.
  virtual std::int64_t rows() const = 0;

  /// Returns a text that lists everything that fixes the order of rows, such as "bert_hdf5 files 4
  /// rows 20000 window 4096 seed 0". A saved position is rejected if this text differs.
  virtual std::string order() const = 0;

  /// Returns true if an epoch's rows are a function of order() alone, so that every process that
  /// reads them gets the same rows. If false (the default, because a user's function may depend on
  /// anything), one worker reads for all workers of a job; see executor/job/shared_samples.h.
  virtual bool same_everywhere() const;

  /// Returns true if rows may be read before they are needed: reading depends on no other worker,
  /// no other worker waits for it, and the owner of the data allows it. Default: true.
  virtual bool may_be_early() const;

  /// Announces that from here on only these columns are read, so the others can be skipped.
  /// Default: does nothing.
  virtual void select(const std::vector<Field>& fields);

  /// Returns true if epoch `epoch` has a row number `row`. Default: row < rows().
  virtual bool has(std::int64_t epoch, std::int64_t row);

  /// Returns how many of the rows [first, first + most) exist in epoch `epoch`. `first` is the
  /// start of a global batch of `most` rows. Default: computed from rows(). If rows() is unknown:
  /// `most` if the last of these rows exists, else 0.
  virtual std::int64_t rows_from(std::int64_t epoch, std::int64_t first, std::int64_t most);

  /// Returns the number of rows read so far whose data were damaged and were replaced, by a rule of
  /// the source. Any thread may call it. Default: 0.
  virtual std::int64_t skipped_rows() const;

  /// Writes the rows [batch.first, batch.first + batch.rows) of epoch batch.epoch into the fields
  /// of `batch`, which are already allocated. These rows exist (has()). Calls come in ascending
  /// order of rows, except after a seek. Names, types, shapes and sizes of the fields must stay
  /// unchanged; the loader checks this (InvalidArgument).
  virtual void read(Batch& batch) = 0;
};

/// A user's own data with a known number of rows. `read` is called as RowSource::read. It decides
/// which rows of the data are the rows [batch.first, batch.first + batch.rows) of batch.epoch: see
/// the top of this file. `read` fills the fields of the batch: the subset of `fields` that the
/// model reads.
///
/// In a job of several workers, one of them calls `read` with the rows of all pipelines and sends
/// each worker its part. If `same_everywhere` is true, rows depend only on epoch and row number.
/// Then each worker calls `read` itself, with its own pipeline's rows and the fields of its own
/// stages. Change `name` whenever the data or their order change.
struct CallbackSource {
  std::string name;
  std::vector<Field> fields;
  std::int64_t rows = 0;
  std::function<void(Batch&)> read;
  bool same_everywhere = false;
};
std::unique_ptr<RowSource> callback_source(CallbackSource callback);

/// A user's own stream of whole global batches, for example a Python iterable. Item t of an epoch
/// is the global batch of step t. `item` fills a batch and returns true, or returns false at the
/// end of the epoch. Items are requested in ascending order, except after a seek.
///
/// In a job of several workers, one of them requests the items and sends each worker its slice. An
/// epoch's last item may have fewer rows than the global batch: it is dropped, unless the loader
/// returns every row once. Any other item of a different size is rejected (InvalidArgument).
struct StreamSource {
  std::string name;
  std::vector<Field> fields;
  std::int64_t global_batch = 0;
  std::function<bool(std::int64_t epoch, std::int64_t item, Batch& whole)> item;
  bool may_be_early = true;  ///< true: an item doesn't depend on the steps before it
};
std::unique_ptr<RowSource> stream_source(StreamSource stream);

/// A column of random numbers in [low, high). Integer types get integers.
struct DrawnField {
  Field field;
  double low = 0;
  double high = 1;
};

/// Returns random rows. Each number is a pure function of seed, column, row and position within the
/// row. All epochs are equal. Supports the types float32, int32, int64, int8 and bool.
std::unique_ptr<RowSource> synthetic_source(std::vector<DrawnField> columns, std::int64_t rows,
                                            std::uint64_t seed);

}  // namespace hetu
