#include "executor/state/checkpoint_report.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "executor/state/checkpoint.h"
#include "graph/base/error.h"
#include "graph/base/text_file.h"

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

std::int64_t bytes_of(const CheckpointTensor& t) {
  return element_count(t.shape) * dtype_bytes(t.dtype);
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
  std::map<std::string, int> files;  // tensors in each
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

// One line per parameter, with the names of its optimizer states.
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
                         size_text(bytes_of(t)), t.state.empty() ? "" : "  " + t.state);
    }
    before = &t;
  }
  return out;
}

TensorDifference compare(const Manifest& a, const CheckpointTensor& first, const Manifest& b,
                         const CheckpointTensor& second) {
  TensorDifference out;
  out.name = first.name;
  out.state = first.state;
  out.shape_first = first.shape;
  out.shape_second = second.shape;
  out.dtype_first = first.dtype;
  out.dtype_second = second.dtype;
  if (first.shape != second.shape) {
    out.kind = Kind::OtherShape;
    return out;
  }
  const auto elements = static_cast<std::size_t>(element_count(first.shape));
  std::vector<float> x(elements), y(elements);
  read_tensor(a, first, x.data());
  read_tensor(b, second, y.data());
  for (std::size_t i = 0; i < elements; ++i) {
    if (std::bit_cast<std::uint32_t>(x[i]) == std::bit_cast<std::uint32_t>(y[i])) continue;
    ++out.elements;
    const double difference = std::abs(static_cast<double>(x[i]) - static_cast<double>(y[i]));
    out.largest = std::isnan(difference) ? std::numeric_limits<double>::infinity()
                                         : std::max(out.largest, difference);
  }
  out.kind = out.elements == 0 && first.dtype == second.dtype ? Kind::Equal : Kind::Differs;
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
  return fmt::format("; {} in the first, {} in the second", dtype_name(d.dtype_first),
                     dtype_name(d.dtype_second));
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
    (t.state.empty() ? weights : states) += bytes_of(t);
    if (t.state.empty()) parameters += element_count(t.shape);
  }
  std::string out = fmt::format(
      "{}\nstep {}; {} parameters, weights {}, optimizer states {}\nrun\n", manifest.folder,
      manifest.step, parameters, size_text(weights), size_text(states));
  add_facts(out, "", json::parse(bounded_json(manifest.run_json, manifest.folder)));
  return out + "files\n" + files_text(manifest) + "tensors\n" + tensors_text(manifest);
}

std::vector<TensorDifference> compare_checkpoints(const std::string& first,
                                                  const std::string& second) {
  const Manifest a = read_manifest(first), b = read_manifest(second);
  std::vector<TensorDifference> out;
  for (const CheckpointTensor& t : a.tensors) {
    const CheckpointTensor* other = b.find(t.name, t.state);
    out.push_back(other ? compare(a, t, b, *other) : only(t, Kind::OnlyInFirst));
  }
  for (const CheckpointTensor& t : b.tensors) {
    if (!a.find(t.name, t.state)) out.push_back(only(t, Kind::OnlyInSecond));
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
