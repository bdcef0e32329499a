// What writing and reading a tensor of a checkpoint have in common: part of checkpoint.h.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/shape.h"

namespace hetu {

struct CheckpointTensor;
struct SavePart;

inline constexpr std::int64_t kPiece = 1 << 20;  // elements that are read or written at once

// Its name in a file.
inline std::string entry_name(const std::string& name, const std::string& state) {
  return state.empty() ? name : name + "#" + state;
}

// Writes one file of a save into `folder` and syncs it. Returns a row of the manifest per tensor.
std::vector<CheckpointTensor> write_part(const std::string& folder, const SavePart& part);

// Ranges of whole rows of a tensor, of about kPiece elements.
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
