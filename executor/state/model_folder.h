// Tells folders of saved models from folders of a training's checkpoints. Both hold steps.
#pragma once
#include <string>
#include <vector>

namespace hetu {

/// A file that each saved model has, and no checkpoint of a training.
inline constexpr const char* kModelGraph = "graph.txt";

/// Throws Io if one of a folder's steps (list_checkpoints) is a saved model. A training must not
/// save there: its steps would hide the model from readers, which take the highest step.
void refuse_models(const std::string& folder, const std::vector<std::string>& steps);

}  // namespace hetu
