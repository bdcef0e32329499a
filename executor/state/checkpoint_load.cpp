// Tensors of a checkpoint, read and brought into a worker: part of checkpoint.h.
#include <algorithm>
#include <filesystem>
#include <vector>

#include "executor/state/checkpoint.h"
#include "executor/state/checkpoint_pieces.h"
#include "executor/state/safetensors.h"
#include "graph/base/checksum.h"
#include "graph/base/error.h"

namespace hetu {

namespace fs = std::filesystem;

void read_tensor_pieces(const Manifest& manifest, const CheckpointTensor& tensor,
                        const TakePiece& take) {
  const std::string path = (fs::path(manifest.folder) / tensor.file).string();
  const SafetensorsFile file(path);
  const std::string name = entry_name(tensor.name, tensor.state);
  const TensorEntry* entry = file.find(name);
  if (!entry || entry->shape != tensor.shape || entry->dtype != tensor.dtype) {
    fail(Code::Io, "{}: has no {} tensor '{}' {} that the manifest names; the file is damaged",
         path, dtype_name(tensor.dtype), name, to_string(tensor.shape));
  }
  std::uint32_t crc = 0;
  std::vector<float> piece;
  std::vector<BFloat16> narrow;
  const bool is_narrow = tensor.dtype == DType::BFloat16;
  const std::int64_t each = dtype_bytes(tensor.dtype);
  each_piece(tensor.shape, [&](std::int64_t begin, std::int64_t elements) {
    const auto count = static_cast<std::size_t>(elements);
    piece.resize(count);
    if (is_narrow) narrow.resize(count);
    void* const bytes = is_narrow ? static_cast<void*>(narrow.data()) : piece.data();
    file.read(*entry, begin * each, elements * each, bytes);
    crc = crc32c(bytes, count * static_cast<std::size_t>(each), crc);
    if (is_narrow) std::copy(narrow.begin(), narrow.end(), piece.begin());
    take(begin, elements, piece.data());
  });
  if (crc_text(crc) != tensor.crc) {
    fail(Code::Io,
         "{}: tensor '{}' has checksum {}, the manifest states {}; the file is damaged: remove {} "
         "to go on from an older checkpoint",
         path, name, crc_text(crc), tensor.crc, manifest.folder);
  }
}

void read_tensor(const Manifest& manifest, const CheckpointTensor& tensor, float* to) {
  read_tensor_pieces(manifest, tensor,
                     [&](std::int64_t begin, std::int64_t elements, const float* data) {
                       std::copy_n(data, elements, to + begin);
                     });
}

void refuse_strangers(const Manifest& manifest, const std::vector<std::string>& parameters) {
  for (const CheckpointTensor& t : manifest.tensors) {
    if (std::find(parameters.begin(), parameters.end(), t.name) == parameters.end()) {
      fail(Code::Io, "{}: holds '{}' {}, which the model has not; it is of another model",
           manifest.folder, entry_name(t.name, t.state), to_string(t.shape));
    }
  }
}

void load_checkpoint(const Manifest& manifest, const std::vector<StateTensor>& tensors) {
  std::vector<float> values;
  for (const StateTensor& t : tensors) {
    const CheckpointTensor* found = manifest.find(t.name, t.state);
    const bool is_new = !found && manifest.weights_only && !t.state.empty();
    if (!found && !is_new) {
      fail(Code::Io, "{}: has no '{}' {}; it is of another model or optimizer", manifest.folder,
           entry_name(t.name, t.state), to_string(t.shape));
    }
    if (found && found->shape != t.shape) {
      fail(Code::Io, "{}: '{}' is {}, the model wants {}", manifest.folder,
           entry_name(t.name, t.state), to_string(found->shape), to_string(t.shape));
    }
    if (t.blocks) {
      if (found)  // what is not written is zero
        read_tensor_pieces(manifest, *found,
                           [&](std::int64_t begin, std::int64_t elements, const float* data) {
                             t.blocks->write(begin, elements, data);
                           });
      continue;
    }
    values.assign(static_cast<std::size_t>(t.values.elements), 0.0F);
    if (found) read_tensor(manifest, *found, values.data());
    t.values.write(values.data());
  }
}

}  // namespace hetu
