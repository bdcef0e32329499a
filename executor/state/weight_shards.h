// The safetensors files that hold the weights of a Hugging Face model: one, or several with an
// index.
#pragma once
#include <string>
#include <vector>

namespace hetu {

/// A file of weights, and the tensors that it must have.
struct WeightShard {
  std::string path;
  std::vector<std::string> tensors;  ///< sorted; only if an index names them
};

/// The files that a path stands for.
struct WeightShards {
  std::vector<WeightShard> shards;  ///< by path; at least one
  std::string index;                ///< the path of model.safetensors.index.json; empty without one
};

/// Returns the files of a path: the file itself; those that a `*.index.json` names, which stand
/// beside it; or of a folder its model.safetensors, else those of its model.safetensors.index.json.
/// Opens no file of weights. Throws Io: a folder without either, an index that is not JSON, has no
/// `weight_map` from tensors to files, or names files elsewhere.
WeightShards find_weight_shards(const std::string& path);

}  // namespace hetu
