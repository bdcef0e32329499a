// The playground's face of the schedule tools, in the build for browsers: a function from text to
// text, whose requests are command lines. The page (docs/playground) has no rules of its own: it
// also asks here for the methods and for the options with their ranges.
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text_file.h"
#include "cli/command.h"
#include "cli/ending.h"
#include "pipeline/generate/generate.h"
#include "pipeline/options/plan_options.h"
#include "pipeline/options/planner_options.h"

namespace hetu::cli {
namespace {

using json = nlohmann::ordered_json;

// The output of the command that runs. The page has one thread.
std::string& output() {
  static std::string text;
  return text;
}

const std::vector<Command>& commands() {
  static const std::vector<Command> kCommands = {{"schedule", "", schedule_command, nullptr},
                                                 {"verify", "", verify_command, nullptr},
                                                 {"simulate", "", simulate_command, nullptr},
                                                 {"choose", "", choose_command, nullptr},
                                                 {"plan", "", plan_command, nullptr}};
  return kCommands;
}

json bound(double value) { return value < 1e15 ? json(value) : json(nullptr); }

json about_option(const OptionField& f) {
  json option = {{"name", f.name},
                 {"flag", flag_of(f)},
                 {"type", type_name(type_of(f))},
                 {"argument", f.argument == nullptr ? "" : f.argument},
                 {"doc", f.doc},
                 {"default", text_of(f)},
                 {"default_text", default_text(f)},
                 {"least", bound(f.range.least)},
                 {"most", bound(f.range.most)}};
  if (f.within != nullptr) option["within"] = f.within;
  if (!f.choices.empty()) option["choices"] = f.choices;
  return option;
}

json about_options(const Fields& fields) {
  json options = json::array();
  for (const OptionField& f : fields) options.push_back(about_option(f));
  return options;
}

json about_method(const Method& m) {
  return {{"name", m.name},
          {"doc", m.doc},
          {"options", m.options},
          {"stages_rule", m.stages_rule},
          {"micros_rule", m.micros_rule},
          {"chunks", m.chunks},
          {"chunks_rule", m.chunks_rule},
          {"by_costs", m.by_costs}};
}

// Returns everything that the page's controls are made of.
json about() {
  json all = {{"version", HETU_VERSION}, {"methods", json::array()}};
  for (const Method& m : methods()) all["methods"].push_back(about_method(m));
  Sizes sizes;
  all["sizes"] = about_options(fields(sizes));
  PlanOptions plan;
  all["options"] = about_options(fields(plan));
  PlannerOptions planner;
  all["plan"] = about_options(fields(planner));
  return all;
}

json run(const Arguments& words, const json& files) {
  output().clear();
  const std::string name = words.empty() ? "" : words[0];
  const Ending ending = run_to_end(name, [&] {
    for (const auto& [path, text] : files.items()) write_text(path, text.get<std::string>());
    for (const Command& c : commands())
      if (name == c.name) return c.run({words.begin() + 1, words.end()});
    fail(Code::InvalidArgument, "the playground has no such command");
  });
  std::error_code ignored;
  for (const auto& [path, text] : files.items()) std::filesystem::remove(path, ignored);
  return {{"status", ending.status}, {"output", output()}, {"error", ending.text}};
}

json answer(const std::string& request) {
  const json asked = json::parse(bounded_json(request, "the request"));
  if (asked.contains("about")) return about();
  return run(asked.at("words").get<Arguments>(), asked.value("files", json::object()));
}

}  // namespace

void put(const std::string& text, const std::string& path) {
  if (!path.empty()) return write_text(path, text);
  output() += text;
}

}  // namespace hetu::cli

// Answers a request, both as JSON. {"words": ["simulate", "1f1b", …], "files": {"own.csv": "…"}}
// runs a command, which may read these files, and gives {"status", "output", "error"}: the exit
// status and the texts of the tool `hetu`. {"about": true} gives the methods and the options. The
// result is valid until the next call.
extern "C" const char* hetu_answer(const char* request) {
  static std::string text;
  try {
    text = hetu::cli::answer(request).dump();
  } catch (const std::exception& e) {
    text = nlohmann::json({{"status", 6}, {"output", ""}, {"error", e.what()}})
               .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  return text.c_str();
}
