// `hetu fill`: places K-FAC's work in the bubbles of recorded pipelines.
#include "pipeline/fill/fill.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/natural_order.h"
#include "base/progress_line.h"
#include "cli/command.h"
#include "cli/options.h"
#include "pipeline/fill/timeline_file.h"
#include "pipeline/options/output_format.h"

namespace hetu::cli {
namespace {

struct Request {
  FillOptions options;
  bool workloads = false;
  std::string save_path;
};

std::vector<Option> options_of(Request& r) {
  return {
      {"--save_path", "FILE", "write the labels of every iteration to FILE.json or FILE.pickle",
       [&r](const std::string& text) { r.save_path = text; }},
      {"--print_workloads", nullptr, "print every item and bubble with its times",
       [&r](const std::string&) { r.workloads = true; }},
      {"--slack", "FACTOR",
       "a gap must be longer than FACTOR times the work placed in it "
       "(default: 1.05)",
       [&r](const std::string& text) { r.options.slack = to_number(text); }},
      {"--skip", nullptr,
       "as in the published program: after an entry that is used up, skip the next entry in this "
       "pass",
       [&r](const std::string&) { r.options.skips = true; }},
  };
}

std::string help() {
  Request r;
  return "usage: hetu fill TIMELINE… [options]\n\n"
         "Places the curvature, synchronisation and inversion work of K-FAC in the bubbles of "
         "recorded\n"
         "pipelines, by PipeFisher's rule. A TIMELINE is the record of one node (stage), as JSON "
         "or pickle:\n"
         "a list of [start, end] in ns per label. The list `start_end` has one entry per "
         "iteration; the last\n"
         "iteration is used. An argument may hold several files, separated by commas. Nodes are in "
         "the\n"
         "natural order of the files' names.\n\n" +
         help_text(options_of(r));
}

/// Returns the files that the arguments name, in the order of nodes.
std::vector<std::string> paths_of(const std::vector<std::string>& arguments) {
  std::vector<std::string> paths;
  for (const std::string& argument : arguments)
    for (std::size_t begin = 0; begin <= argument.size();) {
      const std::size_t end = std::min(argument.find(',', begin), argument.size());
      if (end > begin) paths.push_back(argument.substr(begin, end - begin));
      begin = end + 1;
    }
  std::sort(paths.begin(), paths.end(), natural_less);
  return paths;
}

std::string workloads(const FilledNode& node) {
  std::string text;
  const auto line = [&text](const std::string& label, std::int64_t start, std::int64_t end) {
    text += fmt::format("{} {} {} {}\n", label, start, end, end - start);
  };
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    const FilledNode::Item& item = node.items[i];
    if (i > 0 && item.at.start_ns > node.items[i - 1].at.end_ns)
      line("bubble", node.items[i - 1].at.end_ns, item.at.start_ns);
    line(item.label, item.at.start_ns, item.at.end_ns);
  }
  return text;
}

}  // namespace

int fill_command(const Arguments& arguments) {
  if (wants_help(arguments)) return put(help(), ""), 0;
  Request request;
  const std::vector<std::string> paths = paths_of(parse_options(arguments, options_of(request)));
  require(!paths.empty(), "no TIMELINE given; usage: hetu fill TIMELINE…, one per node");
  output_format("", request.save_path, {{"json", {".json"}}, {"pickle", {".pickle", ".pkl"}}},
                "--save_path");
  std::vector<NodeTimeline> nodes;
  const ProgressLine progress("hetu fill", "timelines");
  for (const std::string& path : paths) {
    progress(static_cast<std::int64_t>(nodes.size()), static_cast<std::int64_t>(paths.size()));
    nodes.push_back(read_timeline(path));
  }
  const std::vector<FilledNode> filled = fill_bubbles(nodes, request.options);
  if (!request.save_path.empty()) write_orders(request.save_path, filled);
  std::string text;
  for (std::size_t i = 0; i < filled.size(); ++i) {
    text += fmt::format("node{}:{} pipeline iterations (usage: {:.2f} %)\n", i,
                        filled[i].iterations, 100 * filled[i].usage());
    if (request.workloads) text += workloads(filled[i]);
  }
  progress.close();
  put(text, "");
  return 0;
}

}  // namespace hetu::cli
