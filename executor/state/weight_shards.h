// The safetensors files that hold the weights of a Hugging Face model: one file, or several files
// with an index.
#pragma once
#include <string>
#include <vector>

namespace hetu {

/// A file of weights, and the tensors that it must contain.
struct WeightShard {
  std::string path;
  std::vector<std::string> tensors;  ///< sorted; empty unless an index names them
};

/// The weight files at a path.
struct WeightShards {
  std::vector<WeightShard> shards;  ///< by path; at least one
  std::string index;  ///< path of model.safetensors.index.json; empty if there is no index
};

/// Returns the weight files at a path. The path is a file; or a `*.index.json`, which stands for
/// the files in its folder that it names; or a folder with model.safetensors or, failing that,
/// model.safetensors.index.json. Opens no weight files. Throws Io for a folder that has neither
/// file. Throws Io for an index that is not JSON, has no `weight_map` from tensors to files, or
/// names files outside its folder.
WeightShards find_weight_shards(const std::string& path);

}  // namespace hetu
