// Weights out of checkpoints and into them, as safetensors files with the names that Hugging Face's
// `bert-*` and torchvision's `resnet*` models have. Parameters and buffers are called so already;
// what differs is old spellings, tensors that stand in a file twice, and counts, which are int64
// there.
#pragma once
#include <string>
#include <vector>

#include "executor/state/safetensors.h"

namespace hetu {

/// A file of weights: what it holds under the names of parameters and buffers, read one by one.
/// Takes float32, float16 and bfloat16, counts in int64, and LayerNorm's old names gamma and beta.
class WeightReader {
 public:
  struct Entry {
    std::string name;  ///< of the parameter or buffer; several tensors may be the same
    const TensorEntry* tensor;
  };

  /// Throws Io, as SafetensorsFile does.
  explicit WeightReader(const std::string& path);
  /// In the order of the file, without position_ids, which old versions kept: 0, 1, 2 …
  const std::vector<Entry>& entries() const { return entries_; }
  /// Throws Io: another dtype, a count that float32 does not hold.
  std::vector<float> read(const Entry& entry) const;
  const std::string& path() const { return file_.path(); }
  int positions() const { return positions_; }  ///< tensors called position_ids

 private:
  SafetensorsFile file_;
  std::vector<Entry> entries_;
  int positions_ = 0;
};

/// What import_weights did.
struct Imported {
  std::string folder;  ///< the checkpoint that was made
  int tensors = 0;
  int dropped = 0;  ///< tensors of the file that repeat others, and buffers
};

/// Writes the weights of the newest checkpoint of `folder` to one file, float32 but for the counts
/// of batch norms (*.num_batches_tracked, int64), beside and renamed. The bias of the decoder goes
/// under both of its names; a tied decoder has no tensor of its own. Returns how many tensors were
/// written. Throws Io.
int export_weights(const std::string& folder, const std::string& path);

/// Makes a checkpoint of step 0 in `folder` from a file: weights alone, so optimizer states start
/// at zero when it is loaded. Takes what a WeightReader does, and a tied decoder written out.
/// Throws Io: not readable, two tensors for one parameter that differ, another dtype;
/// InvalidArgument if the folder holds a checkpoint already.
Imported import_weights(const std::string& path, const std::string& folder);

}  // namespace hetu
