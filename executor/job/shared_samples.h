// Samples that one worker reads for all: a user's own data may come out differently in every
// process (drawn without a seed, say), and the fields of a sample must not. Used by executor.h and
// Python.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "datasets/loader.h"
#include "datasets/source.h"
#include "net/transport/transport.h"

namespace hetu {

class Trainer;

/// Who reads what of one set of samples.
struct Together {
  struct Reader {
    int worker = 0;
    int pipeline = 0;
    int stage = 0;  ///< its lowest
    std::vector<std::string> fields;
  };
  comm::Transport* links = nullptr;
  std::vector<Reader> readers;  ///< the first one draws
  int me = -1;                  ///< the place of this one among them; -1: it reads nothing
  int channel = 0;              ///< of their messages
  bool one_pipeline = false;    ///< all take the slice of one pipeline
};

/// The readers of a job. They meet here: every worker of the transport makes one, at the same time,
/// and asks the same of it, in the same order.
class Readers {
 public:
  /// `single`: what the one process beside the run reads on this worker, if it is here.
  Readers(const Trainer& trainer, comm::Transport& links,
          const std::vector<std::string>& single = {});

  /// For a set that is opened now. `apart`: each pipeline draws for itself, at its own pace.
  /// `compared`: the one process reads it too, each pipeline's slice through single().
  /// `fields`: those that the runs read, of which each worker takes those of its stages; empty:
  /// all.
  Together open(bool apart, bool compared = false, const std::vector<std::string>& fields = {});
  Together single(Together compared, int pipeline) const;

  /// Checks that all workers that read opened the same data, in the same order. Collective: every
  /// worker calls it, with its loader, or nullptr if it reads nothing. Compares order(),
  /// not the rows, which a user's function may draw at random. Throws InvalidArgument on every
  /// worker, naming two that differ.
  void check_same(const Loader* loader) const;

 private:
  comm::Transport& links_;
  int pipeline_ = 0;
  std::vector<Together::Reader> readers_;
  int opened_ = 0;
};

/// The loader of one reader; null if it reads nothing. `options` are those of a loader by itself.
/// If samples are the same everywhere, or there is one reader, it reads them itself. Else the first
/// reader does, each sample once and all its fields, before its first forward of a step, and sends
/// the others what they read; it warns where pipelines get the same samples. Every reader makes its
/// own, and asks for the same batches. The transport must outlive it.
std::unique_ptr<Loader> open_loader(std::unique_ptr<RowSource> data, LoaderOptions options,
                                    const Together& together);

}  // namespace hetu
