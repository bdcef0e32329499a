// A save must never leave a moment without a whole checkpoint, even if a worker is killed while it
// saves. It has three rounds, after each of which all workers know of any error:
//
//   0. Worker 0 locks the folder and creates .step-00000200.saving.
//   1. Every worker writes its files there and returns their rows of the manifest.
//   2. Worker 0 writes the manifest, renames the folder to step-00000200, and removes old steps.
//
// A reader considers only folders whose names begin with "step-" and that contain a manifest. A
// kill before the rename leaves a .saving folder, which the next save removes.
#include "executor/state/checkpoint.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/checksum.h"
#include "base/error.h"
#include "base/log.h"
#include "base/natural_order.h"
#include "base/text_file.h"
#include "executor/state/checkpoint_pieces.h"
#include "executor/state/folder_lock.h"
#include "executor/state/model_folder.h"
#include "executor/state/safetensors.h"
#include "net/transport/gather.h"
#include "net/transport/tag_kinds.h"

namespace hetu {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 2;  // format of a manifest with dtypes
// Format without dtypes; written if all are float32, for readers that support no other.
constexpr int kFloat32Format = 1;
constexpr const char* kManifest = "manifest.json";
constexpr const char* kPrefix = "step-";
constexpr const char* kUnfinished = ".saving";
constexpr const char* kWeightsOnly = "weights_only";  // a key of run_json

json tensor_json(const CheckpointTensor& t) {
  json row = {{"name", t.name},
              {"state", t.state},
              {"file", t.file},
              {"shape", t.shape},
              {"slice", {t.slice_begin, t.slice_end}},
              {"crc32c", t.crc}};
  if (t.dtype != DType::Float32 || !t.foreign.empty()) row["dtype"] = t.dtype_text();
  return row;
}

// Parses a dtype, which is written by Hetu's name, or by the format's name if Hetu doesn't have it.
void take_dtype(const std::string& name, CheckpointTensor& t) {
  DType known{};
  if (parse_format_dtype(name, known, t.foreign) != 0 && !t.foreign.empty()) return;
  t.dtype = parse_dtype(name);
}

CheckpointTensor tensor_of(const json& j) {
  CheckpointTensor t;
  t.name = j.at("name");
  t.state = j.at("state");
  t.file = j.at("file");
  t.shape = j.at("shape").get<Shape>();
  t.slice_begin = j.at("slice").at(0).get<std::vector<std::int64_t>>();
  t.slice_end = j.at("slice").at(1).get<std::vector<std::int64_t>>();
  t.crc = j.at("crc32c");
  take_dtype(j.value("dtype", dtype_name(DType::Float32)), t);
  return t;
}

// Runs `work` on this worker, then makes every worker throw if it failed on any of them. Returns
// the results of all workers.
template <class Work>
std::vector<json> together(std::int64_t step, int round, comm::Transport& transport, Work work) {
  json mine;
  try {
    mine["result"] = work();
  } catch (const std::exception& e) {
    mine["error"] = e.what();
  }
  std::vector<json> results;
  const auto what = [&] { return fmt::format("the checkpoint of step {}", step); };
  const comm::Tag tag = comm::make_tag(kSaveTag, round, 0, 0, static_cast<int>(step));
  for (const std::string& text : gather_texts(mine.dump(), transport, {tag, what})) {
    const json one = json::parse(bounded_json(text, what()));
    if (one.contains("error"))
      fail(Code::Io, "saving step {} failed: {}; earlier checkpoints are unchanged", step,
           one["error"].get<std::string>());
    results.push_back(one["result"]);
  }
  return results;
}

void write_manifest(const fs::path& folder, std::int64_t step, const std::string& run_json,
                    const std::vector<json>& parts) {
  json tensors = json::array();
  bool says_dtypes = false;
  std::set<std::pair<std::string, std::string>> names;
  for (const json& part : parts) {
    for (const json& row : part) {
      const std::string name = row["name"], state = row["state"];
      if (!names.emplace(name, state).second)
        fail(Code::Io, "'{}' is saved twice, by two workers or in two files",
             entry_name(name, state));
      says_dtypes |= row.contains("dtype");
      tensors.push_back(row);
    }
  }
  json body = {{"format", says_dtypes ? kFormat : kFloat32Format},
               {"step", step},
               {"run", json::parse(bounded_json(run_json, "a manifest"))},
               {"tensors", std::move(tensors)}};
  const std::string text = body.dump();
  const json manifest = {{"crc32c", crc_text(crc32c(text.data(), text.size()))},
                         {"checkpoint", std::move(body)}};
  write_synced((folder / kManifest).string(), manifest.dump(1) + "\n");
  sync_directory(folder.string());
}

// Returns true if the path exists. Throws Io if it can't be examined, for example in a folder that
// this user must not read.
bool is_there(const fs::path& path) {
  std::error_code error;
  const bool found = fs::exists(path, error);
  if (error) fail(Code::Io, "{}: cannot be read: {}", path.string(), error.message());
  return found;
}

// Returns the entries of a folder. Throws Io.
std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> out;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    out.push_back(at->path());
  if (error) fail(Code::Io, "{}: cannot be read: {}", folder.string(), error.message());
  return out;
}

