// Batches for training: the one place where samples are cut into steps, pipelines and epochs. A
// RowSource (source.h) says what the rows are; a Loader hands a worker its pipeline's slice of each
// global batch. Read by executor/.
//
// The rule. An epoch is one order of all rows, the same in every worker. Step t of an epoch takes
// the rows [t*G, (t+1)*G) of it, where G = pipelines * batch_size is the global batch; pipeline d
// takes the d-th batch_size of them. Rows beyond the last whole global batch of an epoch are
// dropped (dropped_per_epoch()), unless a loader is to give every row once. So the rows of a step
// depend on G alone, and a run can be resumed under another number of pipelines with the same G.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "datasets/batch.h"

namespace hetu {

class RowSource;
class SpareColumns;

/// A place in the global order: what a checkpoint stores. The same in all workers.
struct Position {
  std::int64_t epoch = 0;
  std::int64_t index = 0;  ///< rows of this epoch that are done; a multiple of the global batch
  std::int64_t global_batch = 0;  ///< pipelines * batch_size that this epoch is divided by
  std::string order;              ///< RowSource::order(): rows, seed and the like, as text
};

struct LoaderOptions {
  int pipelines = 1;            ///< columns of the device grid, >= 1
  int pipeline = 0;             ///< this worker's column
  std::int64_t batch_size = 1;  ///< rows per pipeline and step
  /// The fields to read; nothing else is read from disk. Empty: all.
  std::vector<std::string> fields;
  /// Batches read ahead by a thread of the loader; 0 reads within next(), on the caller's thread.
  int prefetch = 4;
  /// One epoch, all of its rows: the last global batch may be short, so that its pipelines have
  /// fewer rows or none, and batches of no rows follow it.
  bool every_row_once = false;
};

/// Hands out batches without end, epoch after epoch. One caller at a time.
class Loader {
 public:
  /// Throws InvalidArgument if the options do not fit each other or the source: an unknown field, a
  /// pipeline outside [0, pipelines), fewer rows in an epoch than one global batch. Reads nothing
  /// yet.
  Loader(std::unique_ptr<RowSource> source, LoaderOptions options);
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Fills `batch` with this pipeline's rows of the next step, and takes the buffers it held before
  /// for reuse. Rethrows what the source threw while reading ahead (Io for damaged files,
  /// InvalidArgument for ids out of range).
  void next(Batch& batch);

  /// For callers who give a batch's columns away: next() of a batch that was taken from here reads
  /// into what was handed back. By the index in fields().
  const std::shared_ptr<SpareColumns>& spare() const;

  /// The batch that the next call of next() gives, if it has been read already; nullptr else. It
  /// holds until then.
  const Batch* ahead();

  /// Reads that batch now, on the caller's thread, unless the loader has a thread that does, or the
  /// source is not to be read early. What the source throws next() throws.
  void prepare();

  /// Where the next batch starts, not counting what was read ahead.
  Position position() const;

  /// Goes on from a saved position. Throws InvalidArgument, with both numbers, if the global batch
  /// or the order (rows, seed) is not that of the run that saved it.
  void seek(const Position& position);

  /// From epoch `epoch` on, which this loader has not begun, the rows are those of another
  /// division: `pipelines` slices, of which this worker takes `pipeline`. For a job that has lost a
  /// pipeline; if all that are left name one epoch, each of its rows is read once again. A source
  /// that does not know its rows (a stream of global batches) keeps its slices. Throws
  /// InvalidArgument.
  void divide(std::int64_t epoch, int pipelines, int pipeline);

  /// Goes to step `step` of the run, counting from the first batch of epoch 0. Only for sources
  /// that know their rows.
  void seek_step(std::int64_t step);

  /// Whole global batches in an epoch; -1 if the source does not know before it ends.
  std::int64_t batches_per_epoch() const;

  /// Rows of an epoch that no step takes, because they do not fill a global batch; -1 if not known.
  std::int64_t dropped_per_epoch() const;

  /// Rows read so far, read ahead too, whose data were no good and were replaced, by the rule that
  /// the source states.
  std::int64_t skipped_rows() const;

  /// The fields of a batch, in order, with the shape of one row.
  const std::vector<Field>& fields() const;

  std::int64_t global_batch() const;

  /// See LoaderOptions.
  bool gives_every_row_once() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace hetu
