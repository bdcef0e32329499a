// Samples that one worker reads for all. A user's own data source may return different rows in
// every process (if it samples without a seed, for example), but all fields of a sample must belong
// together. Used by executor.h and Python.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "datasets/loader.h"
#include "datasets/source.h"
#include "net/transport/transport.h"

namespace hetu {

class Job;

/// The readers of one set of samples, and the fields that each of them reads.
struct ReaderSet {
  struct Reader {
    int worker = 0;
    int pipeline = 0;
    int stage = 0;  ///< lowest stage of the worker
    std::vector<std::string> fields;
  };
  comm::Transport* links = nullptr;
  std::vector<Reader> readers;  ///< the first one reads the source
  int me = -1;                  ///< index of this worker among the readers; -1: it reads nothing
  int channel = 0;              ///< number that distinguishes the messages of this set
  bool one_pipeline = false;    ///< all readers take the slice of one pipeline
};

/// The readers of a job. The constructor is collective: every worker of the transport constructs
/// the object at the same time, and calls the same functions in the same order.
class Readers {
 public:
  /// `single`: fields that the single process of CompareSingle reads on this worker; empty
  /// elsewhere.
  explicit Readers(const Job& job, const std::vector<std::string>& single = {});

  /// Returns the readers of a set that is opened now. `apart`: each pipeline reads its own samples,
  /// at its own pace. `compared`: the single process also reads the set, each pipeline's slice
  /// through single(). `fields`: fields that the runs read, of which each worker takes those of its
  /// stages; empty means all.
  ReaderSet open(bool apart, bool compared = false, const std::vector<std::string>& fields = {});
  /// Returns `compared` with this worker's reader of the single process for `pipeline` selected.
  ReaderSet single(ReaderSet compared, int pipeline) const;

  /// Checks that all reading workers opened the same data in the same order. Collective: every
  /// worker calls it with its loader, or with nullptr if it reads nothing. Compares order(), not
  /// the rows, because a user's function may choose rows at random. Throws InvalidArgument on every
  /// worker, naming two workers that differ.
  void check_same(const Loader* loader) const;

 private:
  comm::Transport& links_;
  int pipeline_ = 0;
  std::vector<ReaderSet::Reader> readers_;
  int opened_ = 0;
};

/// Returns the loader of one reader; null if this worker reads nothing. `options` are the loader
/// options for a single reader.
///
/// If samples are the same in every process, or there is only one reader, the loader reads them
/// itself. Otherwise the first reader reads each sample once with all its fields, before its first
/// forward of a step. It sends the other readers their fields, and warns if pipelines get the same
/// samples. Every reader makes its own loader and requests the same batches. The transport must
/// outlive the loader.
std::unique_ptr<Loader> open_loader(std::unique_ptr<RowSource> data, LoaderOptions options,
                                    const ReaderSet& set);

}  // namespace hetu
