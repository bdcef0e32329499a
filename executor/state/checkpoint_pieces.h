// Shared code of reading and writing tensors of a checkpoint. Part of checkpoint.h.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.h"

namespace hetu {

struct CheckpointTensor;
struct SavePart;

inline constexpr std::int64_t kPiece = 1 << 20;  // elements that are read or written at a time

// Returns the name of a tensor in a safetensors file.
inline std::string entry_name(const std::string& name, const std::string& state) {
  return state.empty() ? name : name + "#" + state;
}

// Writes one file of a save into `folder` and syncs it. Returns a row of the manifest per tensor.
std::vector<CheckpointTensor> write_part(const std::string& folder, const SavePart& part);

// Calls `visit` with consecutive ranges of whole rows of a tensor, of about kPiece elements each.
template <class Visit>
void each_piece(const Shape& shape, const Visit& visit) {
  const std::int64_t elements = element_count(shape);
  const std::int64_t row = shape.empty() || shape[0] == 0 ? elements : elements / shape[0];
  const std::int64_t step = std::max<std::int64_t>(1, kPiece / std::max<std::int64_t>(1, row)) *
                            std::max<std::int64_t>(1, row);
  for (std::int64_t begin = 0; begin < elements; begin += step)
    visit(begin, std::min(step, elements - begin));
}

}  // namespace hetu
