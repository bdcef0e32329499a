#include "datasets/image_check.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "datasets/cifar.h"
#include "datasets/image.h"
#include "datasets/image_list.h"
#include "datasets/row_threads.h"

namespace hetu {
namespace {

constexpr std::int64_t kAtOnce = 256;
constexpr std::size_t kMostProblems = 20;

// The observations of one thread.
struct Seen {
  Image image;
  std::int64_t bytes = 0;
  int least_side = 0, most_side = 0;
};

void note_size(Seen& seen) {
  const auto [low, high] = std::minmax(seen.image.width, seen.image.height);
  seen.least_side = seen.least_side == 0 ? low : std::min(seen.least_side, low);
  seen.most_side = std::max(seen.most_side, high);
}

// Checks one image. Returns an error text, or an empty string.
std::string check_one(const std::string& path, Seen& seen) {
  try {
    const std::vector<std::uint8_t> bytes = read_whole_file(path);
    seen.bytes += static_cast<std::int64_t>(bytes.size());
    const DecodeTrouble trouble = decode_image(bytes, seen.image);
    if (!trouble.empty()) return fmt::format("{}: {}", path, trouble);
    note_size(seen);
    return "";
  } catch (const Error& error) {
    if (error.code() == Code::Unsupported) return fmt::format("{}: {}", path, error.what());
    if (error.code() != Code::Io) throw;
    return error.what();
  }
}

void add_up(const std::vector<Seen>& seen, ImageCheck& report) {
  for (const Seen& one : seen) {
    report.bytes += one.bytes;
    report.most_side = std::max(report.most_side, one.most_side);
    if (one.least_side == 0) continue;
    report.least_side =
        report.least_side == 0 ? one.least_side : std::min(report.least_side, one.least_side);
  }
}

}  // namespace

ImageCheck check_image_folder(
    const std::string& folder, int threads,
    const std::function<void(std::int64_t done, std::int64_t all)>& progress) {
  require_image_support();
  const ImageList list(folder);
  ImageCheck report;
  report.images = list.images();
  report.classes = list.classes();
  report.least_per_class = list.images();
  for (int label = 0; label < list.classes(); ++label) {
    const std::int64_t images = list.first_of(label + 1) - list.first_of(label);
    report.least_per_class = std::min(report.least_per_class, images);
    report.most_per_class = std::max(report.most_per_class, images);
    report.class_names.push_back(list.class_name(label));
  }
  RowThreads rows(threads);
  std::vector<Seen> seen(static_cast<std::size_t>(threads));
  for (std::int64_t first = 0; first < list.images(); first += kAtOnce) {
    const std::int64_t count = std::min(kAtOnce, list.images() - first);
    std::vector<std::string> troubles(static_cast<std::size_t>(count));
    rows.each(count, [&](std::int64_t row, int thread) {
      troubles[static_cast<std::size_t>(row)] =
          check_one(list.path(first + row), seen[static_cast<std::size_t>(thread)]);
    });
    for (const std::string& trouble : troubles) {
      if (trouble.empty()) continue;
      ++report.unreadable;
      if (report.problems.size() < kMostProblems) report.problems.push_back(trouble);
    }
    if (progress) progress(first + count, list.images());
  }
  add_up(seen, report);
  return report;
}

ImageCheck check_cifar100(const std::string& path, bool train) {
  const Cifar100 set = read_cifar100(path, train);
  std::vector<std::int64_t> counts(Cifar100::kClasses);
  for (const std::uint8_t label : set.labels) ++counts[label];
  ImageCheck report;
  report.images = set.rows();
  report.bytes = static_cast<std::int64_t>(set.pixels.size());
  report.least_side = report.most_side = Cifar100::kSide;
  report.classes = static_cast<int>(
      std::count_if(counts.begin(), counts.end(), [](std::int64_t n) { return n > 0; }));
  report.least_per_class = *std::min_element(counts.begin(), counts.end());
  report.most_per_class = *std::max_element(counts.begin(), counts.end());
  return report;
}

}  // namespace hetu
