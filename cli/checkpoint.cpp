// `hetu checkpoint`: shows, compares, exports and imports checkpoints.
#include "base/error.h"
#include "base/progress_line.h"
#include "cli/command.h"
#include "cli/options.h"
#include "executor/state/checkpoint_report.h"
#include "executor/state/weights_file.h"
#include "pipeline/options/output_format.h"

namespace hetu::cli {
namespace {

// If DIR is a folder that `--checkpoint` named, the command uses its newest step.
constexpr const char* kHelp =
    "usage: hetu checkpoint show DIR\n"
    "       hetu checkpoint diff DIR DIR\n"
    "       hetu checkpoint export DIR -o FILE.safetensors\n"
    "       hetu checkpoint import FILE.safetensors -o DIR\n\n"
    "DIR is a training's checkpoint folder, whose newest step is used, or the folder of one "
    "step.\n\n"
    "  show    prints the step, run, files and tensors\n"
    "  diff    prints the largest difference of each weight and optimizer state; exits 0 if all "
    "are\n"
    "          equal bit for bit, and 1 otherwise\n"
    "  export  writes the weights, named as in Hugging Face's bert-* models\n"
    "  import  writes a checkpoint of step 0 for --resume; optimizer states start at zero. FILE "
    "may be\n"
    "          a model.safetensors.index.json, or a folder with that file or a model.safetensors\n";

struct Request {
  std::string action;
  Arguments paths;
  std::string output;
};

Request parse(const Arguments& arguments) {
  Request r;
  const std::vector<Option> options = {{"-o", "PATH", "output of export and import",
                                        [&r](const std::string& text) { r.output = text; }}};
  r.paths = parse_options(arguments, options);
  require(!r.paths.empty(), "no action given; use show, diff, export or import (see --help)");
  r.action = one_of(r.paths[0], {"show", "diff", "export", "import"});
  r.paths.erase(r.paths.begin());
  const std::size_t wanted = r.action == "diff" ? 2 : 1;
  require(r.paths.size() == wanted, "{} takes {} path{}, got {}", r.action, wanted,
          wanted == 1 ? "" : "s", r.paths.size());
  const bool writes = r.action == "export" || r.action == "import";
  require(!writes || !r.output.empty(), "{} needs -o PATH", r.action);
  require(writes || r.output.empty(), "{} writes no file; -o is for export and import", r.action);
  return r;
}

}  // namespace

int checkpoint_command(const Arguments& arguments) {
  if (wants_help(arguments)) return put(kHelp, ""), 0;
  const Request r = parse(arguments);
  const ProgressLine progress("hetu checkpoint " + r.action, "tensors");
  if (r.action == "show") {
    const std::string text = describe_checkpoint(r.paths[0]);
    progress.close();
    put(text, "");
  } else if (r.action == "diff") {
    const std::vector<TensorDifference> found =
        compare_checkpoints(r.paths[0], r.paths[1], progress);
    progress.close();
    put(to_string(found), "");
    return all_equal(found) ? 0 : 1;
  } else if (r.action == "export") {
    output_format("", r.output, {{"safetensors", {".safetensors"}}});
    const int tensors = export_weights(r.paths[0], r.output, progress);
    progress.close();
    put(fmt::format("{}: {} tensors\n", r.output, tensors), "");
  } else {
    const Imported made = import_weights(r.paths[0], r.output, progress);
    progress.close();
    put(fmt::format("{}: {} parameters; {} tensors of the file were not needed\n", made.folder,
                    made.tensors, made.dropped),
        "");
  }
  return 0;
}

}  // namespace hetu::cli
