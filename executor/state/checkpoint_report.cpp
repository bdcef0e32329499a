#include "executor/state/checkpoint_report.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "base/bfloat16.h"
#include "base/error.h"
#include "base/float16.h"
#include "base/text_file.h"
#include "executor/state/checkpoint.h"

namespace hetu {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Kind = TensorDifference::Kind;

std::string size_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  double size = static_cast<double>(bytes);
  while (size >= 1024 && unit < 4) size /= 1024, ++unit;
  return unit == 0 ? fmt::format("{} bytes", bytes) : fmt::format("{:.1f} {}", size, kUnits[unit]);
}

void add_facts(std::string& out, const std::string& name, const json& value) {
  if (!value.is_object()) {
    const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
    out += fmt::format("  {:<24}{}\n", name, text);
    return;
  }
  for (const auto& [key, part] : value.items())
    add_facts(out, name.empty() ? key : fmt::format("{}.{}", name, key), part);
}

std::string files_text(const Manifest& manifest) {
  std::map<std::string, int> files;  // number of tensors in each file
  for (const CheckpointTensor& t : manifest.tensors) ++files[t.file];
  std::string out;
  for (const auto& [name, tensors] : files) {
    std::error_code error;
    const std::uintmax_t bytes = fs::file_size(fs::path(manifest.folder) / name, error);
    if (error) {
      fail(Code::Io, "{}/{}: {}; the checkpoint is damaged", manifest.folder, name,
           error.message());
    }
    out += fmt::format("  {:<24}{:>12}  {} tensors\n", name,
                       size_text(static_cast<std::int64_t>(bytes)), tensors);
  }
  return out;
}

// Returns one line per parameter, with the names of its optimizer states.
std::string tensors_text(const Manifest& manifest) {
  std::size_t width = 0;
  for (const CheckpointTensor& t : manifest.tensors) width = std::max(width, t.name.size());
  std::string out;
  const CheckpointTensor* before = nullptr;
  for (const CheckpointTensor& t : manifest.tensors) {
    if (before && before->name == t.name) {
      out.insert(out.size() - 1, "  " + t.state);
    } else {
      out += fmt::format("  {:<{}}  {:<14}{:>12}{}\n", t.name, width, to_string(t.shape),
                         size_text(t.bytes()), t.state.empty() ? "" : "  " + t.state);
    }
    before = &t;
  }
  return out;
}

// The elements of a tensor, converted to double so that two dtypes can be compared.
class Elements {
 public:
  Elements(CheckpointReader& reader, const CheckpointTensor& t)
      : dtype_(t.dtype), bytes_(static_cast<std::size_t>(t.bytes())) {
    reader.read(t, bytes_.data());
  }
  double operator[](std::size_t i) const {
    switch (dtype_) {
      case DType::Float32:
        return at<float>(i);
      case DType::Float64:
        return at<double>(i);
      case DType::BFloat16:
        return static_cast<float>(at<BFloat16>(i));
      case DType::Float16:
        return static_cast<float>(at<Float16>(i));
      case DType::Int32:
        return at<std::int32_t>(i);
      case DType::Int64:
        return static_cast<double>(at<std::int64_t>(i));
      case DType::Int8:
      case DType::Bool:
        return at<std::int8_t>(i);
    }
    return 0;
  }
  bool same_bits(const Elements& other, std::size_t i, std::size_t width) const {
    return std::memcmp(bytes_.data() + i * width, other.bytes_.data() + i * width, width) == 0;
  }

 private:
  template <class T>
  T at(std::size_t i) const {
    T out;
    std::memcpy(&out, bytes_.data() + i * sizeof(T), sizeof(T));
    return out;
  }

  DType dtype_;
  std::vector<char> bytes_;
};

// Compares two tensors. Elements of equal dtypes differ if their bits do, and elements of different
// dtypes if their values do. A dtype that Hetu doesn't have is not converted: the largest
// difference is then infinite.
TensorDifference compare(CheckpointReader& a, const CheckpointTensor& first, CheckpointReader& b,
                         const CheckpointTensor& second) {
  TensorDifference out;
  out.name = first.name;
  out.state = first.state;
  out.shape_first = first.shape;
  out.shape_second = second.shape;
  out.dtype_first = first.dtype_text();
  out.dtype_second = second.dtype_text();
  if (first.shape != second.shape) {
    out.kind = Kind::OtherShape;
    return out;
  }
  const auto elements = static_cast<std::size_t>(element_count(first.shape));
  const bool same_dtype = out.dtype_first == out.dtype_second;
  const bool has_numbers = first.foreign.empty() && second.foreign.empty();
  const std::size_t width = elements == 0 ? 0 : static_cast<std::size_t>(first.bytes()) / elements;
  const Elements x(a, first), y(b, second);
  for (std::size_t i = 0; i < elements; ++i) {
    if (same_dtype && x.same_bits(y, i, width)) continue;
    // Bits are compared so that equal NaNs count as equal, and 0 and -0 as different.
    if (!same_dtype && has_numbers &&
        std::bit_cast<std::uint64_t>(x[i]) == std::bit_cast<std::uint64_t>(y[i]))
      continue;
    ++out.elements;
    const double difference = has_numbers ? std::abs(x[i] - y[i]) : std::nan("");
    // A NaN on either side makes the difference infinite.
    out.largest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                         : std::max(out.largest, difference);
  }
  out.kind = out.elements == 0 && same_dtype ? Kind::Equal : Kind::Differs;
  return out;
}

