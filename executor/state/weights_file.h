// Weights out of checkpoints and into them, as safetensors files with the names that Hugging Face's
// `bert-*` and torchvision's `resnet*` models have. Parameters and buffers are called so already;
// what differs is old spellings, tensors that stand in a file twice, and counts, which are int64
// there.
#pragma once
#include <list>
#include <string>
#include <vector>

#include "executor/state/safetensors.h"

namespace hetu {

/// The weights of a file, or of the files of a sharded model: what they hold under the names of
/// parameters and buffers, read one by one. Takes float32, float16 and bfloat16, counts in int64,
/// and LayerNorm's old names gamma and beta. Tensors of other dtypes may be there, but not be read.
class WeightReader {
 public:
  struct Entry {
    std::string name;  ///< of the parameter or buffer; several tensors may be the same
    const TensorEntry* tensor;
    const SafetensorsFile* file;
    /// True if the dtype is one of weights. A tensor that isn't, can't be read.
    bool is_weight() const;
  };

  /// `path` is a file, an index of several or a folder, as find_weight_shards takes them. Throws
  /// Io, as that and SafetensorsFile do; also if index and files differ in the tensors that they
  /// name.
  explicit WeightReader(const std::string& path);
  WeightReader(const WeightReader&) = delete;
  WeightReader& operator=(const WeightReader&) = delete;
  /// In the order of the files, without position_ids, which old versions kept: 0, 1, 2 …
  const std::vector<Entry>& entries() const { return entries_; }
  /// Throws Io: another dtype, a count that float32 does not hold.
  std::vector<float> read(const Entry& entry) const;
  const std::string& path() const { return path_; }
  int positions() const { return positions_; }  ///< tensors called position_ids

 private:
  std::string path_;
  std::list<SafetensorsFile> files_;
  std::vector<Entry> entries_;
  int positions_ = 0;
};

/// What import_weights did.
struct Imported {
  std::string folder;  ///< the checkpoint that was made
  int tensors = 0;
  int dropped = 0;  ///< tensors of the file that repeat others, and what models compute themselves
};

/// Writes the weights of the newest checkpoint of `folder` to one file, float32 but for the counts
/// of batch norms (*.num_batches_tracked, int64), beside and renamed. The bias of the decoder goes
/// under both of its names; a tied decoder has no tensor of its own. Returns how many tensors were
/// written. Throws Io.
int export_weights(const std::string& folder, const std::string& path);

/// Makes a checkpoint of step 0 in `folder` from a file, an index or a folder: weights alone, so
/// optimizer states start at zero when it is loaded. Takes what a WeightReader does, and a tied
/// decoder written out. Throws Io: not readable, two tensors for one parameter that differ, another
/// dtype; InvalidArgument if the folder holds a checkpoint already.
Imported import_weights(const std::string& path, const std::string& folder);

}  // namespace hetu
