// Checkpoints: a folder per saved step with one safetensors file per stage and a manifest with
// checksums. A save writes a hidden folder, syncs it and renames it, so that a kill at any moment
// leaves the previous checkpoint whole. Checkpoints can be read under any number of stages.
//
//   DIR/step-00000200/manifest.json
//   DIR/step-00000200/stage-0.safetensors …
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "executor/state/safetensors.h"
#include "executor/state/state_tensor.h"
#include "net/transport/transport.h"

namespace hetu {

/// A tensor of a checkpoint, with the slice of the whole parameter that it holds. Slices always
/// cover the whole parameter.
struct CheckpointTensor {
  std::string name;   ///< name of the parameter
  std::string state;  ///< name of the optimizer state; "" for the weight
  std::string file;
  DType dtype = DType::Float32;  ///< dtype in the file
  std::string foreign = {};  ///< as in TensorEntry: a dtype of PyTorch that Hetu doesn't support
  Shape shape;               ///< shape of the whole parameter
  std::vector<std::int64_t> slice_begin;
  std::vector<std::int64_t> slice_end;
  std::string crc;

  std::int64_t bytes() const;  ///< size in the file
  /// Returns the dtype's name for messages: "float32", or the format's name of an unsupported
  /// dtype.
  std::string dtype_text() const;
};

/// The contents of a manifest.
struct Manifest {
  std::string folder;  ///< folder of this step
  std::string crc;     ///< checksum of the manifest itself
  std::int64_t step = 0;
  /// Facts that the saver records: loader position, seed, method, sizes, optimizer.
  std::string run_json = "{}";
  bool weights_only = false;              ///< imported weights: optimizer states start at zero
  std::vector<CheckpointTensor> tensors;  ///< sorted by name, then state

  /// Returns the tensor of this name and state, or nullptr.
  const CheckpointTensor* find(const std::string& name, const std::string& state) const;
};

/// Returns the folders of complete checkpoints in `folder`, by ascending step; empty if the folder
/// is empty or missing. Throws Io if it is not a folder.
std::vector<std::string> list_checkpoints(const std::string& folder);

/// Reads and checks a manifest. `folder` is the folder of one step, or a folder that holds steps,
/// of which the highest is taken. Throws Io.
Manifest read_manifest(const std::string& folder);

/// Reads one float32 or bfloat16 tensor into `to` (element_count(shape) floats) and compares its
/// checksum. Throws Io, naming file and tensor, also for another dtype.
void read_tensor(const Manifest& manifest, const CheckpointTensor& tensor, float* to);

/// As above, in chunks of whole rows. `take` receives the index of the chunk's first element, the
/// number of elements, and the data. A wrong checksum is detected after the last chunk.
using TakePiece = std::function<void(std::int64_t begin, std::int64_t elements, const float* data)>;
void read_tensor_pieces(const Manifest& manifest, const CheckpointTensor& tensor,
                        const TakePiece& take);

/// Reads the bytes of tensors of any dtype. Keeps the files of the checkpoint open, so that many
/// tensors are read without parsing a header for each of them.
class CheckpointReader {
 public:
  /// Reads the manifest, as read_manifest does.
  explicit CheckpointReader(const std::string& folder) : manifest_(read_manifest(folder)) {}
  CheckpointReader(const CheckpointReader&) = delete;
  CheckpointReader& operator=(const CheckpointReader&) = delete;
  const Manifest& manifest() const { return manifest_; }
  /// Reads a tensor of the manifest into `to` (tensor.bytes() bytes) and compares its checksum.
  /// Throws Io, naming file and tensor.
  void read(const CheckpointTensor& tensor, void* to);

 private:
  Manifest manifest_;
  std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
};

/// A tensor of any dtype as bytes, as hetu.torch saves it.
struct RawTensor {
  std::string name;   ///< name of the parameter
  std::string state;  ///< name of the optimizer state; "" for the weight
  DType dtype = DType::Float32;
  std::string foreign = {};  ///< as in TensorEntry
  Shape shape;
  /// Passes all bytes in order to `take`, chunk by chunk. Called once, while the file is written.
  std::function<void(const TensorSource::Take& take)> pieces;
};

/// A file that a worker contributes to a save.
struct SavePart {
  std::string file;                  ///< e.g. "stage-0.safetensors"
  std::vector<StateTensor> tensors;  ///< written in this order
  std::string text = {};             ///< if not empty, the whole contents of the file
  std::vector<RawTensor> raw = {};   ///< written after `tensors`
};

/// The target of a save, and the treatment of steps that the folder holds already.
///
/// A training keeps the `keep` highest steps and resumes from the highest one. A model has no
/// history: a save replaces the existing model, whatever its step.
struct SavePlace {
  std::string folder;
  int keep = 1;  ///< number of highest steps to keep, for a training
  /// Distinguishes the workers that save, if others may save the same step shortly before they are
  /// lost.
  std::string saver = "";
  /// Empty for a checkpoint of a training. For a model, the name of a file that each saved model
  /// has. A folder that holds a step without that file is rejected, because the step belongs to a
  /// training.
  std::string model_file = "";
  /// Name of the job, whose processes may save one after another (see FolderLock).
  std::string job = "";
};

/// Saves one step. Collective: every worker calls it. If any worker fails (because of a full disk,
/// for example), all workers throw the same Io error, and the previous contents are unchanged. The
/// folder is locked during the save, which fails if another job saves there. A kill at any moment
/// leaves either the old state or the new one.
void save_checkpoint(const SavePlace& place, std::int64_t step, const std::string& run_json,
                     const std::vector<SavePart>& parts, comm::Transport& transport);

/// Returns the run_json of a checkpoint that holds only weights, imported from `source`.
std::string weights_only_run(const std::string& source);

/// Throws Io if the checkpoint holds a parameter that is not among the model's `parameters`, naming
/// the parameter.
void check_parameter_names(const Manifest& manifest, const std::vector<std::string>& parameters);

/// Fills a worker's tensors from a checkpoint, converting dtypes where they differ (see DeviceSpan
/// for rounding). If the checkpoint holds only weights, optimizer states become zero. Throws Io for
/// a tensor that is missing, has another shape (both are named) or is damaged.
void load_checkpoint(const Manifest& manifest, const std::vector<StateTensor>& tensors);

}  // namespace hetu
