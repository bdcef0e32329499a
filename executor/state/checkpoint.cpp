#include "executor/state/checkpoint.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "executor/comm/gather.h"
#include "executor/comm/tag_kinds.h"
#include "executor/state/safetensors.h"
#include "graph/base/checksum.h"
#include "graph/base/error.h"
#include "graph/base/log.h"

namespace hetu {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kFormat = 1;
constexpr const char* kManifest = "manifest.json";
constexpr const char* kPrefix = "step-";
constexpr const char* kUnfinished = ".saving";
constexpr std::int64_t kPiece = 1 << 20;              // elements that are read or written at once
constexpr const char* kWeightsOnly = "weights_only";  // a key of run_json

std::string entry_name(const std::string& name, const std::string& state) {
  return state.empty() ? name : name + "#" + state;
}

json tensor_json(const CheckpointTensor& t) {
  return {{"name", t.name},
          {"state", t.state},
          {"file", t.file},
          {"shape", t.shape},
          {"slice", {t.slice_begin, t.slice_end}},
          {"crc32c", t.crc}};
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
  return t;
}

std::string read_text(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(Code::Io, "{}: cannot be read", path.string());
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Ranges of whole rows of a tensor, of about kPiece elements.
template <class Visit>
void each_piece(const Shape& shape, const Visit& visit) {
  const std::int64_t elements = element_count(shape);
  const std::int64_t row = shape.empty() || shape[0] == 0 ? elements : elements / shape[0];
  const std::int64_t step = std::max<std::int64_t>(1, kPiece / std::max<std::int64_t>(1, row)) *
                            std::max<std::int64_t>(1, row);
  for (std::int64_t begin = 0; begin < elements; begin += step)
    visit(begin, std::min(step, elements - begin));
}

// Writes one file; adds the JSON rows of what it holds.
void write_part(const fs::path& folder, const SavePart& part, json& rows) {
  if (!part.text.empty()) return write_synced((folder / part.file).string(), part.text);
  std::vector<TensorSource> sources;
  std::vector<std::vector<float>> rooms(part.tensors.size());  // for what lies on a device
  std::vector<std::uint32_t> sums(part.tensors.size(), 0);
  for (std::size_t i = 0; i < part.tensors.size(); ++i) {
    const StateTensor& t = part.tensors[i];
    TensorSource source{entry_name(t.name, t.state), DType::Float32, t.shape};
    source.pieces = [&t, &room = rooms[i], &sum = sums[i]](const TensorSource::Take& take) {
      const float* const data = t.blocks ? nullptr : t.values.host(room);
      each_piece(t.shape, [&](std::int64_t begin, std::int64_t elements) {
        const float* piece = data + begin;
        if (t.blocks) {
          room.resize(static_cast<std::size_t>(elements));
          t.blocks->read(begin, elements, room.data());
          piece = room.data();
        }
        sum = crc32c(piece, static_cast<std::size_t>(elements) * 4, sum);
        take(piece, elements * 4);
      });
      room = {};
    };
    sources.push_back(std::move(source));
  }
  write_safetensors((folder / part.file).string(), sources, {{"format", "pt"}});
  for (std::size_t i = 0; i < part.tensors.size(); ++i) {
    const StateTensor& t = part.tensors[i];
    CheckpointTensor row;
    row.name = t.name;
    row.state = t.state;
    row.file = part.file;
    row.shape = t.shape;
    row.slice_begin.assign(t.shape.size(), 0);
    row.slice_end = t.shape;
    row.crc = crc_text(sums[i]);
    rows.push_back(tensor_json(row));
  }
}

// Runs `work` on this worker, then makes every worker throw if any of them did.
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
    const json one = json::parse(text);
    if (one.contains("error"))
      fail(Code::Io, "saving step {} failed: {}", step, one["error"].get<std::string>());
    results.push_back(one["result"]);
  }
  return results;
}

void write_manifest(const fs::path& folder, std::int64_t step, const std::string& run_json,
                    const std::vector<json>& parts) {
  json tensors = json::array();
  for (const json& part : parts) {
    for (const json& row : part) tensors.push_back(row);
  }
  json body = {{"format", kFormat},
               {"step", step},
               {"run", json::parse(run_json)},
               {"tensors", std::move(tensors)}};
  const std::string text = body.dump();
  const json manifest = {{"crc32c", crc_text(crc32c(text.data(), text.size()))},
                         {"checkpoint", std::move(body)}};
  write_synced((folder / kManifest).string(), manifest.dump(1) + "\n");
  sync_directory(folder.string());
}

