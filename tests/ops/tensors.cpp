#include "tests/ops/tensors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/bfloat16.h"
#include "base/error.h"
#include "base/float16.h"
#include "graph/passes/channels_last.h"
#include "ops/registry.h"

namespace hetu::test {
namespace {

constexpr std::size_t kGuard = 256;
constexpr unsigned char kGuardByte = 0xa5;

}  // namespace

Tensor::Tensor(TensorType type, unsigned char fill)
    : type_(std::move(type)), count_(element_count(type_.shape)) {
  const std::size_t size = static_cast<std::size_t>(bytes());
  storage_.assign(size + 2 * kGuard + 64, kGuardByte);
  const auto address = reinterpret_cast<std::uintptr_t>(storage_.data()) + kGuard;
  offset_ = kGuard + (64 - address % 64) % 64;
  std::fill_n(storage_.begin() + static_cast<std::ptrdiff_t>(offset_), size, fill);
}

Tensor::Tensor(const Tensor& other) : Tensor(other.type_) {
  if (other.bytes() > 0) std::memcpy(data(), other.data(), static_cast<std::size_t>(bytes()));
}

Tensor& Tensor::operator=(Tensor other) noexcept {
  std::swap(type_, other.type_);
  std::swap(count_, other.count_);
  std::swap(offset_, other.offset_);
  std::swap(storage_, other.storage_);
  return *this;
}

double Tensor::at(std::int64_t i) const {
  switch (type_.dtype) {
    case DType::Float32:
      return as<float>()[i];
    case DType::Float64:
      return as<double>()[i];
    case DType::BFloat16:
      return float(as<BFloat16>()[i]);
    case DType::Float16:
      return float(as<Float16>()[i]);
    case DType::Int32:
      return as<std::int32_t>()[i];
    case DType::Int64:
      return static_cast<double>(as<std::int64_t>()[i]);
    case DType::Bool:
      return as<std::uint8_t>()[i];
    default:
      fail(Code::Internal, "a test tensor of {} has no values", dtype_name(type_.dtype));
  }
}

void Tensor::set(std::int64_t i, double value) {
  switch (type_.dtype) {
    case DType::Float32:
      as<float>()[i] = static_cast<float>(value);
      break;
    case DType::Float64:
      as<double>()[i] = value;
      break;
    case DType::BFloat16:
      as<BFloat16>()[i] = BFloat16(static_cast<float>(value));
      break;
    case DType::Float16:
      as<Float16>()[i] = Float16(static_cast<float>(value));
      break;
    case DType::Int32:
      as<std::int32_t>()[i] = static_cast<std::int32_t>(value);
      break;
    case DType::Int64:
      as<std::int64_t>()[i] = static_cast<std::int64_t>(value);
      break;
    case DType::Bool:
      as<std::uint8_t>()[i] = value != 0 ? 1 : 0;
      break;
    default:
      fail(Code::Internal, "a test tensor of {} has no values", dtype_name(type_.dtype));
  }
}

std::vector<double> Tensor::values() const {
  std::vector<double> all(static_cast<std::size_t>(count_));
  for (std::int64_t i = 0; i < count_; ++i) all[static_cast<std::size_t>(i)] = at(i);
  return all;
}

bool Tensor::guards_hold() const {
  const auto guard = [](unsigned char byte) { return byte == kGuardByte; };
  const auto begin = storage_.begin() + static_cast<std::ptrdiff_t>(offset_);
  return std::all_of(storage_.begin(), begin, guard) &&
         std::all_of(begin + bytes(), storage_.end(), guard);
}

bool Tensor::same_bits(const Tensor& other) const {
  return type_ == other.type_ &&
         (count_ == 0 || std::memcmp(data(), other.data(), static_cast<std::size_t>(bytes())) == 0);
}

Tensor Tensor::converted(DType dtype) const {
  Tensor t({is_floating(type_.dtype) ? dtype : type_.dtype, type_.shape});
  for (std::int64_t i = 0; i < count_; ++i) t.set(i, at(i));
  return t;
}

KernelDesc Case::desc() const {
  return {op, "grid/node", inputs, outputs, &attrs, batch, stable_hash("grid/node"), images};
}

std::vector<Tensor> run_row(const KernelRow& row, const Case& c, const std::vector<Tensor>& inputs,
                            const RunContext& run, unsigned char fill) {
  const PreparedKernel kernel = row.prepare(c.desc());
  std::vector<Tensor> before = inputs, outputs;
  for (const TensorType& t : c.outputs) outputs.emplace_back(t, fill);
  Tensor scratch({DType::Int8, {kernel.scratch_bytes}}, fill);
  std::vector<const void*> in;
  std::vector<void*> out;
  for (const Tensor& t : before) in.push_back(t.data());
  for (Tensor& t : outputs) out.push_back(t.data());
  kernel.run(KernelCall{in.data(), out.data(), scratch.data(), run});
  EXPECT_TRUE(scratch.guards_hold()) << c.op << " wrote past its scratch";
  for (const Tensor& t : outputs) EXPECT_TRUE(t.guards_hold()) << c.op << " wrote past an output";
  for (std::size_t i = 0; i < inputs.size(); ++i)
    EXPECT_TRUE(before[i].same_bits(inputs[i]) && before[i].guards_hold())
        << c.op << " changed input " << i;
  return outputs;
}

std::map<ValueId, Tensor> evaluate(const Graph& graph, const std::map<ValueId, Tensor>& feeds,
                                   DType floats, KernelChoice choice, const RunContext& run) {
  const auto type_of = [&](ValueId v) {
    TensorType t = graph.values[static_cast<std::size_t>(v)].type;
    if (t.dtype == DType::Float32 || (is_narrow(t.dtype) && floats == DType::Float64))
      t.dtype = floats;
    return t;
  };
  std::map<ValueId, Tensor> values;
  for (const auto& [v, tensor] : feeds) values[v] = tensor.converted(type_of(v).dtype);
  for (const Node& node : graph.nodes) {
    if (node.op == "placeholder" || node.op == "parameter" || node.op == "buffer") continue;
    KernelDesc d{node.op, node.name, {}, {}, &node.attrs, 1, 0};
    d.images = image_layout(graph, op_set().find(node.op), node);
    d.name_hash = stable_hash(node.attrs.has("key") ? node.attrs.text("key") : node.name);
    for (const ValueId v : node.inputs) d.inputs.push_back(type_of(v));
    for (const ValueId v : node.outputs) d.outputs.push_back(type_of(v));
    const PreparedKernel kernel = prepare_cpu(d, choice);
    Tensor scratch({DType::Int8, {kernel.scratch_bytes}});
    std::vector<const void*> in;
    std::vector<void*> out;
    for (const ValueId v : node.outputs) values[v] = Tensor(type_of(v));
    for (const ValueId v : node.inputs) in.push_back(values.at(v).data());
    for (const ValueId v : node.outputs) out.push_back(values.at(v).data());
    kernel.run(KernelCall{in.data(), out.data(), scratch.data(), run});
  }
  return values;
}

Tensor random_tensor(const TensorType& type, std::mt19937_64& random, std::int64_t below,
                     bool negative, bool positive) {
  Tensor t(type);
  std::normal_distribution<double> normal;
  for (std::int64_t i = 0; i < t.count(); ++i) {
    if (is_floating(type.dtype))
      t.set(i, positive ? 0.5 + std::fabs(normal(random)) : normal(random));
    else
      t.set(i, negative && random() % 5 == 0
                   ? -1.0
                   : double(random() % static_cast<std::uint64_t>(below)));
  }
  return t;
}

double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isinf(a[i]) && a[i] == b[i]) continue;
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  const double d = std::sqrt(difference) / std::max(std::sqrt(norm), 1e-30);
  if (difference == 0) return 0;
  return std::isnan(d) ? std::numeric_limits<double>::infinity() : d;
}

}  // namespace hetu::test
