#include "executor/state/weights_file.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <list>
#include <map>
#include <vector>

#include "base/bfloat16.h"
#include "base/error.h"
#include "executor/state/checkpoint.h"
#include "executor/state/weight_shards.h"
#include "net/transport/inproc.h"

namespace hetu {
namespace {

constexpr const char* kWords = "bert.embeddings.word_embeddings.weight";
constexpr const char* kDecoder = "cls.predictions.decoder.weight";
constexpr const char* kBias = "cls.predictions.bias";
constexpr const char* kDecoderBias = "cls.predictions.decoder.bias";
// Counts of torchvision's batch norms are int64 in files and float32 buffers in Hetu.
constexpr const char* kCount = ".num_batches_tracked";
constexpr std::int64_t kLargestCount = 1 << 24;  // up to here float32 represents all whole numbers

struct Weight {
  std::string in_file;  ///< name in the file
  Shape shape;
  std::vector<float> data;
};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Returns true for buffers of old files that models compute themselves: the causal masks of GPT-2,
// which are [1, 1, N, N], and the frequencies of rotary positions. The rank distinguishes a mask
// from the bias of a layer called `attn`, which has one axis.
bool is_computed(const TensorEntry& tensor) {
  return (ends_with(tensor.name, ".attn.bias") && tensor.shape.size() == 4) ||
         ends_with(tensor.name, ".attn.masked_bias") ||
         ends_with(tensor.name, ".rotary_emb.inv_freq");
}

// Returns the name of the parameter that a tensor of a file holds.
std::string parameter_name(std::string name) {
  if (name == kDecoderBias) return kBias;
  const auto spelled = [&name](const std::string& old, const std::string& now) {
    if (ends_with(name, old)) name.replace(name.size() - old.size(), old.size(), now);
  };
  spelled("LayerNorm.gamma", "LayerNorm.weight");
  spelled("LayerNorm.beta", "LayerNorm.bias");
  return name;
}

float from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const int fraction = bits & 0x3FF;
  float size = 0;
  if (exponent == 0x1F) {
    size =
        fraction ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    size = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    size = std::ldexp(static_cast<float>(fraction + 0x400), exponent - 25);
  }
  return bits >> 15 ? -size : size;
}

float from_bfloat16(std::uint16_t bits) { return std::bit_cast<BFloat16>(bits); }

bool same(const Weight& a, const Weight& b) {
  return a.shape == b.shape &&
         std::memcmp(a.data.data(), b.data.data(), a.data.size() * sizeof(float)) == 0;
}

// Reads the weights of a file by parameter name, and adds the number of tensors that are not needed
// to `dropped`.
std::map<std::string, Weight> read_weights(const std::string& path, int& dropped,
                                           const ReportProgress& progress) {
  const WeightReader file(path);
  dropped += file.positions();
  std::map<std::string, Weight> out;
  std::int64_t done = 0;
  for (const WeightReader::Entry& entry : file.entries()) {
    if (progress) progress(done++, std::ssize(file.entries()));
    if (is_computed(*entry.tensor)) {
      ++dropped;
      continue;
    }
    Weight weight = {entry.tensor->name, entry.tensor->shape, file.read(entry)};
    const auto [at, is_new] = out.try_emplace(entry.name, weight);
    if (is_new) continue;
    if (!same(at->second, weight)) {
      fail(Code::Io, "{}: tensors '{}' {} and '{}' {} are the same parameter, but differ",
           file.path(), at->second.in_file, to_string(at->second.shape), weight.in_file,
           to_string(weight.shape));
    }
    ++dropped;
  }
  const auto words = out.find(kWords), decoder = out.find(kDecoder);
  if (words != out.end() && decoder != out.end() && same(words->second, decoder->second)) {
    out.erase(decoder);  // tied: one parameter
    ++dropped;
  }
  if (out.empty()) fail(Code::Io, "{}: holds no weights", file.path());
  return out;
}

// Throws Io unless the file has exactly the tensors that the index names.
void check_names(const SafetensorsFile& file, const WeightShard& shard, const std::string& index) {
  std::vector<std::string> found, differ;
  for (const TensorEntry& tensor : file.tensors()) found.push_back(tensor.name);
  std::sort(found.begin(), found.end());
  std::set_difference(shard.tensors.begin(), shard.tensors.end(), found.begin(), found.end(),
                      std::back_inserter(differ));
  if (!differ.empty())
    fail(Code::Io, "{}: has no tensor '{}', which {} lists", file.path(), differ[0], index);
  std::set_difference(found.begin(), found.end(), shard.tensors.begin(), shard.tensors.end(),
                      std::back_inserter(differ));
  if (!differ.empty())
    fail(Code::Io, "{}: has a tensor '{}', which {} does not list", file.path(), differ[0], index);
}

}  // namespace