// What workers that were killed while they saved left behind. One of them may yet be dying: what it
// writes in between is left to the next save.
void remove_unfinished(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind(std::string(".") + kPrefix, 0) == 0 && entry.path().extension() == kUnfinished)
      found.push_back(entry.path());
  }
  std::error_code ignored;
  for (const fs::path& path : found) fs::remove_all(path, ignored);
}

// A step that is saved again takes the place of the old one at once: there is no moment without
// either. The old one may be that of a dying saver, a moment old.
void put_in_place(const fs::path& beside, const fs::path& target) {
  std::error_code there;
  fs::rename(beside, target, there);
  if (!there) return;
  if (there != std::errc::directory_not_empty && there != std::errc::file_exists)
    fail(Code::Io, "{}: cannot get its name: {}", target.string(), there.message());
  if (::renameat2(AT_FDCWD, beside.c_str(), AT_FDCWD, target.c_str(), RENAME_EXCHANGE) != 0) {
    fail(Code::Io, "{}: cannot take the place of the checkpoint that is there: {}", target.string(),
         std::strerror(errno));
  }
  std::error_code ignored;  // what is left goes with the next save
  fs::remove_all(beside, ignored);
}

// Old ones that a dying saver prunes at the same time are gone, or half gone; the next save removes
// what is left.
void prune(const fs::path& folder, int keep) {
  const std::vector<std::string> all = list_checkpoints(folder.string());
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < all.size(); ++i) {
    // Renamed first: what a kill leaves of a folder half removed is no checkpoint.
    const fs::path old(all[i]);
    const fs::path away = folder / ("." + old.filename().string() + kUnfinished);
    std::error_code error;
    fs::rename(old, away, error);
    if (!error) fs::remove_all(away, error);
    std::error_code ignored;
    if (error && fs::exists(old, ignored))
      log(Level::Warning, "{}: cannot be removed: {}", old.string(), error.message());
  }
}

}  // namespace

const CheckpointTensor* Manifest::find(const std::string& name, const std::string& state) const {
  for (const CheckpointTensor& t : tensors) {
    if (t.name == name && t.state == state) return &t;
  }
  return nullptr;
}

std::vector<std::string> list_checkpoints(const std::string& folder) {
  std::vector<std::string> out;
  if (!fs::exists(folder)) return out;
  if (!fs::is_directory(folder)) fail(Code::Io, "{}: is no folder", folder);
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (entry.path().filename().string().rfind(kPrefix, 0) == 0 &&
        fs::exists(entry.path() / kManifest)) {
      out.push_back(entry.path().string());
    }
  }
  std::sort(out.begin(), out.end());  // steps are written with leading zeros
  return out;
}

