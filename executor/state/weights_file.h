// Export and import of weights between checkpoints and safetensors files with the names of Hugging
// Face's `bert-*` and torchvision's `resnet*` models. Hetu's parameters and buffers have the same
// names. The differences are old spellings, tensors that occur twice in a file, and counts, which
// are int64 in files.
#pragma once
#include <list>
#include <string>
#include <vector>

#include "base/progress_line.h"
#include "executor/state/safetensors.h"

namespace hetu {

/// Reads the weights of a file, or of the files of a sharded model, one by one, under the names of
/// parameters and buffers. Supports float32, float16 and bfloat16, counts in int64, and LayerNorm's
/// old names gamma and beta. Tensors of other dtypes may be present, but can't be read.
class WeightReader {
 public:
  /// A tensor of a file, under its name in Hetu.
  struct Entry {
    std::string name;  ///< name of the parameter or buffer; several tensors may have the same
    const TensorEntry* tensor;
    const SafetensorsFile* file;
    /// Returns true if the dtype is one of weights. Other tensors can't be read.
    bool is_weight() const;
  };

  /// Opens a file, an index or a folder, as find_weight_shards. Throws Io as find_weight_shards and
  /// SafetensorsFile do, and if the index and the files name different tensors.
  explicit WeightReader(const std::string& path);
  WeightReader(const WeightReader&) = delete;
  WeightReader& operator=(const WeightReader&) = delete;
  /// Returns the entries in the order of the files, without position_ids (0, 1, 2 …), which old
  /// versions stored.
  const std::vector<Entry>& entries() const { return entries_; }
  /// Reads a tensor as float32. Throws Io for an unsupported dtype, and for a count that float32
  /// can't represent.
  std::vector<float> read(const Entry& entry) const;
  const std::string& path() const { return path_; }
  int positions() const { return positions_; }  ///< number of tensors called position_ids

 private:
  std::string path_;
  std::list<SafetensorsFile> files_;
  std::vector<Entry> entries_;
  int positions_ = 0;
};

/// The result of import_weights.
struct Imported {
  std::string folder;  ///< folder of the checkpoint that was created
  int tensors = 0;
  int dropped = 0;  ///< tensors that repeat others or that models compute themselves
};

/// Writes the weights of the newest checkpoint in `folder` to one file, as a temporary file that is
/// renamed. Tensors are float32, except the counts of batch norms (*.num_batches_tracked), which
/// are int64. The bias of the decoder is written under both of its names; a tied decoder has no
/// tensor of its own. `progress` receives the number of tensors. Returns the number of tensors
/// written. Throws Io.
int export_weights(const std::string& folder, const std::string& path,
                   const ReportProgress& progress = {});

/// Makes a checkpoint of step 0 in `folder` from a file, an index or a folder. It holds only
/// weights, so optimizer states start at zero when it is loaded. Accepts what WeightReader accepts,
/// and a tied decoder that is stored as a tensor of its own. Throws Io if a file is not readable,
/// if two tensors for one parameter differ, or for an unsupported dtype. Throws InvalidArgument if
/// the folder already holds a checkpoint. `progress` receives the number of tensors that were read.
Imported import_weights(const std::string& path, const std::string& folder,
                        const ReportProgress& progress = {});

}  // namespace hetu
