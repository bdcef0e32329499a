// Reading tensors of a checkpoint into a worker. Part of checkpoint.h.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "base/bfloat16.h"
#include "base/checksum.h"
#include "base/error.h"
#include "executor/state/checkpoint.h"
#include "executor/state/checkpoint_pieces.h"
#include "executor/state/safetensors.h"

namespace hetu {

namespace fs = std::filesystem;

namespace {

using TakeBytes = std::function<void(std::int64_t begin, std::int64_t elements, const void* data)>;

std::int64_t element_bytes(const CheckpointTensor& tensor) {
  const std::int64_t elements = element_count(tensor.shape);
  return elements == 0 ? 0 : tensor.bytes() / elements;
}

// Reads a tensor in chunks of whole rows, and compares its checksum after the last one.
void read_pieces(const SafetensorsFile& file, const Manifest& manifest,
                 const CheckpointTensor& tensor, const TakeBytes& take) {
  const std::string name = entry_name(tensor.name, tensor.state);
  const TensorEntry* entry = file.find(name);
  if (!entry || entry->shape != tensor.shape || entry->dtype != tensor.dtype ||
      entry->foreign != tensor.foreign) {
    fail(Code::Io,
         "{}: does not have the {} tensor '{}' {} that the manifest lists; the file is damaged",
         file.path(), tensor.dtype_text(), name, to_string(tensor.shape));
  }
  std::uint32_t crc = 0;
  std::vector<char> piece;
  const std::int64_t each = element_bytes(tensor);
  each_piece(tensor.shape, [&](std::int64_t begin, std::int64_t elements) {
    piece.resize(static_cast<std::size_t>(elements * each));
    file.read_bytes(*entry, begin * each, elements * each, piece.data());
    crc = crc32c(piece.data(), piece.size(), crc);
    take(begin, elements, piece.data());
  });
  if (crc_text(crc) != tensor.crc) {
    fail(Code::Io,
         "{}: tensor '{}' has checksum {}, but the manifest states {}; the file is damaged: remove "
         "{} to continue from an older checkpoint",
         file.path(), name, crc_text(crc), tensor.crc, manifest.folder);
  }
}

std::string path_of(const Manifest& manifest, const CheckpointTensor& tensor) {
  return (fs::path(manifest.folder) / tensor.file).string();
}

}  // namespace

void CheckpointReader::read(const CheckpointTensor& tensor, void* to) {
  std::unique_ptr<SafetensorsFile>& file = files_[tensor.file];
  if (!file) file = std::make_unique<SafetensorsFile>(path_of(manifest_, tensor));
  read_pieces(*file, manifest_, tensor,
              [&](std::int64_t begin, std::int64_t elements, const void* data) {
                const std::int64_t each = element_bytes(tensor);
                std::memcpy(static_cast<char*>(to) + begin * each, data,
                            static_cast<std::size_t>(elements * each));
              });
}

void read_tensor_pieces(const Manifest& manifest, const CheckpointTensor& tensor,
                        const TakePiece& take) {
  const bool is_narrow = tensor.dtype == DType::BFloat16;
  if (!tensor.foreign.empty() || (tensor.dtype != DType::Float32 && !is_narrow)) {
    fail(Code::Io, "{}: tensor '{}' is {}, expected float32 or bfloat16", path_of(manifest, tensor),
         entry_name(tensor.name, tensor.state), tensor.dtype_text());
  }
  std::vector<float> wide;
  read_pieces(SafetensorsFile(path_of(manifest, tensor)), manifest, tensor,
              [&](std::int64_t begin, std::int64_t elements, const void* data) {
                if (!is_narrow) return take(begin, elements, static_cast<const float*>(data));
                const auto* const narrow = static_cast<const BFloat16*>(data);
                wide.assign(narrow, narrow + elements);
                take(begin, elements, wide.data());
              });
}

void read_tensor(const Manifest& manifest, const CheckpointTensor& tensor, float* to) {
  read_tensor_pieces(manifest, tensor,
                     [&](std::int64_t begin, std::int64_t elements, const float* data) {
                       std::copy_n(data, elements, to + begin);
                     });
}

void check_parameter_names(const Manifest& manifest, const std::vector<std::string>& parameters) {
  for (const CheckpointTensor& t : manifest.tensors) {
    if (std::find(parameters.begin(), parameters.end(), t.name) == parameters.end()) {
      fail(Code::Io,
           "{}: holds '{}' {}, which the model does not have; the checkpoint belongs to another "
           "model",
           manifest.folder, entry_name(t.name, t.state), to_string(t.shape));
    }
  }
}

void load_checkpoint(const Manifest& manifest, const std::vector<StateTensor>& tensors) {
  std::vector<float> values;
  for (const StateTensor& t : tensors) {
    const CheckpointTensor* found = manifest.find(t.name, t.state);
    // Imported weights have no optimizer states. They start at zero.
    const bool is_new = !found && manifest.weights_only && !t.state.empty();
    if (!found && !is_new) {
      fail(Code::Io, "{}: has no '{}' {}; the checkpoint belongs to another model or optimizer",
           manifest.folder, entry_name(t.name, t.state), to_string(t.shape));
    }
    if (found && found->shape != t.shape) {
      fail(Code::Io, "{}: '{}' is {}, but the model expects {}", manifest.folder,
           entry_name(t.name, t.state), to_string(found->shape), to_string(t.shape));
    }
    if (t.blocks) {
      if (found)  // blocks are zero unless written
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
