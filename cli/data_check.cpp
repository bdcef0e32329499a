// `hetu data check`: reads a data set once and reports its contents and problems. The kind of data
// set follows from the files in the folder.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/machine_cores.h"
#include "base/progress_line.h"
#include "cli/command.h"
#include "cli/options.h"
#include "datasets/bert_hdf5.h"
#include "datasets/bert_text.h"
#include "datasets/criteo.h"
#include "datasets/image_check.h"
#include "datasets/image_list.h"

namespace hetu::cli {
namespace {

namespace fs = std::filesystem;

ProgressLine progress_of(const char* unit) { return {"hetu data check", unit}; }

// is_folder and is_file return false for a path that cannot be examined. Reading it later reports
// the reason.
bool is_folder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

// Returns true if the predicate holds for an entry of the folder. A folder that can't be read to
// its end ends the search. Reading it later reports the reason.
template <class Predicate>
bool holds(const std::string& folder, const Predicate& predicate) {
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (predicate(at->path())) return true;
  return false;
}

// The printed result of a check.
struct Report {
  std::string text;
  std::vector<std::string> problems;
};

double percent(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

Report check_bert(const std::string& folder) {
  const BertCheck r = check_bert_hdf5(folder, progress_of("shards"));
  return {fmt::format(
              "{}: {} training shards ({} other HDF5 files ignored), {} rows of {} tokens, at most "
              "{} masked\n"
              "vocabulary {}; {} tokens without padding, {:.1f} % of them masked; {:.1f} % random "
              "next sentences\n"
              "unigram entropy of the masked targets {:.4f} nats\n",
              folder, r.files, r.files_left, r.rows, r.sequence_length, r.max_predictions,
              r.vocabulary_size, r.tokens, percent(r.targets, r.tokens),
              percent(r.random_next, r.rows), r.target_entropy),
          r.problems};
}

std::string text_of(const std::string& what, const ImageCheck& r) {
  return fmt::format(
      "{}: {} images in {} classes ({} to {} each), {:.1f} MB, sides of {} to {} pixels, {} "
      "cannot be read\n",
      what, r.images, r.classes, r.least_per_class, r.most_per_class,
      static_cast<double>(r.bytes) / 1e6, r.least_side, r.most_side, r.unreadable);
}

ImageCheck check_folder(const std::string& folder, int threads, Report& report) {
  ImageCheck r = check_image_folder(folder, threads, progress_of("images"));
  report.text += text_of(folder, r);
  report.problems.insert(report.problems.end(), r.problems.begin(), r.problems.end());
  const auto left = r.unreadable - static_cast<std::int64_t>(r.problems.size());
  if (left > 0) report.problems.push_back(fmt::format("{}: and {} more", folder, left));
  return r;
}

bool holds_folders(const std::string& folder) {
  return holds(folder, [](const fs::path& path) { return is_folder(path); });
}

bool holds_images(const std::string& folder) {
  return holds(folder, [](const fs::path& path) { return is_image(path.string()); });
}

Report check_folders(const std::string& path, int threads) {
  Report report;
  const bool has_train = holds_folders(path + "/train"), has_val = holds_folders(path + "/val");
  if (!has_train && !has_val) {
    check_folder(path, threads, report);
    return report;
  }
  if (!has_train || !has_val) {
    check_folder(path + (has_train ? "/train" : "/val"), threads, report);
    report.problems.push_back(
        fmt::format("{}: there are no class folders in {}", path, has_train ? "val" : "train"));
    return report;
  }
  const ImageCheck train = check_folder(path + "/train", threads, report);
  const ImageCheck val = check_folder(path + "/val", threads, report);
  const auto [one, other] = std::mismatch(train.class_names.begin(), train.class_names.end(),
                                          val.class_names.begin(), val.class_names.end());
  if (one == train.class_names.end() && other == val.class_names.end()) return report;
  report.problems.push_back(fmt::format(
      "{}: train and val have different classes, starting with class {} ('{}' and '{}'), so their "
      "labels would differ",
      path, one - train.class_names.begin(), one == train.class_names.end() ? "none" : *one,
      other == val.class_names.end() ? "none" : *other));
  return report;
}

Report check_cifar(const std::string& path) {
  Report report;
  if (!is_folder(path)) {
    report.text = text_of(path, check_cifar100(path, true));
    return report;
  }
  for (const bool train : {true, false}) {
    try {
      const std::string what = fmt::format("{}, {}", path, train ? "training" : "testing");
      report.text += text_of(what, check_cifar100(path, train));
    } catch (const Error& error) {
      if (error.code() != Code::Io) throw;
      report.problems.emplace_back(error.what());
    }
  }
  return report;
}

bool holds_shards(const std::string& folder) {
  return holds(folder, [](const fs::path& path) {
    return path.extension() == ".hdf5" || path.extension() == ".h5";
  });
}

bool holds_cifar(const std::string& folder) {
  for (const char* name : {"train.bin", "test.bin", "train", "test"}) {
    if (is_file(folder + "/" + name)) return true;
  }
  return is_folder(folder + "/cifar-100-binary") || is_folder(folder + "/cifar-100-python");
}

// Returns true if the file holds click logs. Other kinds of text have no tab in their first line.
bool is_clicks(const std::string& path) {
  const fs::path file(path);
  if (file.extension() == ".tsv" || file.filename().string().rfind("day_", 0) == 0) return true;
  if (file.extension() != ".txt") return false;
  std::string line(4096, '\0');
  std::ifstream(path).getline(line.data(), static_cast<std::streamsize>(line.size()));
  return line.find('\t') != std::string::npos;
}

bool holds_clicks(const std::string& folder) {
  return holds(folder, [](const fs::path& path) { return is_file(path) && is_clicks(path); });
}

Report check_clicks(const std::vector<std::string>& paths) {
  Report report;
  for (const std::string& path : paths) {
    const CriteoCheck r = check_criteo(path, progress_of("files"));
    const std::int64_t good = r.rows - r.bad_rows;
    report.text += fmt::format(
        "{}: click logs, {} files, {} rows, {} of them bad; {:.2f} % clicked, {:.1f} % of the "
        "columns empty, {} integers below 0\n",
        path, r.files, r.rows, r.bad_rows, percent(r.clicks, good), percent(r.missing, 39 * good),
        r.negative);
    report.problems.insert(report.problems.end(), r.problems.begin(), r.problems.end());
  }
  return report;
}

Report check_text(BertTextOptions text) {
  if (text.vocabulary.empty()) {
    text.vocabulary = (fs::path(text.path).parent_path() / "vocab.txt").string();
    require(is_file(text.vocabulary),
            "{} is read as text, but there is no vocab.txt in its folder; give --vocab FILE",
            text.path);
  }
  const BertTextCheck r = check_bert_text(text, progress_of("sentences"));
  return {fmt::format("{}: text, {:.1f} MB, {} sentences in {} documents, {} rows of {} tokens\n"
                      "{} tokens, {:.1f} per sentence, {:.2f} % of them not in the vocabulary\n",
                      text.path, static_cast<double>(r.bytes) / 1e6, r.sentences, r.documents,
                      r.rows, text.sequence_length, r.tokens,
                      static_cast<double>(r.tokens) / static_cast<double>(r.sentences),
                      percent(r.unknown, r.tokens)),
          r.problems};
}

bool is_text(const std::string& path) { return fs::path(path).extension() == ".txt"; }

// Determines the kind of data set and checks it. Tests for files with fixed names come before tests
// for images and click logs, which many folders would pass.
Report check(const std::string& path, int threads, const BertTextOptions& text) {
  std::error_code error;
  if (!fs::exists(path, error)) fail(Code::Io, "{}: no such file or folder", path);
  if (!is_folder(path)) {
    const fs::path ending = fs::path(path).extension();
    require(ending != ".hdf5" && ending != ".h5", "{}: give the folder of the shards, not one file",
            path);
    if (!text.vocabulary.empty()) return check_text(text);
    if (is_clicks(path)) return check_clicks({path});
    if (is_text(path)) return check_text(text);
    return check_cifar(path);
  }
  const fs::directory_iterator readable(path, error);
  if (error) fail(Code::Io, "{}: cannot be read: {}", path, error.message());
  if (holds_shards(path)) return check_bert(path);
  if (holds_cifar(path)) return check_cifar(path);
  if (holds_clicks(path + "/train")) return check_clicks({path + "/train", path + "/val"});
  if (holds_folders(path) || holds_images(path)) return check_folders(path, threads);
  if (holds_clicks(path)) return check_clicks({path});
  fail(Code::Io,
       "{}: no BERT shards (*.hdf5), no CIFAR-100 files (train.bin, train, …), no class folders of "
       "images and no click logs (day_0, …, *.tsv); to check text, give the file",
       path);
}

constexpr const char* kUsage =
    "usage: hetu data check PATH [--threads N] [--vocab FILE …]\n\n"
    "Reads a whole data set once and checks it. Supported data sets:\n"
    "  - a folder of BERT training shards\n"
    "  - images in a folder per class, or train and val folders of such folders\n"
    "  - a file or folder of CIFAR-100\n"
    "  - click logs in Criteo's format: a file, a folder of day files, or train and val folders\n"
    "  - text (*.txt) with one sentence per line and a blank line between documents\n"
    "Exits 4 if it finds an error.\n\n";

}  // namespace

int data_check_command(const Arguments& arguments) {
  int threads = machine_cores();
  BertTextOptions text;
  const std::vector<Option> options = {
      {"--threads", "N", "number of threads that decode images (default: all processors)",
       [&](const std::string& given) { threads = static_cast<int>(to_integer(given, 1, 4096)); }},
      {"--vocab", "FILE", "text: WordPiece vocabulary (default: vocab.txt in the text's folder)",
       [&](const std::string& given) { text.vocabulary = given; }},
      {"--cased", nullptr, "text: keep capital letters and accents",
       [&](const std::string&) { text.lower_case = false; }},
      {"--encoding", "NAME", "text: encoding, utf-8 or latin-1 (default: utf-8)",
       [&](const std::string& given) { text.encoding = text_encoding(given); }},
      {"--sequence-length", "N", "text: tokens per row (default: 128)",
       [&](const std::string& given) { text.sequence_length = to_integer(given, 5, 1 << 20); }}};
  if (wants_help(arguments)) {
    put(kUsage + help_text(options), "");
    return 0;
  }
  const std::vector<std::string> paths = parse_options(arguments, options);
  require(paths.size() == 1, "expected one folder or file, got {} arguments", paths.size());
  text.path = paths[0];
  const Report report = check(paths[0], threads, text);
  for (const std::string& problem : report.problems) {
    std::fprintf(stderr, "hetu data check: %s\n", problem.c_str());
  }
  put(report.text, "");
  return report.problems.empty() ? 0 : exit_status(Code::Io);
}

}  // namespace hetu::cli