Manifest read_manifest(const std::string& folder) {
  std::string step_folder = folder;
  if (!fs::exists(fs::path(folder) / kManifest)) {
    const std::vector<std::string> all = list_checkpoints(folder);
    if (all.empty())
      fail(Code::Io, "{}: holds no checkpoint ({}NNNNNNNN/{})", folder, kPrefix, kManifest);
    step_folder = all.back();
  }
  const fs::path path = fs::path(step_folder) / kManifest;
  Manifest out;
  out.folder = step_folder;
  try {
    const json in = json::parse(read_text(path));
    const json& body = in.at("checkpoint");
    const std::string text = body.dump();
    const std::string found = crc_text(crc32c(text.data(), text.size())), stated = in.at("crc32c");
    if (found != stated) {
      fail(Code::Io, "{}: its checksum is {}, it states {}; the file is damaged", path.string(),
           found, stated);
    }
    const int format = body.at("format");
    if (format != kFormat)
      fail(Code::Io, "{}: format {}, this build reads {}", path.string(), format, kFormat);
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

void read_tensor_pieces(const Manifest& manifest, const CheckpointTensor& tensor,
                        const TakePiece& take) {
  const std::string path = (fs::path(manifest.folder) / tensor.file).string();
  const SafetensorsFile file(path);
  const std::string name = entry_name(tensor.name, tensor.state);
  const TensorEntry* entry = file.find(name);
  if (!entry || entry->shape != tensor.shape || entry->dtype != DType::Float32) {
    fail(Code::Io, "{}: has no float32 tensor '{}' {} that the manifest names; the file is damaged",
         path, name, to_string(tensor.shape));
  }
  std::uint32_t crc = 0;
  std::vector<float> piece;
  each_piece(tensor.shape, [&](std::int64_t begin, std::int64_t elements) {
    piece.resize(static_cast<std::size_t>(elements));
    file.read(*entry, begin * 4, elements * 4, piece.data());
    crc = crc32c(piece.data(), piece.size() * 4, crc);
    take(begin, elements, piece.data());
  });
  if (crc_text(crc) != tensor.crc) {
    fail(Code::Io,
         "{}: tensor '{}' has checksum {}, the manifest states {}; the file is damaged: remove {} "
         "to go on from an older checkpoint",
         path, name, crc_text(crc), tensor.crc, manifest.folder);
  }
}

void read_tensor(const Manifest& manifest, const CheckpointTensor& tensor, float* to) {
  read_tensor_pieces(manifest, tensor,
                     [&](std::int64_t begin, std::int64_t elements, const float* data) {
                       std::copy_n(data, elements, to + begin);
                     });
}

std::string weights_only_run(const std::string& source) {
  return json({{kWeightsOnly, true}, {"source", source}}).dump();
}

void save_checkpoint(const SavePlace& place, std::int64_t step, const std::string& run_json,
                     const std::vector<SavePart>& parts, comm::Transport& transport) {
  const std::string& folder = place.folder;
  require(place.keep >= 1, "at least one checkpoint must be kept, got {}", place.keep);
  const fs::path target = fs::path(folder) / fmt::format("{}{:08}", kPrefix, step);
  const fs::path beside =
      fs::path(folder) / fmt::format(".{}{:08}{}{}", kPrefix, step, place.saver, kUnfinished);
  const bool chief = transport.worker() == 0;
  const auto undo = [&] {
    std::error_code ignored;
    if (chief) fs::remove_all(beside, ignored);
  };
  try {
    together(step, 0, transport, [&] {
      if (chief) {
        fs::create_directories(folder);
        remove_unfinished(folder);
        fs::create_directories(beside);
      }
      return json();
    });
    const std::vector<json> written = together(step, 1, transport, [&] {
      json rows = json::array();
      for (const SavePart& part : parts) write_part(beside, part, rows);
      return rows;
    });
    together(step, 2, transport, [&] {
      if (!chief) return json();
      write_manifest(beside, step, run_json, written);
      put_in_place(beside, target);
      sync_directory(folder);
      prune(folder, place.keep);
      return json();
    });
  } catch (...) {
    undo();
    throw;
  }
}

void refuse_strangers(const Manifest& manifest, const std::vector<std::string>& parameters) {
  for (const CheckpointTensor& t : manifest.tensors) {
    if (std::find(parameters.begin(), parameters.end(), t.name) == parameters.end()) {
      fail(Code::Io, "{}: holds '{}' {}, which the model has not; it is of another model",
           manifest.folder, entry_name(t.name, t.state), to_string(t.shape));
    }
  }
}

void load_checkpoint(const Manifest& manifest, const std::vector<StateTensor>& tensors) {
  std::vector<float> values;
  for (const StateTensor& t : tensors) {
    const CheckpointTensor* found = manifest.find(t.name, t.state);
    const bool is_new = !found && manifest.weights_only && !t.state.empty();
    if (!found && !is_new) {
      fail(Code::Io, "{}: has no '{}' {}; it is of another model or optimizer", manifest.folder,
           entry_name(t.name, t.state), to_string(t.shape));
    }
    if (found && found->shape != t.shape) {
      fail(Code::Io, "{}: '{}' is {}, the model wants {}", manifest.folder,
           entry_name(t.name, t.state), to_string(found->shape), to_string(t.shape));
    }
    if (t.blocks) {
      if (found)  // what is not written is zero
        read_tensor_pieces(manifest, *found,
                           [&](std::int64_t begin, std::int64_t elements, const float* data) {
                             t.blocks->write(begin, elements, data);
                           });
      continue;
    }
    values.assign(static_cast<std::size_t>(t.values.elements), 0.0F);
    if (found) read_tensor(manifest, *found, values.data());
    t.values.write(values.data());
  }
}

}  // namespace hetu
