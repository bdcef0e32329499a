// `hetu completion`: writes completion scripts for shells. The words come from the --help text of
// each command, so a new option is completed without a change here.
#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "base/words.h"
#include "cli/command.h"
#include "cli/options.h"
#include "cli/outside.h"
#include "pipeline/generate/generate.h"

namespace hetu::cli {
namespace {

constexpr double kHelpTimeout_s = 30;

// Adds the options at the start of a help line: "  -o FILE …", "  -c, --config FILE …".
void add_options(const std::string& line, std::set<std::string>& words) {
  const std::size_t first = line.find_first_not_of(' ');
  if (first == std::string::npos || first < 2 || line[first] != '-') return;
  for (std::string word : split(line.substr(first), ' ')) {
    const bool more = !word.empty() && word.back() == ',';
    if (more) word.pop_back();
    if (word.size() < 2 || word[0] != '-') return;
    words.insert(word);
    if (!more) return;
  }
}

// Adds the verb of a usage line ("hetu checkpoint show DIR") and the options in the line.
void add_usage(const std::string& line, const std::string& command, std::set<std::string>& words) {
  const std::string called = command + " ";
  const std::size_t at = line.find(called);
  if (at != std::string::npos) {
    const std::string next = split(line.substr(at + called.size()), ' ').front();
    const bool is_verb = !next.empty() && std::all_of(next.begin(), next.end(),
                                                      [](char c) { return c >= 'a' && c <= 'z'; });
    if (is_verb) words.insert(next);
  }
  for (std::string word : split(line, ' ')) {
    word.erase(0, word.find_first_not_of("[("));
    const std::size_t end = word.find_first_of("])|,=");
    if (end != std::string::npos) word.resize(end);
    if (word.size() >= 2 && word[0] == '-') words.insert(word);
  }
}

std::set<std::string> words_of(const std::string& command, const std::string& help) {
  std::set<std::string> words = {"--help"};
  bool usage = false;
  for (const std::string& line : split(help, '\n')) {
    usage = line.rfind("usage:", 0) == 0 || (usage && line.rfind("      ", 0) == 0);
    if (usage)
      add_usage(line, command, words);
    else
      add_options(line, words);
  }
  // Every command that takes a method has METHOD in its usage.
  if (help.find(" METHOD") != std::string::npos)
    for (const Method& method : methods()) words.insert(method.name);
  return words;
}

using WordsByCommand = std::map<std::string, std::set<std::string>>;

// Collects the words of all commands. A command whose --help fails completes nothing; heturun fails
// if there is no Python.
WordsByCommand ask_all(const std::string& self, const std::vector<std::string>& names) {
  WordsByCommand all;
  for (const std::string& name : names) {
    if (name == "completion") continue;
    std::vector<std::string> words = {own_program()};
    for (const std::string& word : split(name, ' ')) words.push_back(word);
    words.push_back("--help");
    const Ended help = run_outside(words, kHelpTimeout_s);
    if (help.status == 0) all["hetu " + name] = words_of("hetu " + name, help.output);
    const std::size_t two = name.find(' ');
    if (two != std::string::npos) all["hetu " + name.substr(0, two)].insert(name.substr(two + 1));
    all["hetu"].insert(name.substr(0, two));
  }
  all["hetu"].insert({"completion", "--help", "--version"});
  all["hetu completion"] = {"bash", "zsh"};
  const Ended heturun = run_outside({sibling_program(self, "heturun"), "--help"}, kHelpTimeout_s);
  if (heturun.status == 0) all["heturun"] = words_of("heturun", heturun.output);
  return all;
}

// Returns the cases of the lookup. The scripts look up the longest command that the words before
// the cursor begin with.
std::string cases(const WordsByCommand& all) {
  std::string out;
  for (const auto& [command, words] : all) {
    std::string listed;
    for (const std::string& w : words) listed += (listed.empty() ? "" : " ") + w;
    out += fmt::format("    '{}') words='{}' ;;\n", command, listed);
  }
  return out;
}

std::string script(const std::string& shell, const WordsByCommand& all) {
  const std::string lookup = fmt::format(
      "# Made by `hetu completion {0}`. {1}\n"
      "_hetu_words() {{  # what may follow the words given\n"
      "  local words=\n"
      "  case \"$*\" in\n{2}  esac\n"
      "  printf '%s' \"$words\"\n"
      "}}\n",
      shell,
      shell == "bash" ? "In ~/.bashrc: eval \"$(hetu completion bash)\""
                      : "In ~/.zshrc, after compinit: eval \"$(hetu completion zsh)\"",
      cases(all));
  if (shell == "bash")
    return lookup +
           "_hetu() {\n"
           "  local word=${COMP_WORDS[COMP_CWORD]} first=${COMP_WORDS[0]##*/} words=\n"
           "  (( COMP_CWORD > 2 )) && words=$(_hetu_words \"$first\" \"${COMP_WORDS[1]}\" "
           "\"${COMP_WORDS[2]}\")\n"
           "  [ -z \"$words\" ] && (( COMP_CWORD > 1 )) && words=$(_hetu_words \"$first\" "
           "\"${COMP_WORDS[1]}\")\n"
           "  [ -z \"$words\" ] && { (( COMP_CWORD == 1 )) || [ \"$first\" = heturun ]; } && "
           "words=$(_hetu_words \"$first\")\n"
           "  COMPREPLY=( $(compgen -W \"$words\" -- \"$word\") )\n"
           "}\n"
           "complete -o default -o bashdefault -F _hetu hetu heturun\n";
  return "#compdef hetu heturun\n" + lookup +
         "_hetu() {\n"
         "  local first=${words[1]:t} found=\n"
         "  local -a given=( \"${words[@]}\" )\n"
         "  (( CURRENT > 3 )) && found=$(_hetu_words $first ${given[2]} ${given[3]})\n"
         "  [ -z \"$found\" ] && (( CURRENT > 2 )) && found=$(_hetu_words $first ${given[2]})\n"
         "  [ -z \"$found\" ] && { (( CURRENT == 2 )) || [ \"$first\" = heturun ]; } && "
         "found=$(_hetu_words $first)\n"
         "  compadd -- ${=found}\n"
         "  _files\n"
         "}\n"
         "compdef _hetu hetu heturun\n";
}

}  // namespace

int completion_command(const Arguments& arguments) {
  if (wants_help(arguments)) {
    put("usage: hetu completion bash|zsh\n"
        "A script for the shell, made of what each command's own --help lists, with which it\n"
        "completes commands, options and methods of hetu and heturun: eval \"$(hetu completion "
        "bash)\".\n",
        "");
    return 0;
  }
  require(arguments.size() == 1, "needs one shell: bash or zsh");
  const std::string shell = one_of(arguments[0], {"bash", "zsh"});
  put(script(shell, ask_all(own_program(), command_names())), "");
  return 0;
}

}  // namespace hetu::cli
