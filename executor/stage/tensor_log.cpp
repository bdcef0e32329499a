// Sketches of tensors. The sign of element i in sum s is bit s of a hash of i. So a sketch needs
// one hash per element, and every worker uses the same signs.
#include "executor/stage/tensor_log.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/bfloat16.h"
#include "base/checksum.h"
#include "base/error.h"
#include "base/float16.h"
#include "base/mix.h"

namespace hetu {
namespace {

static_assert(std::is_trivially_copyable_v<TensorRecord>);

template <class T>
void add_elements(const T* data, std::int64_t elements, TensorSketch& sketch) {
  double squares = 0;
  for (std::int64_t i = 0; i < elements; ++i) {
    const auto x = static_cast<double>(data[i]);
    squares += x * x;
    const std::uint64_t signs = mix(static_cast<std::uint64_t>(i));
    for (std::size_t s = 0; s < sketch.sums.size(); ++s)
      sketch.sums[s] += (signs >> s & 1) != 0 ? x : -x;
  }
  sketch.norm = std::sqrt(squares);
}

}  // namespace

TensorSketch sketch_of(const void* data, DType dtype, std::int64_t elements) {
  TensorSketch sketch;
  sketch.checksum = crc32c(data, static_cast<std::size_t>(elements * dtype_bytes(dtype)));
  switch (dtype) {
    case DType::Float32:
      add_elements(static_cast<const float*>(data), elements, sketch);
      break;
    case DType::BFloat16:
      add_elements(static_cast<const BFloat16*>(data), elements, sketch);
      break;
    case DType::Float16:
      add_elements(static_cast<const Float16*>(data), elements, sketch);
      break;
    case DType::Int32:
      add_elements(static_cast<const std::int32_t*>(data), elements, sketch);
      break;
    case DType::Bool:
      add_elements(static_cast<const std::uint8_t*>(data), elements, sketch);
      break;
    default:
      fail(Code::Unsupported, "tensors of dtype {} cannot be compared", dtype_name(dtype));
  }
  return sketch;
}

double distance(const TensorSketch& a, const TensorSketch& b) {
  double squares = 0;
  for (std::size_t s = 0; s < a.sums.size(); ++s)
    squares += (a.sums[s] - b.sums[s]) * (a.sums[s] - b.sums[s]);
  return std::sqrt(squares / static_cast<double>(a.sums.size()));
}

void TensorLog::ran(NodeId node, int stage, int micro, std::int64_t samples, void* const* outputs) {
  const std::vector<ValueId>& values = graph_.nodes[node].outputs;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const TensorType& type = graph_.values[values[i]].type;
    const std::int64_t elements = element_count(bind_batch(type.shape, samples));
    records_.push_back({TensorRecord::Content::Result, values[i], micro, stage,
                        sketch_of(outputs[i], type.dtype, elements)});
  }
}

void TensorLog::add(TensorRecord::Content what, const std::string& parameter, int stage,
                    const float* data, std::int64_t elements) {
  const auto at = std::find_if(graph_.parameters.begin(), graph_.parameters.end(),
                               [&](const Parameter& p) { return p.name == parameter; });
  if (at == graph_.parameters.end()) return;  // a buffer: every replica has its own
  records_.push_back({what, static_cast<std::int32_t>(at - graph_.parameters.begin()), kNone, stage,
                      sketch_of(data, DType::Float32, elements)});
}

std::string bytes_of(const std::vector<TensorRecord>& records) {
  std::string bytes(records.size() * sizeof(TensorRecord), '\0');
  std::memcpy(bytes.data(), records.data(), bytes.size());
  return bytes;
}

std::vector<TensorRecord> records_from(const std::string& bytes) {
  HETU_ASSERT(bytes.size() % sizeof(TensorRecord) == 0);
  std::vector<TensorRecord> records(bytes.size() / sizeof(TensorRecord));
  std::memcpy(records.data(), bytes.data(), bytes.size());
  return records;
}

}  // namespace hetu
