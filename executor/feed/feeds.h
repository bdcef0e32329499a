// The batches of a worker's stages: from a data set's sequence, or one that the caller gives. The
// loop begins each batch before the first forward of its step.
#pragma once
#include <cstdint>
#include <string>

#include "datasets/batch_stream.h"
#include "executor/stage/train_stages.h"
#include "executor/sync/server_tables.h"

namespace hetu {

/// Gives the fields of each step's batch to the stages of one worker, and uploads the fields of the
/// next batch to the device while the current one computes.
class Feeds {
 public:
  /// `tables`: this worker's tables on servers; null if it has none. `batch_size`: rows of this
  /// pipeline in a step. Stages and tables must outlive the object.
  Feeds(TrainStages& stages, ServerTables* tables, std::int64_t batch_size);

  /// Scope guard of one call of a job. While it exists, steps read one batch, or the batches of a
  /// sequence. Its destructor waits until no upload reads the batches' memory, also after an
  /// exception.
  class Reading {
   public:
    Reading(Feeds& feeds, const Batch& batch) : feeds_(feeds) { feeds_.given_ = &batch; }
    /// `stream`: null if this worker reads no field.
    Reading(Feeds& feeds, BatchStream* stream) : feeds_(feeds) { feeds_.stream_ = stream; }
    ~Reading();
    Reading(const Reading&) = delete;
    Reading& operator=(const Reading&) = delete;

   private:
    Feeds& feeds_;
  };

  /// Begins the batches of all steps up to `step` that have not begun, where 0 is the first step of
  /// the run. Throws InvalidArgument if a field is missing or has another length than the stages
  /// read, and the errors of the sequence.
  void begin(int step);

  /// Reads the next batch of the sequence if it can be read early, and uploads its fields. The loop
  /// calls it when all other work of a step has been given to the device. Fields that tables on
  /// servers read are not uploaded, because their ids are renumbered when their step begins.
  void upload_next();

 private:
  void feed(const Batch& batch);
  const Batch* ahead() const { return stream_ != nullptr ? stream_->ahead() : nullptr; }

  TrainStages& stages_;
  ServerTables* const tables_;
  const std::int64_t batch_size_;
  const Batch* given_ = nullptr;
  BatchStream* stream_ = nullptr;
  Batch batch_;  // the batch of the sequence that was read last
};

}  // namespace hetu
