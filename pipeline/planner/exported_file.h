// A file of a plan for another system. The exports return such files.
#pragma once
#include <string>

namespace hetu {

/// A file of an export.
struct ExportedFile {
  std::string name;  ///< without a folder
  std::string text;
};

}  // namespace hetu
