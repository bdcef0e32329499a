#include "executor/state/shared_folder.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "executor/state/checkpoint.h"
#include "executor/state/model_folder.h"
#include "net/transport/gather.h"
#include "net/transport/tag_kinds.h"

namespace hetu {
namespace {

namespace fs = std::filesystem;

// An empty file with a unique name, which the destructor removes.
class Probe {
 public:
  explicit Probe(const std::string& folder) {
    fs::path place = fs::absolute(folder);
    std::error_code ignored;
    // The folder may not exist yet. Its nearest existing parent is then tested.
    while (!fs::is_directory(place, ignored) && place.has_relative_path()) {
      place = place.parent_path();
    }
    path_ = (place / ".hetu-shared-XXXXXX").string();
    const int file = mkstemp(path_.data());
    if (file < 0) {
      error_ = fmt::format("{}: cannot be written: {}", place.string(), std::strerror(errno));
      return;
    }
    close(file);
  }
  ~Probe() {
    if (error_.empty()) unlink(path_.c_str());
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;

  const std::string& path() const { return path_; }
  const std::string& error() const { return error_; }

 private:
  std::string path_;
  std::string error_;
};

// Throws the error of worker 0, if it has one, in every worker.
void share_error(const std::string& error, comm::Transport& transport) {
  const std::vector<std::string> all = gather_texts(
      error, transport,
      {comm::make_tag(kSharedTag, 0, 0, 2, 0), "the check that the folder can be written"});
  if (!all[0].empty()) fail(Code::Io, "{}", all[0]);
}

bool one_host(const comm::Transport& transport) {
  for (int w = 1; w < transport.workers(); ++w) {
    if (transport.host_of(w) != transport.host_of(0)) return false;
  }
  return true;
}

}  // namespace

void check_shared_folder(const std::string& folder, comm::Transport& transport) {
  if (one_host(transport)) return;
  const auto gather = [&](const std::string& mine, int part) {
    return gather_texts(
        mine, transport,
        {comm::make_tag(kSharedTag, 0, 0, part, 0), "the check that all hosts share the folder"});
  };
  if (transport.worker() == 0) {
    const Probe probe(folder);
    const std::string& error = probe.error();
    // The first character is + before a path and - before an error.
    gather(error.empty() ? "+" + probe.path() : "-" + error, 0);
    if (!error.empty()) fail(Code::Io, "{}", error);
    const std::vector<std::string> seen = gather("", 1);
    for (int w = 1; w < transport.workers(); ++w) {
      if (!seen[w].empty()) fail(Code::Io, "{}", seen[w]);
    }
    return;
  }
  const std::string said = gather("", 0)[0];
  if (said[0] == '-') fail(Code::Io, "{}", said.substr(1));
  const bool there = access(said.substr(1).c_str(), F_OK) == 0;
  const std::string mine = there ? ""
                                 : fmt::format(
                                       "{}: worker {} on {} does not see a file that worker 0 on "
                                       "{} wrote there; use a folder that all hosts share",
                                       folder, transport.worker(),
                                       transport.host_of(transport.worker()), transport.host_of(0));
  for (const std::string& text : gather(mine, 1)) {
    if (!text.empty()) fail(Code::Io, "{}", text);
  }
}

std::unique_ptr<FolderLock> claim_folder(const std::string& folder, const std::string& job,
                                         comm::Transport& transport) {
  std::unique_ptr<FolderLock> lock;
  std::string error;
  if (transport.worker() == 0) {
    try {
      refuse_models(folder, list_checkpoints(folder));
      lock = std::make_unique<FolderLock>(folder, job);
    } catch (const Error& e) {
      error = e.what();
    }
  }
  share_error(error, transport);
  check_shared_folder(folder, transport);
  return lock;
}

}  // namespace hetu
