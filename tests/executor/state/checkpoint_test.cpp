#include "executor/state/checkpoint.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <sstream>
#include <thread>

#include "base/checksum.h"
#include "base/error.h"
#include "executor/state/copy_behind.h"
#include "executor/state/folder_lock.h"
#include "executor/state/model_folder.h"
#include "executor/state/safetensors.h"
#include "executor/state/shared_folder.h"
#include "net/transport/inproc.h"
#include "tests/executor/worker_threads.h"

// Replaces renameat2 to imitate a file system that can't exchange two folders, such as NFS.
namespace {
bool can_exchange = true;
}
extern "C" int renameat2(int from, const char* old_path, int to, const char* new_path,
                         unsigned flags) noexcept {
  if (can_exchange)
    return static_cast<int>(::syscall(SYS_renameat2, from, old_path, to, new_path, flags));
  errno = EINVAL;
  return -1;
}

namespace hetu {
namespace {

namespace fs = std::filesystem;

class Checkpoint : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("hetu-checkpoint-" + std::to_string(::getpid()));
    fs::remove_all(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string folder() const { return folder_.string(); }

  // Saves a checkpoint from two workers with one tensor each. Returns the error.
  std::string try_save(std::int64_t step, float value, int keep = 3) {
    const auto work = [&](comm::Transport& links) {
      const int w = links.worker();
      std::vector<float> data(6, value + static_cast<float>(w));
      const std::string name = w == 0 ? "a" : "b";
      const SavePart part = {"stage-" + std::to_string(w) + ".safetensors",
                             {{name, "", {2, 3}, host_span(data.data(), 6), true},
                              {name, "exp_avg", {2, 3}, host_span(data.data(), 6), true}}};
      save_checkpoint({folder(), keep}, step, R"({"seed":5})", {part}, links);
    };
    return on_worker_threads(2, work);
  }
  void save(std::int64_t step, float value, int keep = 3) {
    EXPECT_EQ(try_save(step, value, keep), "");
  }

  float load(const std::string& name) {
    std::vector<float> data(6, -1);
    load_checkpoint(read_manifest(folder()), {{name, "", {2, 3}, host_span(data.data(), 6), true}});
    return data[0];
  }

  fs::path folder_;
};

TEST_F(Checkpoint, KeepsBytesOfAnyDtypeInOneName) {
  const std::vector<char> bytes = {1, 2, 3, 4, 5, 6};
  const auto part = [&](const std::string& file) {
    SavePart out{file, {}, {}, {}};
    RawTensor t;
    t.name = "raw";
    t.foreign = "F8_E4M3";
    t.shape = {2, 3};
    t.pieces = [&](const TensorSource::Take& take) { take(bytes.data(), 2), take(&bytes[2], 4); };
    out.raw.push_back(std::move(t));
    return out;
  };
  const auto save = [&](const std::vector<SavePart>& parts) {
    return on_worker_threads(
        1, [&](comm::Transport& links) { save_checkpoint({folder()}, 1, "{}", parts, links); });
  };
  EXPECT_THAT(save({part("a"), part("b")}), testing::HasSubstr("'raw' is saved twice"));
  EXPECT_EQ(save({part("a")}), "");
  CheckpointReader reader(folder());
  const CheckpointTensor& row = reader.manifest().tensors.at(0);
  std::vector<char> found(6);
  reader.read(row, found.data());
  EXPECT_EQ(found, bytes);
  std::vector<float> floats(6);
  EXPECT_THAT([&] { read_tensor(reader.manifest(), row, floats.data()); },
              testing::ThrowsMessage<Error>(
                  testing::HasSubstr("'raw' is F8_E4M3, expected float32 or bfloat16")));
}

TEST_F(Checkpoint, ComesBackAndKeepsTheNewest) {
  EXPECT_TRUE(list_checkpoints(folder()).empty());
  for (int step = 1; step <= 5; ++step) save(step, static_cast<float>(10 * step));
  EXPECT_EQ(list_checkpoints(folder()).size(), 3U);
  const Manifest m = read_manifest(folder());
  EXPECT_EQ(m.step, 5);
  EXPECT_EQ(m.run_json, R"({"seed":5})");
  ASSERT_EQ(m.tensors.size(), 4U);
  EXPECT_EQ(m.tensors[1].state, "exp_avg");
  EXPECT_EQ(load("a"), 50);
  EXPECT_EQ(load("b"), 51);
  save(5, 99);  // overwrites the checkpoint of the same step
  EXPECT_EQ(load("a"), 99);
  EXPECT_EQ(list_checkpoints(folder()).size(), 3U);
}

// A thread prunes the same folder, like a saver of another pipeline that is about to die. Both may
// try to remove the same checkpoint, and no save may fail because of it.
TEST_F(Checkpoint, PrunesBesideAnotherThatPrunes) {
  save(0, 0, 1);
  std::atomic<bool> over{false};
  int moved = 0;
  std::thread other([&] {
    std::error_code taken;
    while (!over) {
      const std::vector<std::string> all = list_checkpoints(folder());
      for (std::size_t i = 0; i + 1 < all.size(); ++i) {
        const fs::path away = folder_ / ("." + fs::path(all[i]).filename().string() + ".saving");
        fs::rename(all[i], away, taken);
        if (!taken) ++moved;
        fs::remove_all(away, taken);
      }
    }
  });
  for (int step = 1; step <= 100; ++step) save(step, static_cast<float>(step), 1);
  over = true;
  other.join();
  EXPECT_GT(moved, 0);
  EXPECT_EQ(list_checkpoints(folder()).size(), 1U);
  EXPECT_EQ(load("a"), 100);
}

// Saves a model from one worker: a tensor, and the file that distinguishes a model from a
// checkpoint.
void save_as_model(const std::string& folder, std::int64_t step, float value) {
  std::vector<float> data(6, value);
  const std::vector<SavePart> parts = {
      {"stage-0.safetensors", {{"a", "", {2, 3}, host_span(data.data(), 6), true}}},
      {"model.txt", {}, std::to_string(step)}};
  auto transports = comm::make_inproc(1);
  save_checkpoint({folder, 1, "", "model.txt"}, step, "{}", parts, *transports[0]);
}

TEST_F(Checkpoint, ASavedModelReplacesTheOldOneWhateverItsStep) {
  for (const std::int64_t step : {200, 100, 100, 300, 0, 123456789, 99999999}) {
    save_as_model(folder(), step, static_cast<float>(step));
    EXPECT_EQ(list_checkpoints(folder()).size(), 1U);
    EXPECT_EQ(read_manifest(folder()).step, step);
    EXPECT_EQ(load("a"), static_cast<float>(step));
  }
}

TEST_F(Checkpoint, AStepIsSavedAgainWhereFoldersCannotBeExchanged) {
  can_exchange = false;
  for (int value = 1; value <= 5; ++value) {
    save(5, static_cast<float>(value));
    EXPECT_EQ(load("a"), static_cast<float>(value));
    EXPECT_EQ(list_checkpoints(folder()).size(), 1U);
  }
  // The state that a kill leaves between the rename to the new name and the removal of the old
  // folder.
  fs::copy(folder_ / "step-00000005", folder_ / "step-00000005+", fs::copy_options::recursive);
  save(5, 9);
  EXPECT_EQ(load("a"), 9);
  EXPECT_EQ(list_checkpoints(folder()).size(), 1U);
  fs::remove_all(folder_);
  for (int value = 1; value <= 3; ++value) {
    save_as_model(folder(), 7, static_cast<float>(value));
    EXPECT_EQ(load("a"), static_cast<float>(value));
    EXPECT_EQ(list_checkpoints(folder()).size(), 1U);
  }
  can_exchange = true;
  save_as_model(folder(), 7, 8);
  EXPECT_EQ(load("a"), 8);
  EXPECT_EQ(list_checkpoints(folder()).size(), 1U);
}

TEST_F(Checkpoint, AModelIsNotSavedOverCheckpointsOfATraining) {
  save(1, 1);
  save(2, 2);
  EXPECT_THAT([&] { save_as_model(folder(), 3, 3); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("holds a checkpoint, not a saved")));
  EXPECT_EQ(list_checkpoints(folder()).size(), 2U);
  EXPECT_EQ(load("a"), 2);
}

// The steps of a training would hide the model: readers take the highest step.
TEST_F(Checkpoint, ATrainingDoesNotSaveIntoAModelsFolder) {
  const fs::path model = folder_ / "step-00000007";
  save(7, 3);
  std::ofstream(model / kModelGraph) << "a graph";
  const auto refused = testing::ThrowsMessage<Error>(testing::HasSubstr("holds a saved model"));
  EXPECT_THAT(try_save(8, 4), testing::HasSubstr("holds a saved model"));
  EXPECT_THAT([&] { save_as_model(folder(), 9, 5); }, refused) << "steps with another file";
  auto transports = comm::make_inproc(1);
  EXPECT_THAT([&] { claim_folder(folder(), "", *transports[0]); }, refused);
  EXPECT_EQ(list_checkpoints(folder()), std::vector<std::string>{model.string()});
  EXPECT_EQ(load("a"), 3);
  fs::remove(model / kModelGraph);
  EXPECT_NE(claim_folder(folder(), "", *transports[0]), nullptr);
}

TEST_F(Checkpoint, StepsOfNineDigitsComeAfterThoseOfEight) {
  save(99999999, 1);
  save(100000000, 2);
  EXPECT_EQ(load("a"), 2);
}

// A child process saves models of ever lower steps until it is killed. The folder must then hold,
// whole, either the last model that the child completed or the next one.
TEST_F(Checkpoint, AKilledSaveLeavesTheOldModelOrTheNewOne) {
  std::mt19937 random(7);
  int newer = 0;
  for (int trial = 0; trial < 60; ++trial) {
    int told[2];
    ASSERT_EQ(::pipe(told), 0);
    constexpr int kFirst = 100000;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      for (int step = kFirst; step > 0; --step) {
        save_as_model(folder(), step, static_cast<float>(step));
        if (::write(told[1], &step, sizeof step) != sizeof step) break;
      }
      ::_exit(0);
    }
    ::close(told[1]);
    int last = kFirst, step = 0;
    ASSERT_EQ(::read(told[0], &last, sizeof last), static_cast<ssize_t>(sizeof last));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    while (::read(told[0], &step, sizeof step) == static_cast<ssize_t>(sizeof step)) last = step;
    ::close(told[0]);
    const std::int64_t found = read_manifest(folder()).step;
    EXPECT_TRUE(found == last || found == last - 1) << found << " after " << last;
    EXPECT_EQ(load("a"), static_cast<float>(found));
    newer += found != last;
  }
  std::printf("of 60 killed saves %d left the new model\n", newer);
}

TEST_F(Checkpoint, NamesWhatIsMissingOrOfAnotherShape) {
  save(1, 1);
  std::vector<float> data(6);
  EXPECT_THAT(
      [&] {
        load_checkpoint(read_manifest(folder()),
                        {{"c", "", {2, 3}, host_span(data.data(), 6), true}});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("has no 'c'")));
  EXPECT_THAT(
      [&] {
        load_checkpoint(read_manifest(folder()),
                        {{"a", "", {3, 2}, host_span(data.data(), 6), true}});
      },
      testing::ThrowsMessage<Error>(
          testing::HasSubstr("'a' is [2, 3], but the model expects [3, 2]")));
  EXPECT_THAT([&] { read_manifest(folder() + "/nowhere"); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("holds no checkpoint")));
}

TEST_F(Checkpoint, FindsEveryFlippedByte) {
  save(1, 1);
  const fs::path at = list_checkpoints(folder()).back();
  int flips = 0;
  for (const char* name : {"manifest.json", "stage-0.safetensors", "stage-1.safetensors"}) {
    const auto size = static_cast<std::int64_t>(fs::file_size(at / name));
    for (std::int64_t i = 0; i < size; ++i, ++flips) {
      std::fstream file(at / name, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(i);
      const char old = static_cast<char>(file.get());
      const char flipped = static_cast<char>(old ^ 0x10);
      file.seekp(i);
      file.put(flipped);
      file.flush();
      std::vector<float> data(24, -1);
      bool found = false;
      try {
        const Manifest m = read_manifest(folder());
        load_checkpoint(m, {{"a", "", {2, 3}, host_span(data.data(), 6), true},
                            {"b", "", {2, 3}, host_span(data.data() + 6, 6), true},
                            {"a", "exp_avg", {2, 3}, host_span(data.data() + 12, 6), true},
                            {"b", "exp_avg", {2, 3}, host_span(data.data() + 18, 6), true}});
      } catch (const Error& e) {
        found = true;
        EXPECT_EQ(e.code(), Code::Io) << e.what();
      }
      // Flips in blanks and in unread fields may pass. The values must be right even then.
      if (!found) {
        for (int k = 0; k < 24; ++k)
          ASSERT_EQ(data[k], k % 12 < 6 ? 1 : 2) << name << " byte " << i;
      }
      file.seekp(i);
      file.put(old);
    }
  }
  EXPECT_GT(flips, 500);
  EXPECT_EQ(load("a"), 1);
}

TEST_F(Checkpoint, AFailedSaveLeavesTheOldOneWhole) {
  save(1, 1);
  // Root can write anywhere. A file in place of the folder makes the save fail for root too.
  if (::geteuid() == 0) {
    std::ofstream(folder_ / ".step-00000002.saving") << "in the way";
  }
  const SavePart part = {"sub/stage-0.safetensors", {}};  // the folder "sub" does not exist
  auto transports = comm::make_inproc(1);
  EXPECT_THAT(
      [&] {
        save_checkpoint({folder(), 3}, 2, "{}", {part}, *transports[0]);
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("saving step 2 failed")));
  EXPECT_EQ(list_checkpoints(folder()).size(), 1U);
  EXPECT_EQ(load("a"), 1);
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_EQ(entry.path().filename(), "step-00000001");
}

// Root may read every folder, so the test changes to another user.
TEST_F(Checkpoint, AFolderThatMustNotBeReadIsAnIoError) {
  save(1, 1);
  fs::permissions(folder_, fs::perms::none);
  const bool root = ::geteuid() == 0;
  ASSERT_EQ(::seteuid(root ? 65534 : ::geteuid()), 0);
  for (const fs::path& path : {folder_, folder_ / "step-00000001"}) {
    EXPECT_THAT([&] { read_manifest(path.string()); },
                testing::ThrowsMessage<Error>(testing::HasSubstr("cannot be read: Permission")));
  }
  ASSERT_EQ(::seteuid(root ? 0 : ::geteuid()), 0);
  fs::permissions(folder_, fs::perms::owner_all);
}

// Deep brackets would overflow the stack of the recursive functions that read the manifest.
TEST_F(Checkpoint, ADeepManifestIsRefused) {
  save(1, 1);
  const fs::path at = fs::path(list_checkpoints(folder()).back()) / "manifest.json";
  std::ofstream(at) << R"({"checkpoint": {"run": )" + std::string(200000, '[') +
                           std::string(200000, ']') + R"(}, "crc32c": "0"})";
  EXPECT_THAT([&] { read_manifest(folder()); },
              testing::ThrowsMessage<Error>(testing::HasSubstr("nest deeper than 64")));
}

TEST_F(Checkpoint, AFifoInPlaceOfAFileIsRefusedWithoutWaiting) {
  save(1, 1);
  const fs::path at = list_checkpoints(folder()).back();
  for (const char* name : {"stage-0.safetensors", "manifest.json"}) {
    fs::remove(at / name);
    ASSERT_EQ(::mkfifo((at / name).c_str(), 0600), 0);
    EXPECT_THAT([&] { load("a"); }, testing::ThrowsMessage<Error>(testing::HasSubstr("is a FIFO")));
  }
}

// A child process that holds the folder's lock until its end of the pipe is closed or it is killed.
class Holder {
 public:
  Holder(const std::string& folder, const std::string& job) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    child_ = ::fork();
    if (child_ == 0) {
      const FolderLock lock(folder, job);
      if (::write(ready[1], "x", 1) == 1) ::pause();
      ::_exit(0);
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
  }
  ~Holder() { kill(); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  void kill() {
    if (child_ > 0) ::kill(child_, SIGKILL), ::waitpid(child_, nullptr, 0);
    child_ = 0;
  }
  pid_t process() const { return child_; }

 private:
  pid_t child_ = 0;
};

TEST_F(Checkpoint, AFolderThatAnotherJobHoldsIsRefusedAndFreeAfterItsDeath) {
  Holder other(folder(), "one");
  const std::string says = "process " + std::to_string(other.process()) + " on host ";
  for (const char* job : {"two", ""}) {
    EXPECT_THAT([&] { FolderLock lock(folder(), job); },
                testing::ThrowsMessage<Error>(testing::AllOf(
                    testing::HasSubstr(says), testing::HasSubstr("choose another folder"))));
  }
  EXPECT_THAT([&] { save_as_model(folder(), 1, 1); },
              testing::ThrowsMessage<Error>(testing::HasSubstr(says)));
  EXPECT_NO_THROW(FolderLock(folder(), "one"));  // another process of the same job
  other.kill();
  EXPECT_TRUE(fs::exists(folder_ / ".hetu-lock")) << "the dead leave the file";
  save_as_model(folder(), 1, 1);
  EXPECT_FALSE(fs::exists(folder_ / ".hetu-lock"));
  EXPECT_EQ(load("a"), 1);
}

// A process that gets the lock writes its job's name into the file a moment later. Until then the
// file is empty or names a dead job.
TEST_F(Checkpoint, ProcessesOfOneJobThatLockAtOnceAllPass) {
  constexpr int kRounds = 200, kProcesses = 4;
  fs::create_directories(folder_);
  for (int round = 0; round < kRounds; ++round) {
    std::ofstream(folder_ / ".hetu-lock") << (round % 2 == 0 ? "" : "old job\nold host\n7\n");
    int start[2];
    ASSERT_EQ(::pipe(start), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i) {
      children.push_back(::fork());
      if (children.back() != 0) continue;
      ::close(start[1]);
      char byte = 0;
      // All children continue when the parent closes its end.
      if (::read(start[0], &byte, 1) != 0) ::_exit(2);
      try {
        const FolderLock lock(folder(), "one");
        ::usleep(500);
      } catch (const Error&) {
        ::_exit(1);
      }
      ::_exit(0);
    }
    ::close(start[0]);
    ::close(start[1]);
    for (const pid_t child : children) {
      int status = 0;
      ::waitpid(child, &status, 0);
      EXPECT_EQ(status, 0) << "round " << round;
    }
  }
}

TEST_F(Checkpoint, AHeldFolderIsSharedWithinItsProcess) {
  {
    const FolderLock whole(folder());
    save(1, 1);
    EXPECT_TRUE(fs::exists(folder_ / ".hetu-lock")) << "the save must not end the lock around it";
    const FolderLock again(folder());
  }
  EXPECT_FALSE(fs::exists(folder_ / ".hetu-lock"));
  EXPECT_EQ(load("a"), 1);
}

TEST_F(Checkpoint, ALockRemovesTheFolderThatItMadeIfNothingCameIntoIt) {
  { const FolderLock lock(folder()); }
  EXPECT_FALSE(fs::exists(folder_));
  fs::create_directories(folder_);
  { const FolderLock lock(folder()); }
  EXPECT_TRUE(fs::exists(folder_));
}

TEST_F(Checkpoint, AFolderThatCannotBeMadeIsRefused) {
  fs::create_directories(folder_);
  fs::create_symlink("nowhere/else", folder_ / "dangling");
  std::ofstream(folder_ / "file") << "x";
  for (const char* name : {"dangling", "file", "file/below"}) {
    EXPECT_THAT([&] { FolderLock lock(folder() + "/" + name); },
                testing::ThrowsMessage<Error>(testing::HasSubstr("the folder cannot be created")))
        << name;
  }
}

TEST_F(Checkpoint, TruncatedAndForeignFilesAreRefused) {
  fs::create_directories(folder_);
  std::mt19937 random(1);
  const std::string path = (folder_ / "x.safetensors").string();
  const std::vector<float> data(10, 3);
  write_safetensors(path, {{"t", DType::Float32, {10}, data.data()}});
  const auto whole = fs::file_size(path);
  std::vector<float> back(10);
  {
    const SafetensorsFile file(path);
    ASSERT_NE(file.find("t"), nullptr);
    file.read(*file.find("t"), back.data());
    EXPECT_EQ(back, data);
  }
  for (std::uintmax_t size = 0; size < whole; ++size) {
    fs::resize_file(path, size);
    EXPECT_THROW(SafetensorsFile{path}, Error) << size;
    write_safetensors(path, {{"t", DType::Float32, {10}, data.data()}});
  }
  EXPECT_THROW(SafetensorsFile((folder_ / "none").string()), Error);
}

TEST(Crc32c, MatchesThePublishedCheckValue) {
  // Source: RFC 3720, the polynomial of appendix B.4.
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283U);
  EXPECT_EQ(crc32c("6789", 4, crc32c("12345", 5)), 0xE3069283U);
}

TEST_F(Checkpoint, FilesAreCopiedBehindWhatComputes) {
  fs::create_directories(folder_);
  const std::vector<std::string> texts = {std::string(3'000'001, 'x') + "end", "", "y"};
  std::vector<std::pair<std::string, std::string>> files;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    files.emplace_back(folder_ / std::to_string(i), folder_ / ("copy" + std::to_string(i)));
    std::ofstream(files[i].first) << texts[i];
  }
  std::ofstream(files[2].second) << "longer than what is copied";
  copy_behind(files);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    std::stringstream copied;
    copied << std::ifstream(files[i].second).rdbuf();
    EXPECT_EQ(copied.str(), texts[i]);
  }
  EXPECT_THAT(
      [&] {
        copy_behind({{folder_ / "none", folder_ / "copy"}});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("/none: No such file")));
  EXPECT_THAT(
      [&] {
        copy_behind({{files[0].first, folder_ / "no" / "copy"}});
      },
      testing::ThrowsMessage<Error>(testing::HasSubstr("/no/copy: No such file")));
}

TEST(Crc32c, IsTheDivisionBitByBit) {
  const auto by_bits = [](const unsigned char* data, std::size_t bytes, std::uint32_t before) {
    std::uint32_t crc = ~before;
    for (std::size_t i = 0; i < bytes; ++i) {
      crc ^= data[i];
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78U : 0);
    }
    return ~crc;
  };
  std::mt19937 random(5);
  std::array<unsigned char, 200> data;
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(random());
  for (std::size_t bytes = 0; bytes <= 100; ++bytes) {
    for (const std::size_t at : {0, 1, 3, 7, 8, 61}) {
      const std::uint32_t before = random();
      EXPECT_EQ(crc32c(data.data() + at, bytes, before), by_bits(data.data() + at, bytes, before))
          << bytes << " bytes from " << at;
    }
  }
}

}  // namespace
}  // namespace hetu
