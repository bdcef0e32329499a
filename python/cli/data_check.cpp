#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

#include "datasets/bert_hdf5.h"
#include "graph/base/error.h"
#include "python/cli/command.h"
#include "python/cli/options.h"

namespace hetu::cli {
namespace {

// One line that is drawn anew on a terminal, one line every ten seconds elsewhere.
class Progress {
 public:
  void operator()(int done, int files) {
    using std::chrono::steady_clock;
    const bool terminal = ::isatty(STDERR_FILENO) != 0;
    const auto pause = terminal ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
    if (steady_clock::now() - last_ < pause && !(terminal && done == files)) return;
    last_ = steady_clock::now();
    std::fprintf(stderr, "%s%d of %d shards%s", terminal ? "\r" : "", done, files,
                 terminal && done < files ? "" : "\n");
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

double percent(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string report_text(const std::string& folder, const BertCheck& r) {
  return fmt::format(
      "{}: {} training shards ({} other HDF5 files left alone), {} rows of {} tokens, at most {} "
      "masked\n"
      "vocabulary {}; {} tokens without padding, {:.1f} % of them masked; {:.1f} % random next "
      "sentences\n"
      "unigram entropy of the masked targets {:.4f} nats\n",
      folder, r.files, r.files_left, r.rows, r.sequence_length, r.max_predictions,
      r.vocabulary_size, r.tokens, percent(r.targets, r.tokens), percent(r.random_next, r.rows),
      r.target_entropy);
}

}  // namespace

int data_check_command(const Arguments& arguments) {
  if (wants_help(arguments)) {
    put("usage: hetu data check PATH\n\nReads every row of the BERT training shards in the folder "
        "PATH. Exits 4 if a shard is not right.\n",
        "");
    return 0;
  }
  const std::vector<std::string> paths = parse_options(arguments, {});
  require(paths.size() == 1, "check needs one folder of shards, got {} arguments", paths.size());
  const BertCheck report = check_bert_hdf5(paths[0], Progress());
  for (const std::string& problem : report.problems) {
    std::fprintf(stderr, "hetu data check: %s\n", problem.c_str());
  }
  put(report_text(paths[0], report), "");
  return report.problems.empty() ? 0 : exit_status(Code::Io);
}

}  // namespace hetu::cli
