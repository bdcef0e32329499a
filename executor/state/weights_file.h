// Weights out of checkpoints and into them, as safetensors files with the names that Hugging Face's
// `bert-*` and torchvision's `resnet*` models have. Parameters and buffers are called so already;
// what differs is old spellings, tensors that stand in a file twice, and counts, which are int64
// there.
#pragma once
#include <string>

namespace hetu {

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
/// at zero when it is loaded. Takes float32, float16 and bfloat16, counts in int64, LayerNorm's old
/// names gamma and beta, and files with position_ids or with the tied decoder written out. Throws
/// Io: not readable, two tensors for one parameter that differ, another dtype; InvalidArgument if
/// the folder holds a checkpoint already.
Imported import_weights(const std::string& path, const std::string& folder);

}  // namespace hetu