// Removes folders that workers left behind when they were killed during a save. Such a worker may
// still be terminating: what it writes meanwhile is left to the next save.
void remove_unfinished(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::path& path : entries_of(folder)) {
    const std::string name = path.filename().string();
    if (name.rfind(std::string(".") + kPrefix, 0) == 0 && path.extension() == kUnfinished)
      found.push_back(path);
  }
  std::error_code ignored;
  for (const fs::path& path : found) fs::remove_all(path, ignored);
}

// Renames a step before removing it, because a kill must not leave half a folder under the name of
// a checkpoint. The new name differs from that of a save of the same step, which may be in
// progress. Another saver that is terminating may remove the same step at the same time. Returns
// the reason if the step still exists, otherwise no error.
std::error_code remove_step(const fs::path& step) {
  const fs::path away =
      step.parent_path() / ("." + step.filename().string() + ".old" + kUnfinished);
  std::error_code error;
  fs::rename(step, away, error);
  std::error_code ignored;  // the next save removes what is left
  if (!error) fs::remove_all(away, ignored);
  return fs::exists(step, ignored) ? error : std::error_code();
}

// Renames a saved folder to its final name, replacing an existing step of the same number. The
// existing one may have been written a moment ago by a saver that is terminating. Returns the final
// path.
//
// Old and new folder are exchanged atomically where the file system supports that. NFS doesn't.
// There the step alternates between the names `step-N` and `step-N+`. The second sorts after the
// first, so readers take it while both exist, and a whole one exists at every moment.
fs::path put_in_place(const fs::path& temporary, const fs::path& target) {
  const fs::path twin = target.string() + "+";
  std::error_code there, ignored;
  fs::rename(temporary, target, there);
  if (!there) {
    if (fs::exists(twin, ignored)) remove_step(twin);
    return target;
  }
  // The error is compared by number, not with std::errc. libstdc++ translates std::errc by error
  // categories, and PyTorch 2.6 brings its own translation, which differs.
  if (there.value() != ENOTEMPTY && there.value() != EEXIST)
    fail(Code::Io, "{}: the new checkpoint cannot be renamed to this name: {}", target.string(),
         there.message());
  if (::renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) == 0) {
    fs::remove_all(temporary, ignored);  // the next save removes what is left
    if (fs::exists(twin, ignored)) remove_step(twin);
    return target;
  }
  const int error = errno;
  const bool can_exchange = error != EINVAL && error != ENOSYS && error != ENOTSUP;
  const bool both = fs::exists(twin, ignored);
  if (!can_exchange && both) remove_step(target);  // readers take its twin meanwhile
  const fs::path& name = both ? target : twin;
  if (!can_exchange) fs::rename(temporary, name, there);
  if (can_exchange || there) {
    fail(Code::Io, "{}: the existing checkpoint cannot be replaced: {}", target.string(),
         std::strerror(error));
  }
  remove_step(both ? twin : target);
  return name;
}

// Removes all but the `keep` highest steps of a training.
void prune(const fs::path& folder, int keep) {
  const std::vector<std::string> all = list_checkpoints(folder.string());
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < all.size(); ++i) {
    if (const std::error_code error = remove_step(all[i]))
      log(Level::Warning, "{}: cannot be removed: {}", all[i], error.message());
  }
}

// Removes every model except the new one. Readers take the highest step, so the highest is removed
// last: until then they read the old model, and afterwards the new one. An old model that remains
// would be read instead of the new one, so a failure is an error.
void remove_other_models(const fs::path& folder, const fs::path& kept) {
  for (const std::string& step : list_checkpoints(folder.string())) {
    if (fs::path(step).filename() == kept.filename()) continue;
    if (const std::error_code error = remove_step(step))
      fail(Code::Io, "{}: the old model cannot be removed: {}", step, error.message());
  }
}

// Throws if the folder holds checkpoints of a training, which a model must not replace.
void refuse_checkpoints(const SavePlace& place) {
  for (const std::string& step : list_checkpoints(place.folder)) {
    if (!fs::exists(fs::path(step) / place.model_file))
      fail(Code::Io,
           "{} holds a checkpoint, not a saved model ({}); choose another folder for the model",
           place.folder, step);
  }
}

}  // namespace

std::string CheckpointTensor::dtype_text() const {
  return foreign.empty() ? dtype_name(dtype) : foreign;
}