TensorDifference only(const CheckpointTensor& t, Kind kind) {
  TensorDifference out;
  out.name = t.name;
  out.state = t.state;
  out.kind = kind;
  (kind == Kind::OnlyInFirst ? out.shape_first : out.shape_second) = t.shape;
  return out;
}

std::string dtypes_text(const TensorDifference& d) {
  if (d.dtype_first == d.dtype_second) return "";
  return fmt::format("; {} in the first, {} in the second", d.dtype_first, d.dtype_second);
}

std::string verdict(const TensorDifference& d) {
  switch (d.kind) {
    case Kind::Equal:
      return "equal";
    case Kind::Differs:
      return fmt::format("largest difference {:.6g}, in {} of {} elements{}", d.largest, d.elements,
                         element_count(d.shape_first), dtypes_text(d));
    case Kind::OtherShape:
      return fmt::format("shape {} in the first, {} in the second", to_string(d.shape_first),
                         to_string(d.shape_second));
    case Kind::OnlyInFirst:
      return fmt::format("only in the first, {}", to_string(d.shape_first));
    case Kind::OnlyInSecond:
      return fmt::format("only in the second, {}", to_string(d.shape_second));
  }
  return "";
}

}  // namespace

std::string describe_checkpoint(const std::string& folder) {
  const Manifest manifest = read_manifest(folder);
  std::int64_t parameters = 0, weights = 0, states = 0;
  for (const CheckpointTensor& t : manifest.tensors) {
    (t.state.empty() ? weights : states) += t.bytes();
    if (t.state.empty()) parameters += element_count(t.shape);
  }
  std::string out = fmt::format(
      "{}\nstep {}; {} parameters, weights {}, optimizer states {}\nrun\n", manifest.folder,
      manifest.step, parameters, size_text(weights), size_text(states));
  add_facts(out, "", json::parse(bounded_json(manifest.run_json, manifest.folder)));
  return out + "files\n" + files_text(manifest) + "tensors\n" + tensors_text(manifest);
}

std::vector<TensorDifference> compare_checkpoints(const std::string& first,
                                                  const std::string& second,
                                                  const ReportProgress& progress) {
  CheckpointReader a(first), b(second);
  std::vector<TensorDifference> out;
  for (const CheckpointTensor& t : a.manifest().tensors) {
    if (progress) progress(std::ssize(out), std::ssize(a.manifest().tensors));
    const CheckpointTensor* other = b.manifest().find(t.name, t.state);
    out.push_back(other ? compare(a, t, b, *other) : only(t, Kind::OnlyInFirst));
  }
  for (const CheckpointTensor& t : b.manifest().tensors) {
    if (!a.manifest().find(t.name, t.state)) out.push_back(only(t, Kind::OnlyInSecond));
  }
  std::sort(out.begin(), out.end(), [](const TensorDifference& x, const TensorDifference& y) {
    return std::pair(x.name, x.state) < std::pair(y.name, y.state);
  });
  return out;
}

bool all_equal(const std::vector<TensorDifference>& differences) {
  return std::all_of(differences.begin(), differences.end(),
                     [](const TensorDifference& d) { return d.kind == Kind::Equal; });
}

std::string to_string(const std::vector<TensorDifference>& differences) {
  const auto label = [](const TensorDifference& d) {
    return d.state.empty() ? d.name : d.name + " " + d.state;
  };
  std::size_t width = 0, equal = 0;
  const TensorDifference* worst = nullptr;
  for (const TensorDifference& d : differences) {
    width = std::max(width, label(d).size());
    equal += d.kind == Kind::Equal;
    if (d.kind == Kind::Differs && (!worst || d.largest > worst->largest)) worst = &d;
  }
  std::string out;
  for (const TensorDifference& d : differences)
    out += fmt::format("{:<{}}  {}\n", label(d), width, verdict(d));
  out += fmt::format("{} of {} tensors equal, bit for bit", equal, differences.size());
  if (worst) out += fmt::format("; largest difference {:.6g} in {}", worst->largest, label(*worst));
  return out + "\n";
}

}  // namespace hetu
