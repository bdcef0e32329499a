#include "executor/state/weight_shards.h"

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_file.h"
#include "executor/state/checkpoint.h"

namespace hetu {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kWhole = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr std::int64_t kMostIndex = 100 << 20;  // bytes

WeightShards shards_of(const fs::path& index) {
  json in;
  try {
    const std::string text = read_text(index.string(), kMostIndex);
    in = json::parse(bounded_json(text, index.string(), Code::Io));
  } catch (const json::parse_error& e) {
    fail(Code::Io, "{}: is not JSON in UTF-8 (at byte {})", index.string(), e.byte);
  }
  const auto map = in.is_object() ? in.find("weight_map") : in.end();
  if (!in.is_object() || map == in.end() || !map->is_object() || map->empty()) {
    fail(Code::Io,
         "{}: has no weight_map from tensors to files, which the index of sharded weights needs",
         index.string());
  }
  std::map<std::string, std::vector<std::string>> files;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : "";
    // An index may name only files in its own folder, so that a downloaded index can't read
    // elsewhere.
    if (name.empty() || fs::path(name).filename() != name || name == "." || name == "..") {
      fail(Code::Io,
           "{}: tensor '{}' is in {}, expected the name of a file in the folder of the index",
           index.string(), tensor, file.dump(-1, ' ', false, json::error_handler_t::replace));
    }
    files[name].push_back(tensor);  // items() is sorted
  }
  WeightShards out;
  out.index = index.string();
  for (auto& [name, tensors] : files)
    out.shards.push_back({(index.parent_path() / name).string(), std::move(tensors)});
  return out;
}

}  // namespace

WeightShards find_weight_shards(const std::string& path) {
  const fs::path at = path;
  std::error_code ignored;
  if (!fs::is_directory(at, ignored))
    return at.extension() == ".json" ? shards_of(at) : WeightShards{{{path, {}}}, ""};
  if (fs::exists(at / kWhole, ignored)) return {{{(at / kWhole).string(), {}}}, ""};
  if (fs::exists(at / kIndex, ignored)) return shards_of(at / kIndex);
  const bool pickled = fs::exists(at / "pytorch_model.bin", ignored) ||
                       fs::exists(at / "pytorch_model.bin.index.json", ignored);
  const std::vector<std::string> steps = list_checkpoints(path);
  if (!steps.empty())
    fail(
        Code::Io,
        "{}: this folder holds a saved model or checkpoints of Hetu ({}), not a weight file; write "
        "one with `hetu checkpoint export {} -o weights.safetensors` and load that file",
        path, fs::path(steps.back()).filename().string(), path);
  fail(Code::Io, "{}: this folder has neither {} nor {}{}", path, kWhole, kIndex,
       pickled
           ? "; Hetu does not read its pytorch_model.bin, a pickle: save the model as safetensors"
           : "");
}

}  // namespace hetu