std::int64_t CheckpointTensor::bytes() const {
  DType known{};
  std::string name;
  const int bits = parse_format_dtype(format_dtype(dtype, foreign), known, name);
  return element_count(shape) * bits / 8;
}

const CheckpointTensor* Manifest::find(const std::string& name, const std::string& state) const {
  for (const CheckpointTensor& t : tensors) {
    if (t.name == name && t.state == state) return &t;
  }
  return nullptr;
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::vector<std::string> out;
  if (!is_there(folder)) return out;
  std::error_code error;
  if (!fs::is_directory(folder, error)) fail(Code::Io, "{}: not a folder", folder);
  for (const fs::path& path : entries_of(folder)) {
    if (path.filename().string().rfind(kPrefix, 0) == 0 && is_there(path / kManifest))
      out.push_back(path.string());
  }
  std::sort(out.begin(), out.end(), natural_less);  // by step, with any number of digits
  return out;
}

Manifest read_manifest(const std::string& folder) {
  std::string step_folder = folder;
  if (!is_there(fs::path(folder) / kManifest)) {
    const std::vector<std::string> all = list_checkpoints(folder);
    if (all.empty())
      fail(Code::Io, "{}: holds no checkpoint ({}NNNNNNNN/{})", folder, kPrefix, kManifest);
    step_folder = all.back();
  }
  const fs::path path = fs::path(step_folder) / kManifest;
  Manifest out;
  out.folder = step_folder;
  try {
    const json in = json::parse(bounded_json(read_text(path.string()), path.string(), Code::Io));
    const json& body = in.at("checkpoint");
    const std::string text = body.dump();
    const std::string found = crc_text(crc32c(text.data(), text.size())), stated = in.at("crc32c");
    if (found != stated) {
      fail(Code::Io, "{}: its checksum is {}, but it states {}; the file is damaged", path.string(),
           found, stated);
    }
    const int format = body.at("format");
    if (format != kFormat && format != kFloat32Format)
      fail(Code::Io, "{}: format {}, but this build reads {} and {}", path.string(), format,
           kFloat32Format, kFormat);
    out.crc = found;
    if (!body.at("step").is_number_unsigned())
      fail(Code::Io, "{}: its step is {}, expected a whole number of 0 or more", path.string(),
           one_line(body.at("step").dump()));
    out.step = body.at("step");
    out.run_json = body.at("run").dump();
    out.weights_only = body.at("run").value(kWeightsOnly, false);
    for (const json& row : body.at("tensors")) out.tensors.push_back(tensor_of(row));
  } catch (const json::exception& e) {
    fail(Code::Io, "{}: not a manifest, or damaged: {}", path.string(), e.what());
  }
  std::sort(out.tensors.begin(), out.tensors.end(),
            [](const CheckpointTensor& a, const CheckpointTensor& b) {
              return std::pair(a.name, a.state) < std::pair(b.name, b.state);
            });
  return out;
}

std::string weights_only_run(const std::string& source) {
  return json({{kWeightsOnly, true}, {"source", source}}).dump();
}

void save_checkpoint(const SavePlace& place, std::int64_t step, const std::string& run_json,
                     const std::vector<SavePart>& parts, comm::Transport& transport) {
  const std::string& folder = place.folder;
  require(place.keep >= 1, "at least one checkpoint must be kept, got {}", place.keep);
  const fs::path target = fs::path(folder) / fmt::format("{}{:08}", kPrefix, step);
  const fs::path temporary =
      fs::path(folder) / fmt::format(".{}{:08}{}{}", kPrefix, step, place.saver, kUnfinished);
  const bool chief = transport.worker() == 0;
  const auto undo = [&] {
    std::error_code ignored;
    if (chief) fs::remove_all(temporary, ignored);
  };
  std::unique_ptr<FolderLock> lock;
  try {
    together(step, 0, transport, [&] {
      if (chief) {
        lock = std::make_unique<FolderLock>(folder, place.job);
        if (place.model_file != kModelGraph) refuse_models(folder, list_checkpoints(folder));
        if (!place.model_file.empty()) refuse_checkpoints(place);
        remove_unfinished(folder);
        fs::create_directories(temporary);
      }
      return json();
    });
    const std::vector<json> written = together(step, 1, transport, [&] {
      json rows = json::array();
      for (const SavePart& part : parts) {
        for (const CheckpointTensor& t : write_part(temporary.string(), part))
          rows.push_back(tensor_json(t));
      }
      return rows;
    });
    together(step, 2, transport, [&] {
      if (!chief) return json();
      write_manifest(temporary, step, run_json, written);
      const fs::path put = put_in_place(temporary, target);
      sync_directory(folder);
      if (place.model_file.empty())
        prune(folder, place.keep);
      else
        remove_other_models(folder, put);
      return json();
    });
  } catch (...) {
    undo();
    throw;
  }
}

}  // namespace hetu
