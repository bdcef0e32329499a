// Tests a full disk under a server's log, on a small file system in memory. The error is one line
// with the file and its length. Acknowledged updates are there once there is room, and the job
// continues.
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>

#include <cerrno>
#include <cstring>
#include <future>

#include "tests/ps/server/logged_store.h"
#include "tests/ps/server/served_parameters.h"
#include "tests/temporary_folder.h"

namespace hetu::ps {
namespace {

using testing::AllOf;
using testing::HasSubstr;

/// A small file system in a mount namespace of this process and its children.
class SmallDisk {
 public:
  SmallDisk() {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", path().c_str(), "tmpfs", 0, "size=4m") != 0) {
      why_not_ = std::string("no small file system can be mounted here: ") + std::strerror(errno);
    }
  }
  ~SmallDisk() {
    if (!why_not_.empty()) return;
    EXPECT_EQ(umount2(path().c_str(), MNT_DETACH), 0);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;

  /// Returns "" if the file system is mounted, else the reason.
  const std::string& why_not() const { return why_not_; }
  const std::string& path() const { return folder_.path(); }
  void grow() const {
    ASSERT_EQ(mount("none", path().c_str(), nullptr, MS_REMOUNT, "size=64m"), 0);
  }

 private:
  const TemporaryFolder folder_;
  std::string why_not_;
};

constexpr std::int64_t kElements = 1 << 14;

/// Sends messages to a store as one worker, and counts the acknowledged pushes.
class Pusher {
 public:
  Pusher() {
    say(server::Hello{1, 0, 0, 1, false});
    say(server::Join{0, "w", kElements, 1, 0});
    say(server::Init{0, 0}, std::vector<float>(kElements, 1));
  }
  void push(server::LoggedStore& to) {
    if (!said_.empty()) {
      for (const auto& [message, values] : std::exchange(said_, {})) tell(to, message, values);
    }
    tell(to, server::Push{0, 0, acknowledged_ + 1}, std::vector<float>(kElements, 1));
    hear(to);
  }
  std::int64_t acknowledged() const { return acknowledged_; }
  /// Reconnects and pulls. Returns the first of the values.
  float first_value(server::LoggedStore& of) {
    tell(of, server::Hello{1, 0, 0, 1, true}, {}, 2);
    tell(of, server::Pull{0, 0, 1, 0, 0}, {}, 2);
    return hear(of);
  }

 private:
  void say(const server::FromClient& message, std::vector<float> values = {}) {
    said_.emplace_back(message, std::move(values));
  }
  static void tell(server::LoggedStore& to, const server::FromClient& message,
                   const std::vector<float>& values, std::uint32_t attempt = 1) {
    to.store().receive(attempt, server::encode(attempt, message),
                       {reinterpret_cast<const std::byte*>(values.data()), values.size() * 4}, 0);
  }
  float hear(server::LoggedStore& from) {
    float first = 0;
    for (const server::Store::Outgoing& out : from.settle(1 << 20)) {
      const auto told = server::decode_from_server(out.header.data(), out.header.size()).message;
      if (const auto* pushed = std::get_if<server::Pushed>(&told)) acknowledged_ = pushed->number;
      if (out.payload.bytes > 0) std::memcpy(&first, out.payload.data, sizeof first);
    }
    return first;
  }
  std::vector<std::pair<server::FromClient, std::vector<float>>> said_;
  std::int64_t acknowledged_ = 0;
};

TEST(FullDisk, EndsAStoreInOneLineAndLosesNothingThatWasAcknowledged) {
  const SmallDisk disk;
  if (!disk.why_not().empty()) GTEST_SKIP() << disk.why_not();
  Pusher worker;
  const auto make = [&] {
    return std::make_unique<server::LoggedStore>(
        server::StoreOptions{.dead_after_s = 0},
        server::LogOptions{.folder = disk.path(), .job = "full"});
  };
  std::string why;
  auto store = make();
  for (int i = 0; i < 1000 && why.empty(); ++i) {
    try {
      worker.push(*store);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::Io);
      why = error.what();
    }
  }
  EXPECT_THAT(why, AllOf(HasSubstr("cannot write " + disk.path() + "/server-0."),
                         HasSubstr("No space left on device, after "),
                         HasSubstr(" bytes; make room, or choose another folder for logs")));
  EXPECT_EQ(why.find('\n'), std::string::npos);
  EXPECT_GT(worker.acknowledged(), 10);
  store.reset();
  disk.grow();
  store = make();
  const float value = worker.first_value(*store);
  // The last push may be in the log although its acknowledgement was not sent.
  EXPECT_GE(value, static_cast<float>(1 + worker.acknowledged()));
  EXPECT_LE(value, static_cast<float>(2 + worker.acknowledged()));
}

TEST(FullDisk, EndsAServerAndAnotherGoesOnOnceThereIsRoom) {
  const SmallDisk disk;
  if (!disk.why_not().empty()) GTEST_SKIP() << disk.why_not();
  ServedParameters served(1, false, kDeadAfterS, disk.path());
  served.hold_another(0);
  constexpr int kPushes = 300;
  std::future<std::vector<float>> values = std::async(std::launch::async, [&] {
    const auto client = served.client(0);
    std::vector<float> all(kElements, 1);
    const int table = client->open({"w", kElements, 1}, 0, all.data());
    for (int i = 0; i < kPushes; ++i) {
      client->push(table, std::vector<float>(kElements, 1));
      client->flush();
    }
    client->pull(table, kPushes, all.data());
    client->wait(table, {});
    return all;
  });
  EXPECT_EQ(served.ended(0), exit_status(Code::Io));
  EXPECT_NE(values.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  disk.grow();
  served.release(0);
  EXPECT_EQ(values.get(), std::vector<float>(kElements, 1 + kPushes));
}

}  // namespace
}  // namespace hetu::ps