bool WeightReader::Entry::is_weight() const {
  if (!tensor->foreign.empty()) return false;
  const DType dtype = tensor->dtype;
  return dtype == DType::Float32 || is_narrow(dtype) ||
         (dtype == DType::Int64 && ends_with(tensor->name, kCount));
}

WeightReader::WeightReader(const std::string& path) : path_(path) {
  const WeightShards found = find_weight_shards(path);
  for (const WeightShard& shard : found.shards) {
    const SafetensorsFile& file = files_.emplace_back(shard.path);
    if (!found.index.empty()) check_names(file, shard, found.index);
    for (const TensorEntry& tensor : file.tensors()) {
      if (ends_with(tensor.name, "embeddings.position_ids")) {
        ++positions_;
      } else {
        entries_.push_back({parameter_name(tensor.name), &tensor, &file});
      }
    }
  }
}

std::vector<float> WeightReader::read(const Entry& entry) const {
  const TensorEntry& tensor = *entry.tensor;
  const SafetensorsFile& file = *entry.file;
  if (!entry.is_weight()) {
    fail(Code::Io, "{}: tensor '{}' is {}; weights must be float32, float16 or bfloat16",
         file.path(), tensor.name,
         tensor.foreign.empty() ? dtype_name(tensor.dtype) : tensor.foreign);
  }
  std::vector<float> out(static_cast<std::size_t>(element_count(tensor.shape)));
  if (tensor.dtype == DType::Float32) {
    file.read(tensor, out.data());
    return out;
  }
  if (tensor.dtype == DType::Int64) {
    std::vector<std::int64_t> counts(out.size());
    file.read(tensor, counts.data());
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (counts[i] < 0 || counts[i] > kLargestCount) {
        fail(Code::Io, "{}: tensor '{}' is {}; a count must be between 0 and {}", file.path(),
             tensor.name, counts[i], kLargestCount);
      }
      out[i] = static_cast<float>(counts[i]);
    }
    return out;
  }
  std::vector<std::uint16_t> bits(out.size());
  file.read(tensor, bits.data());
  // float16 and bfloat16 are widened exactly.
  const auto widen = tensor.dtype == DType::Float16 ? from_half : from_bfloat16;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = widen(bits[i]);
  return out;
}

int export_weights(const std::string& folder, const std::string& path,
                   const ReportProgress& progress) {
  const Manifest manifest = read_manifest(folder);
  const std::int64_t weights =
      std::count_if(manifest.tensors.begin(), manifest.tensors.end(),
                    [](const CheckpointTensor& t) { return t.state.empty(); });
  std::vector<std::vector<float>> data;
  std::list<std::int64_t> counts;  // a list, so that addresses stay valid
  std::vector<TensorSource> sources;
  for (const CheckpointTensor& t : manifest.tensors) {
    if (!t.state.empty()) continue;
    if (progress) progress(static_cast<std::int64_t>(data.size()), weights);
    data.emplace_back(static_cast<std::size_t>(element_count(t.shape)));
    read_tensor(manifest, t, data.back().data());
    sources.push_back({t.name, DType::Float32, t.shape, data.back().data()});
    if (ends_with(t.name, kCount) && data.back().size() == 1) {
      counts.push_back(std::llround(data.back()[0]));
      sources.back() = {t.name, DType::Int64, t.shape, &counts.back()};
    }
    if (t.name == kBias) {
      sources.push_back(sources.back());
      sources.back().name = kDecoderBias;
    }
  }
  replace_file(path, [&sources](const std::string& temporary) {
    write_safetensors(temporary, sources, {{"format", "pt"}});
  });
  return static_cast<int>(sources.size());
}

Imported import_weights(const std::string& path, const std::string& folder,
                        const ReportProgress& progress) {
  const std::vector<std::string> there = list_checkpoints(folder);
  require(there.empty(), "{} holds a checkpoint already ({}); choose another folder", folder,
          there.empty() ? "" : there.back());
  Imported out;
  const std::map<std::string, Weight> weights = read_weights(path, out.dropped, progress);
  SavePart part;
  part.file = "stage-0.safetensors";
  for (const auto& [name, weight] : weights) {
    part.tensors.push_back({name, "", weight.shape,
                            host_span(const_cast<float*>(weight.data.data()),
                                      static_cast<std::int64_t>(weight.data.size())),
                            true});
  }
  const auto alone = comm::make_inproc(1);
  save_checkpoint({folder}, 0, weights_only_run(path), {part}, *alone[0]);
  out.tensors = static_cast<int>(weights.size());
  out.folder = list_checkpoints(folder).back();
  return out;
}

}  // namespace hetu
