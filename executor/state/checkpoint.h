// Checkpoints: a folder per saved step with one safetensors file per stage and a manifest with
// checksums. Written beside, synced and renamed, so that a kill at any moment leaves the previous
// one whole; read under any number of stages.
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

/// A tensor of a checkpoint, with the slice of the whole parameter that it holds (all of it,
/// today).
struct CheckpointTensor {
  std::string name;   ///< parameter
  std::string state;  ///< "" for the weight
  std::string file;
  DType dtype = DType::Float32;  ///< in the file
  std::string foreign = {};      ///< as in TensorEntry: a dtype of PyTorch that Hetu doesn't have
  Shape shape;                   ///< of the whole parameter
  std::vector<std::int64_t> slice_begin;
  std::vector<std::int64_t> slice_end;
  std::string crc;

  std::int64_t bytes() const;  ///< size in the file
  /// The dtype's name, for people: "float32", or the format's name of a foreign one.
  std::string dtype_text() const;
};

/// What a manifest says.
struct Manifest {
  std::string folder;  ///< of this step
  std::string crc;     ///< checksum of the manifest itself
  std::int64_t step = 0;
  std::string run_json =
      "{}";                   ///< loader position, seed, method, sizes, optimizer: the saver's own
  bool weights_only = false;  ///< imported weights: optimizer states start at zero
  std::vector<CheckpointTensor> tensors;  ///< sorted by name, then state

  const CheckpointTensor* find(const std::string& name, const std::string& state) const;
};

/// Folders of complete checkpoints in `folder`, oldest first; empty if the folder is empty or
/// missing. Throws Io if it is no folder.
std::vector<std::string> list_checkpoints(const std::string& folder);

/// Reads and checks a manifest. `folder` is that of one step, or one that holds steps (the newest
/// is taken). Throws Io.
Manifest read_manifest(const std::string& folder);

/// Reads one float32 or bfloat16 tensor into `to` (element_count(shape) floats) and compares its
/// checksum. Throws Io, naming file and tensor, also for another dtype.
void read_tensor(const Manifest& manifest, const CheckpointTensor& tensor, float* to);

/// The same a piece of whole rows at a time: `take` gets the place of its first element, how many
/// there are, and these. A checksum that differs is found after the last one.
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

/// A tensor of any dtype, of which only the bytes are known: what hetu.torch saves.
struct RawTensor {
  std::string name;   ///< parameter
  std::string state;  ///< "" for the weight
  DType dtype = DType::Float32;
  std::string foreign = {};  ///< as in TensorEntry
  Shape shape;
  /// Passes on all bytes in their order, piece by piece. Called once, while the file is written.
  std::function<void(const TensorSource::Take& take)> pieces;
};

/// One file that a worker brings to a save.
struct SavePart {
  std::string file;                  ///< e.g. "stage-0.safetensors"
  std::vector<StateTensor> tensors;  ///< written in this order
  std::string text = {};             ///< if there is one, it is the whole file
  std::vector<RawTensor> raw = {};   ///< written behind `tensors`
};

/// Where a save goes, and what it does to the steps that the folder holds already.
///
/// The checkpoints of a training go by their step: the highest `keep` stay, and a training resumes
/// from the highest. A model has no history: a save replaces the one that is there, whatever its
/// step.
struct SavePlace {
  std::string folder;
  int keep = 1;            ///< checkpoints of a training: the number of highest steps that stay
  std::string saver = "";  ///< names the workers that save, where others might save the same step a
                           ///< moment before they die
  /// Empty: a checkpoint of a training. Else a model, and this is the name of a file that each
  /// saved model has. A folder that holds a step without that file is refused, because the step
  /// belongs to a training.
  std::string model_file = "";
  std::string job =
      "";  ///< name of the job, whose processes may save one after another (FolderLock)
};

/// Saves one step; every worker calls it. If any worker fails (a full disk, say) all throw the same
/// Io error, and what was there before is still there. The folder is locked meanwhile: a save fails
/// if another job saves there. A kill at any moment leaves the old state or
/// the new one.
void save_checkpoint(const SavePlace& place, std::int64_t step, const std::string& run_json,
                     const std::vector<SavePart>& parts, comm::Transport& transport);

/// The run_json of a checkpoint that holds weights alone, imported from `source`.
std::string weights_only_run(const std::string& source);

/// Throws Io, naming it, if the checkpoint holds a parameter that is not among the model's
/// `parameters`.
void refuse_strangers(const Manifest& manifest, const std::vector<std::string>& parameters);

/// Fills a worker's tensors from a checkpoint, of any dtype there and here (DeviceSpan says how it
/// is rounded); where it holds weights only, states with zeros.
/// Throws Io: one that is missing, of another shape (both are named) or damaged.
void load_checkpoint(const Manifest& manifest, const std::vector<StateTensor>& tensors);

}  // namespace hetu
