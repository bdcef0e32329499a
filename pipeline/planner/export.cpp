#include "pipeline/planner/export.h"

#include <algorithm>

#include "base/error.h"
#include "base/words.h"
#include "pipeline/planner/export_parts.h"

namespace hetu {
namespace {

struct System {
  const char* name;
  std::vector<ExportedFile> (*files)(const Exporting& e);
};

const std::vector<System>& systems() {
  static const std::vector<System> kSystems = {{"megatron", export_to_megatron},
                                               {"torch", export_to_torch},
                                               {"torchtitan", export_to_torchtitan},
                                               {"deepspeed", export_to_deepspeed},
                                               {"devices", export_devices}};
  return kSystems;
}

}  // namespace

const std::vector<std::string>& export_systems() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const System& s : systems()) names.emplace_back(s.name);
    return names;
  }();
  return kNames;
}

void check_systems(const std::vector<std::string>& names) {
  const std::vector<std::string>& known = export_systems();
  for (const std::string& name : names)
    require(std::find(known.begin(), known.end(), name) != known.end(),
            "--export {}: unknown system; known systems: {}", shortened(name),
            fmt::join(known, ", "));
}

std::vector<ExportedFile> exported(const std::string& system, const PlanAnswer& answer,
                                   const PlanRequest& request, const std::string& blocks_are) {
  check_systems({system});
  const auto row = std::find_if(systems().begin(), systems().end(),
                                [&](const System& s) { return system == s.name; });
  require(answer.best.has_value(), "--export {}: {}", system,
          answer.unfinished() ? "no plan was found before the search ended" : "no plan fits");
  return row->files({answer, request, blocks_are});
}

}  // namespace hetu
