// The `hetu` tool: the table of commands.
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/nearest.h"
#include "base/standard_streams.h"
#include "base/text_file.h"
#include "cli/command.h"
#include "cli/ending.h"
#include "cli/options.h"
#include "cli/outside.h"
#include "cli/training.h"
#include "config/env.h"

namespace hetu::cli {
namespace {

// Commands of one purpose, with an example.
struct CommandGroup {
  const char* title;
  const char* example;
  std::vector<Command> commands;
};

const std::vector<CommandGroup>& groups() {
  static const std::vector<CommandGroup> kGroups = {
      {"Plans",
       "hetu simulate 1f1b --stages 4 --micro-batches 8 --forward 10 --backward 22",
       {
           {"schedule", "generates the plan of a method, or reads one, and prints it",
            schedule_command, nullptr},
           {"verify", "verifies a plan: complete, no deadlock, one weight version, within memory",
            verify_command, nullptr},
           {"simulate", "predicts a plan's times, bubbles and memory under given costs",
            simulate_command, nullptr},
           {"plan",
            "finds the fastest plan for given machines, with its cut and workers, and proves how "
            "far it can be from the optimum",
            plan_command, nullptr},
           {"choose",
            "ranks every method by predicted time per sample under given costs and memory",
            choose_command, nullptr},
           {"timeline", "draws traces of runs and plans on one time axis", timeline_command,
            nullptr},
           {"fill",
            "places K-FAC's work in the bubbles of recorded pipelines, by PipeFisher's rule",
            fill_command, nullptr},
       }},
      {"Measure and run",
       "hetu rehearse 1f1b --stages 4 --micro-batches 8 --time-unit 5ms",
       {
           {"rehearse",
            "runs a plan on real workers with kernels that only wait, and compares it with "
            "its prediction",
            rehearse_command, nullptr},
           {"compare", "shows where a run deviated from its plan, and why", compare_command,
            nullptr},
           {"profile",
            "measures the blocks of a training script's model, and writes the costs for hetu plan",
            nullptr, "profile.training"},
           {"profile-blocks",
            "measures a transformer block on this machine, and writes its table of costs", nullptr,
            "profile.blocks"},
           {"checkpoint", "shows, compares, exports and imports checkpoints", checkpoint_command,
            nullptr},
       }},
      {"Data",
       "hetu data check ~/.cache/hetu/datasets/wikicorpus_en",
       {
           {"data check",
            "reads a data set once (BERT shards, images, CIFAR-100, click logs), and reports its "
            "contents",
            data_check_command, nullptr},
           {"data prepare", "converts text to BERT shards (HDF5)", nullptr, "sample.prepare"},
           {"data vocabulary", "builds a WordPiece vocabulary from text", nullptr,
            "sample.vocabulary"},
           {"data sample",
            "writes small synthetic data: BERT shards, images (ImageNet's or CIFAR-100's layout) "
            "or "
            "click logs",
            nullptr, "sample"},
       }},
      {"Jobs (heturun starts them; see heturun --help)",
       "heturun -w 4 python3 train_bert.py --devices pipe_2_2 --data DIR",
       {
           {"ps serve", "runs a stand-alone parameter server, for your own programs (hetu.ps)",
            ps_serve_command, nullptr},
           {"ps status",
            "shows tables, clocks, clients and bytes of the parameter servers of a job",
            ps_status_command, nullptr},
       }},
      {"Other",
       "hetu doctor",
       {
           {"doctor",
            "tests the programs and libraries that Hetu uses on this machine, and says what "
            "to install",
            doctor_command, nullptr},
           {"completion", "prints a script with which bash or zsh completes these commands",
            completion_command, nullptr},
           {"genschedule",
            "prints a stage's order in Varuna's schedule, in the format of Varuna's "
            "program",
            nullptr, "compat.varuna.genschedule"},
           {"simulate-varuna",
            "prints the line of Varuna's simulator, predicted by Hetu's simulator", nullptr,
            "compat.varuna.simulate"},
       }},
  };
  return kGroups;
}

const std::vector<Command>& commands() {
  static const std::vector<Command> kCommands = [] {
    std::vector<Command> all;
    for (const CommandGroup& g : groups())
      all.insert(all.end(), g.commands.begin(), g.commands.end());
    return all;
  }();
  return kCommands;
}

std::string rows_of(const std::vector<Command>& some) {
  std::vector<HelpRow> rows;
  for (const Command& c : some) rows.push_back({c.name, c.meaning});
  return two_columns(rows, 19);
}

std::string help() {
  std::string text = "usage: hetu COMMAND …      hetu COMMAND --help\n";
  for (const CommandGroup& g : groups())
    text += fmt::format("\n{}:\n{}  Example:  {}\n", g.title, rows_of(g.commands), g.example);
  return text;
}

// Returns the two-word commands that begin with `name`. For "ps": "ps serve" and "ps status".
std::vector<Command> parts_of(const std::string& name) {
  std::vector<Command> parts;
  for (const Command& c : commands())
    if (std::string(c.name).rfind(name + " ", 0) == 0) parts.push_back(c);
  return parts;
}

std::string help_of_parts(const std::string& name, const std::vector<Command>& parts) {
  return fmt::format("usage: hetu {0} COMMAND …      hetu {0} COMMAND --help\n\n{1}", name,
                     rows_of(parts));
}

// Returns the command's name for error messages: both words of "data check", and the first argument
// if it names no command.
std::string command_of(const Arguments& words) {
  if (words.empty()) return "";
  const std::string first = words[0].substr(0, 20);
  if (words.size() < 2) return first;
  const std::vector<Command> parts = parts_of(words[0]);
  const bool is_known = std::any_of(parts.begin(), parts.end(), [&](const Command& c) {
    return words[0] + " " + words[1] == c.name;
  });
  return is_known ? words[0] + " " + words[1] : first;
}

std::string version_text() { return fmt::format("hetu {}\n", HETU_VERSION); }

// Replaces this process by Python: the one in this binary's folder (a virtual environment's bin),
// or else the one on PATH.
[[noreturn]] void run_module(const Command& command, const std::string& self,
                             const Arguments& arguments) {
  require_module(command.module);
  std::vector<std::string> words = {sibling_program(self, "python3"), "-m",
                                    fmt::format("hetu.{}", command.module)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  fail(Code::Io, "python3 cannot be started; hetu {} is written in Python", command.name);
}

int dispatch(const std::string& self, const Arguments& words) {
  env();  // reads and checks every environment variable, and sets the log level
  if (words.empty()) {
    std::fputs(help().c_str(), stderr);
    return 2;
  }
  const std::string& name = words[0];
  if (name == "--help" || name == "-h" || name == "help") return put(help(), ""), 0;
  if (name == "--version") return put(version_text(), ""), 0;
  const auto find = [](const std::string& wanted) {
    return std::find_if(commands().begin(), commands().end(),
                        [&](const Command& c) { return wanted == c.name; });
  };
  const std::vector<Command> parts = parts_of(name);
  if (!parts.empty() && words.size() < 2) {
    std::fputs(help_of_parts(name, parts).c_str(), stderr);
    return 2;
  }
  if (!parts.empty() && (words[1] == "--help" || words[1] == "-h"))
    return put(help_of_parts(name, parts), ""), 0;
  const std::string full = parts.empty() ? name : name + " " + words[1];
  const auto at = find(full);
  std::vector<const char*> names;
  for (const Command& c : commands())
    if (parts.empty() || std::string(c.name).rfind(name + " ", 0) == 0) names.push_back(c.name);
  if (at == commands().end()) {
    const std::string meant = did_you_mean(full, {names.begin(), names.end()});
    fail(Code::InvalidArgument, "unknown '{}'{} known: {}", shortened(full),
         meant.empty() ? ";" : meant, fmt::join(names, ", "));
  }
  const Arguments arguments(words.begin() + (parts.empty() ? 1 : 2), words.end());
  if (at->run == nullptr) run_module(*at, self, arguments);
  return at->run(arguments);
}

}  // namespace

std::vector<std::string> command_names() {
  std::vector<std::string> names;
  for (const Command& c : commands()) names.push_back(c.name);
  return names;
}

void put(const std::string& text, const std::string& path) {
  if (!path.empty()) return write_text(path, text);
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) fail(Code::Io, "standard output cannot be written");
}

}  // namespace hetu::cli

int main(int argc, char** argv) {
  hetu::reserve_standard_streams();
  const hetu::cli::Arguments words(argv + std::min(argc, 1), argv + argc);
  const std::string command = hetu::cli::command_of(words);
  const hetu::cli::Ending ending = hetu::cli::run_to_end(
      command, [&] { return hetu::cli::dispatch(argc > 0 ? argv[0] : "", words); });
  std::fputs(ending.text.c_str(), stderr);
  return ending.status;
}
