// Writing one file of a checkpoint, with the checksum of each tensor. Part of checkpoint.h.
#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/bfloat16.h"
#include "base/checksum.h"
#include "executor/state/checkpoint.h"
#include "executor/state/checkpoint_pieces.h"
#include "executor/state/safetensors.h"

namespace hetu {
namespace {

// Converts values to their form in the file. Values of a bfloat16 tensor are already rounded, so
// the conversion is exact.
class AsInFile {
 public:
  const void* of(const float* values, std::int64_t elements, DType dtype) {
    if (dtype == DType::Float32) return values;
    narrow_.resize(static_cast<std::size_t>(elements));
    std::transform(values, values + elements, narrow_.begin(), [](float x) { return BFloat16(x); });
    return narrow_.data();
  }

 private:
  std::vector<BFloat16> narrow_;
};

// Passes the elements of a parameter or optimizer state to `take`. They may be stored on a device
// or a server.
void take_state(const StateTensor& t, const TensorSource::Take& take) {
  std::vector<float> host;
  const float* const data = t.blocks ? nullptr : t.values.host(host);
  const DType dtype = t.values.dtype();
  AsInFile in_file;
  each_piece(t.shape, [&](std::int64_t begin, std::int64_t elements) {
    const float* piece = data + begin;
    if (t.blocks) {
      host.resize(static_cast<std::size_t>(elements));
      t.blocks->read(begin, elements, host.data());
      piece = host.data();
    }
    take(in_file.of(piece, elements, dtype), elements * dtype_bytes(dtype));
  });
}

// A tensor that is being written, and its row of the manifest.
struct Outgoing {
  CheckpointTensor row;
  std::function<void(const TensorSource::Take& take)> pieces;
  std::uint32_t sum = 0;  // checksum of the bytes written so far
};

Outgoing outgoing(const StateTensor& t) {
  Outgoing out;
  out.row.name = t.name;
  out.row.state = t.state;
  out.row.dtype = t.values.dtype();
  out.row.shape = t.shape;
  out.pieces = [&t](const TensorSource::Take& take) { take_state(t, take); };
  return out;
}

Outgoing outgoing(const RawTensor& t) {
  Outgoing out;
  out.row.name = t.name;
  out.row.state = t.state;
  out.row.dtype = t.dtype;
  out.row.foreign = t.foreign;
  out.row.shape = t.shape;
  out.pieces = t.pieces;
  return out;
}

TensorSource source_of(Outgoing& t) {
  TensorSource source{entry_name(t.row.name, t.row.state), t.row.dtype, t.row.shape};
  source.foreign = t.row.foreign;
  source.pieces = [&t](const TensorSource::Take& take) {
    t.pieces([&t, &take](const void* data, std::int64_t bytes) {
      t.sum = crc32c(data, static_cast<std::size_t>(bytes), t.sum);
      take(data, bytes);
    });
  };
  return source;
}

}  // namespace

std::vector<CheckpointTensor> write_part(const std::string& folder, const SavePart& part) {
  const std::string path = (std::filesystem::path(folder) / part.file).string();
  if (!part.text.empty()) return write_synced(path, part.text), std::vector<CheckpointTensor>();
  std::vector<Outgoing> all;
  for (const StateTensor& t : part.tensors) all.push_back(outgoing(t));
  for (const RawTensor& t : part.raw) all.push_back(outgoing(t));
  std::vector<TensorSource> sources;
  for (Outgoing& t : all) sources.push_back(source_of(t));
  // Tensors with the widest elements come first, so that each tensor is aligned to its elements.
  const auto width = [](const TensorSource& t) {
    DType known{};
    std::string name;
    return parse_format_dtype(format_dtype(t.dtype, t.foreign), known, name);
  };
  std::stable_sort(
      sources.begin(), sources.end(),
      [&](const TensorSource& a, const TensorSource& b) { return width(a) > width(b); });
  write_safetensors(path, sources, {{"format", "pt"}});
  std::vector<CheckpointTensor> rows;
  for (Outgoing& t : all) {
    t.row.file = part.file;
    t.row.slice_begin.assign(t.row.shape.size(), 0);
    t.row.slice_end = t.row.shape;
    t.row.crc = crc_text(t.sum);
    rows.push_back(std::move(t.row));
  }
  return rows;
}

}  // namespace hetu
