// Batches for training. This is the only place that cuts samples into steps, pipelines and epochs:
// a RowSource (source.h) provides the rows, and a Loader returns its pipeline's slice of each
// global batch. Used by executor/.
//
// The rule: an epoch is one order of all rows, the same in every worker. Step t of an epoch takes
// the rows [t*G, (t+1)*G) of that order, where G = pipelines * batch_size is the global batch.
// Pipeline d takes the d-th batch_size of them. Rows beyond the last whole global batch of an epoch
// are dropped (dropped_per_epoch()), unless the loader is set to return every row once. So the rows
// of a step depend on G alone, and a run can be resumed with another number of pipelines and the
// same G.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datasets/batch_stream.h"

namespace hetu {

class RowSource;
class SpareColumns;

/// A position in the global order, as stored in a checkpoint. It is the same in all workers.
struct Position {
  std::int64_t epoch = 0;
  std::int64_t index = 0;  ///< rows of this epoch that are done; a multiple of the global batch
  std::int64_t global_batch = 0;  ///< pipelines * batch_size, by which this epoch is divided
  std::string order;              ///< RowSource::order(): rows, seed and so on, as text
};

/// The options of a Loader.
struct LoaderOptions {
  int pipelines = 1;            ///< number of pipelines (columns of the device grid), >= 1
  int pipeline = 0;             ///< this worker's pipeline, from 0
  std::int64_t batch_size = 1;  ///< rows per pipeline and step
  /// The fields to read. Other fields are not read from disk. Empty: all fields.
  std::vector<std::string> fields;
  /// Batches that the loader's own thread reads ahead. 0 reads within next(), on the caller's
  /// thread.
  int prefetch = 4;
  /// Reads one epoch with all of its rows. The last global batch may be short, so that pipelines
  /// get fewer rows or none. Batches of 0 rows follow it.
  bool every_row_once = false;
  /// Rows of each pipeline per step, if they differ; batch_size is then this pipeline's number.
  /// Empty: batch_size for each.
  std::vector<std::int64_t> shares = {};

  /// Returns the rows of a pipeline per step, the rows of all pipelines before it, and all rows.
  std::int64_t rows_of(int of) const;
  std::int64_t rows_before(int of) const;
  std::int64_t global_rows() const { return rows_before(pipelines); }
  /// Returns the division for messages: "2 pipelines x 8", or "6 + 6 + 4".
  std::string division() const;
};

/// An endless sequence of batches, epoch after epoch. Only one thread may call it at a time.
class Loader final : public BatchStream {
 public:
  /// Checks the options and reads no rows. Throws InvalidArgument for a null source, an unknown
  /// field, a pipeline outside [0, pipelines), and fewer rows in an epoch than one global batch
  /// (unless every_row_once).
  Loader(std::unique_ptr<RowSource> source, LoaderOptions options);
  ~Loader() override;
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Fills `batch` with this pipeline's rows of the next step, and reuses the buffers that `batch`
  /// held. Rethrows errors of the source, also those from reading ahead (Io for damaged files,
  /// InvalidArgument for ids out of range).
  void next(Batch& batch) override;

  /// Returns the pool of column buffers, for callers that give a batch's columns away. A batch
  /// taken from the pool and passed to next() reuses buffers that were handed back. Indices are
  /// those of fields().
  const std::shared_ptr<SpareColumns>& spare() const;

  /// Returns nullptr until the next batch has been read.
  const Batch* ahead() override;

  /// Reads the next batch on the caller's thread. Does nothing if the loader has a reading thread,
  /// if a batch is ready, or if the source doesn't allow early reading. next() rethrows the
  /// source's errors.
  void prepare() override;

  /// Returns the start of the next batch, not counting batches that were read ahead.
  Position position() const;

  void mark() override { marked_ = position(); }
  void return_to_mark() override { seek(marked_); }

  /// Continues from a saved position. Throws InvalidArgument, with both values, if the global batch
  /// or the order (rows, seed) differs from that of the run that saved it.
  void seek(const Position& position);

  /// Divides the rows from epoch `epoch` on into `pipelines` slices, of which this worker takes
  /// `pipeline`. The loader must not have begun that epoch. For a job that has lost a pipeline: if
  /// all remaining workers name the same epoch, each of its rows is read exactly once. A source
  /// with an unknown number of rows (a stream of global batches) keeps its slices. Throws
  /// InvalidArgument.
  void divide(std::int64_t epoch, int pipelines, int pipeline);

  /// Moves to step `step` of the run, counted from the first batch of epoch 0. Throws
  /// InvalidArgument for sources with an unknown number of rows.
  void seek_step(std::int64_t step);

  /// Returns the whole global batches per epoch, or -1 if the source doesn't know its number of
  /// rows.
  std::int64_t batches_per_epoch() const;

  /// Returns the rows per epoch that don't fill a global batch and are dropped, or -1 if unknown.
  std::int64_t dropped_per_epoch() const;

  /// Returns the number of rows read so far, including those read ahead, that were damaged and
  /// replaced. The source defines the replacement.
  std::int64_t skipped_rows() const;

  /// Returns the fields of a batch, in order, with the shape of one row.
  const std::vector<Field>& fields() const override;

  std::int64_t global_batch() const;

  /// Returns LoaderOptions::every_row_once.
  bool gives_every_row_once() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  Position marked_;
};

}  // namespace hetu
