// Tests the parts of links over sockets: digests, the secret's file, streams of frames and chunks,
// and a rendezvous whose ranks are threads.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "base/error.h"
#include "net/transport/callers.h"
#include "net/transport/connect.h"
#include "net/transport/doorbell.h"
#include "net/transport/rendezvous.h"
#include "net/transport/secret.h"
#include "net/transport/sha256.h"
#include "net/transport/stream_link.h"
#include "tests/net/transport/random_messages.h"
#include "tests/temporary_folder.h"

namespace hetu::comm {
namespace {

using testing::HasSubstr;

TEST(Sha256, OfThePublishedTexts) {  // Source: FIPS 180-2, appendix B; RFC 4231, cases 1, 2 and 6.
  EXPECT_EQ(hex_of(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of(sha256("abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_of(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(hex_of(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hex_of(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex_of(hmac_sha256(std::string(131, '\xaa'),
                               "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(Sha256, DoesNotDependOnThePieces) {
  std::mt19937 random(7);
  for (int length = 0; length < 200; ++length) {
    const std::string text(length, 'x');
    Sha256 sum;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t count = 1 + random() % 70;
      sum.add(std::string_view(text).substr(at, count));
      at += count;
    }
    EXPECT_EQ(sum.finish(), sha256(text)) << length;
  }
}

TEST(Secret, OfTheFileIsMadeOnceAndForItsUserAlone) {
  const TemporaryFolder folder;
  const std::filesystem::path place = std::filesystem::path(folder.path()) / "config";
  const std::string path = (place / "secret").string();
  std::vector<std::string> seen(8);
  std::vector<std::thread> all;
  for (std::string& mine : seen) all.emplace_back([&] { mine = job_secret("", path); });
  for (std::thread& one : all) one.join();
  EXPECT_THAT(seen, testing::Each(seen[0]));
  EXPECT_GE(seen[0].size(), 32U);
  struct stat file {};
  ASSERT_EQ(stat(path.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 07777, 0600U);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(place), {}), 1);
  EXPECT_EQ(job_secret("one that the user gives", path), "one that the user gives");
  const auto complaint = [&](const std::string& given) -> std::string {
    try {
      job_secret(given, path);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(complaint("short"), HasSubstr("got 5 characters; it must have at least 16"));
  chmod(path.c_str(), 0640);
  EXPECT_THAT(complaint(""), HasSubstr("mode 600, but is a file of user"));
  chmod(path.c_str(), 0600);
  std::ofstream(path) << "short\n";
  EXPECT_THAT(complaint(""), HasSubstr("the secret has 5 characters"));
}

TEST(Fields, ComeBackOrAreNone) {
  const std::vector<std::string> fields{"", "a", std::string(300, '\0'), "b"};
  EXPECT_EQ(unpack_fields(pack_fields(fields)), fields);
  EXPECT_EQ(unpack_fields(""), std::vector<std::string>());
  const std::string text = pack_fields(fields);
  for (std::size_t length = 1; length < text.size(); ++length) {
    if (length == 4 || length == 9 || length == 313) continue;  // the ends of fields
    EXPECT_EQ(unpack_fields(text.substr(0, length)), std::nullopt) << length;
  }
}

/// Creates requests that the test itself completes.
class Recorder final : public Transport {
 public:
  Recorder() : Transport(0, 2, {}) {}
  const std::string& host_of(int) const override { return host_; }
  bool same_clock(int) const override { return true; }
  void abort(int, const std::string&) override {}

 protected:
  void post(Request&) override {}
  void cancel(Request&) override {}
  std::string ask_position(int) override { return {}; }

 private:
  std::string host_;
};

/// Returns a pair of connected sockets with small system buffers, so that every message is sent in
/// parts.
std::pair<Socket, Socket> small_pair() {
  int ends[2] = {};
  HETU_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const int bytes = 4608;
  for (const int end : ends) setsockopt(end, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
  return {Socket(ends[0]), Socket(ends[1])};
}

TEST(StreamLink, CarriesFramesInOrderAndLongMessagesBetweenThem) {
  constexpr std::size_t kFrame = 3000;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Recorder owner;
    auto [one, two] = small_pair();
    StreamLink out(1, std::move(one), kFrame), in(0, std::move(two), kFrame);
    std::vector<std::vector<std::byte>> frames;
    std::vector<std::vector<std::byte>> sent, received;
    std::vector<std::unique_ptr<Request>> requests;
    for (int i = 0; i < 40; ++i) {
      frames.push_back(pattern(random() % (kFrame + 1), static_cast<int>(random() % 1000)));
      sent.push_back(pattern(1 + random() % 700'000, i));
      received.emplace_back(sent.back().size());
    }
    std::vector<Request*> ended;
    std::size_t next = 0, heard = 0;
    int goodbyes = 0;
    while (goodbyes == 0) {
      if (next < frames.size() && random() % 2 == 0) {
        requests.push_back(owner.recv(0, next, received[next].data(), received[next].size()));
        in.receive_long(*requests.back(), next + 1);
        requests.push_back(owner.send(1, next, sent[next].data(), sent[next].size()));
        out.send_long(*requests.back(), next + 1);
        out.send_frame(frames[next++]);
      }
      ASSERT_TRUE(out.flush(ended));
      if (next == frames.size() && !out.is_behind()) out.send_mark(kGoodbyePiece, 0);
      const StreamLink::Came came = in.read(ended);
      ASSERT_NE(came, StreamLink::Came::Ended);
      if (came == StreamLink::Came::Frame) {
        const std::vector<std::byte> frame(in.frame(), in.frame() + in.frame_bytes());
        ASSERT_EQ(frame, frames[heard++]) << "seed " << seed;
      }
      goodbyes += came == StreamLink::Came::Goodbye ? 1 : 0;
      for (Request* request : ended) request->complete();
      ended.clear();
    }
    EXPECT_EQ(heard, frames.size());
    EXPECT_EQ(received, sent) << "seed " << seed;
    for (const auto& request : requests) EXPECT_TRUE(request->done());
  }
}

TEST(StreamLink, RefusesWhatCannotBeRight) {
  const auto complaint = [](PieceHead head) -> std::string {
    auto [one, two] = small_pair();
    StreamLink in(3, std::move(two), 100);
    EXPECT_EQ(write(one.fd(), &head, sizeof head), static_cast<ssize_t>(sizeof head));
    std::vector<Request*> ended;
    try {
      in.read(ended);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(complaint({101, kFramePiece}), HasSubstr("worker 3 sent a frame of 101 bytes"));
  EXPECT_THAT(complaint({10, 7}), HasSubstr("worker 3 sent a chunk of a long message"));
}

TEST(StreamLink, SaysWhoWasLostBeforeItsEnd) {
  auto [one, two] = small_pair();
  std::vector<Request*> ended;
  StreamLink in(1, std::move(two), 100);
  {
    StreamLink out(0, std::move(one), 100);
    out.send_mark(kLostPiece, 5);
    EXPECT_TRUE(out.flush(ended));
  }
  EXPECT_EQ(in.read(ended), StreamLink::Came::Lost);
  EXPECT_EQ(in.lost_worker(), 5);
  EXPECT_EQ(in.read(ended), StreamLink::Came::Ended);
}

/// Returns options of a rendezvous for ranks that are threads of this process.
RendezvousOptions options_of(int rank, int workers, const char* what) {
  RendezvousOptions options;
  options.rank = rank;
  options.workers = workers;
  options.name = fmt::format("sockets_test-{}-{}", getpid(), what);
  options.timeout_s = 60;
  return options;
}

/// A TCP listener on loopback, and callers with different addresses.
class Flooded : public testing::Test {
 protected:
  static constexpr std::size_t kMost = 8;
  static constexpr std::size_t kLongest = 100;

  Flooded() {
    listener_ = listen_at(resolve("127.0.0.1", 0, "this test").front());
    HETU_ASSERT(listener_);
  }

  Socket call(const char* from) const {
    const Address own = resolve(from, 0, "this test").front();
    Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* raw = reinterpret_cast<const sockaddr*>(&own.storage);
    HETU_ASSERT(::bind(socket.fd(), raw, own.length) == 0);
    const Address to = own_address(listener_);
    HETU_ASSERT(::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&to.storage), to.length) ==
                0);
    return socket;
  }
  void accept() {
    callers_.accept(listener_, [](Caller&) { return true; });
  }
  /// Returns the addresses of callers whose packets are complete.
  std::vector<std::string> heard() {
    std::vector<std::string> from;
    callers_.read([&](Caller& caller, PacketReader::State state) {
      if (state == PacketReader::State::Whole) from.push_back(caller.from);
    });
    return from;
  }
  std::size_t count() const {
    std::vector<pollfd> sources;
    callers_.add_sources({}, sources);
    return sources.size();
  }

  Socket listener_;
  Callers callers_{kLongest, kMost, 1.0};
};

TEST_F(Flooded, AFloodPushesOutNobodyFromAnotherAddress) {
  const Socket rank = call("127.0.0.2");
  accept();
  std::vector<Socket> flood;
  for (std::size_t i = 0; i < 5 * kMost; ++i) flood.push_back(call("127.0.0.3"));
  for (int turn = 0; turn < 40; ++turn) {  // 0.8 s, in which slots of the flood change their owners
    accept();
    EXPECT_THAT(heard(), testing::IsEmpty());
    EXPECT_LE(count(), kMost);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(send_packet(rank, "here I am", now_ns() + 1'000'000'000));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_THAT(heard(), testing::ElementsAre("127.0.0.2"));
}

TEST_F(Flooded, ACallerFromTheSameAddressHasTimeToSpeak) {
  std::vector<Socket> flood;
  for (std::size_t i = 0; i + 1 < kMost; ++i) flood.push_back(call("127.0.0.2"));
  const Socket rank = call("127.0.0.2");
  for (std::size_t i = 0; i < 2 * kMost; ++i) flood.push_back(call("127.0.0.2"));
  accept();
  EXPECT_EQ(count(), kMost);
  EXPECT_TRUE(send_packet(rank, "here I am", now_ns() + 1'000'000'000));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  accept();
  EXPECT_THAT(heard(), testing::ElementsAre("127.0.0.2"));
}

TEST_F(Flooded, WhoSaysNothingIsForgotten) {
  const Socket silent = call("127.0.0.2");
  accept();
  EXPECT_EQ(count(), 1U);
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  heard();
  EXPECT_EQ(count(), 0U);
}

TEST(Rendezvous, GivesEveryoneWhatAllSay) {
  constexpr int kWorkers = 5;
  std::vector<std::vector<std::string>> heard(kWorkers);
  std::vector<std::string> keys(kWorkers);
  std::vector<std::thread> all;
  for (int rank = 0; rank < kWorkers; ++rank) {
    all.emplace_back([&, rank] {
      const auto met = meet(options_of(rank, kWorkers, "texts"));
      keys[rank] = met->key();
      for (int round = 0; round < 50; ++round)
        heard[rank] = met->exchange(fmt::format("{}:{}", rank, round), "a test");
    });
  }
  for (std::thread& one : all) one.join();
  EXPECT_THAT(heard, testing::Each(testing::ElementsAre("0:49", "1:49", "2:49", "3:49", "4:49")));
  EXPECT_THAT(keys, testing::Each(keys[0]));
  EXPECT_GE(keys[0].size(), 64U);
}

TEST(Rendezvous, NumbersWorkersAsTheyAskAndLinksThem) {
  constexpr int kWorkers = 4;
  std::vector<std::thread> all;
  for (int rank = 0; rank < kWorkers; ++rank) {
    all.emplace_back([rank] {
      Options options;
      options.timeout_s = 60;
      options.number = (rank + 2) % kWorkers;
      options.met = meet(options_of(rank, kWorkers, "numbers"));
      const auto links = connect("sockets", options);
      EXPECT_EQ(links->worker(), options.number);
      int from_next = -1;
      const int mine = links->worker(), next = (mine + 1) % kWorkers;
      const auto receive = links->recv(next, 1, &from_next, sizeof from_next);
      links->send((mine + kWorkers - 1) % kWorkers, 1, &mine, sizeof mine);
      links->wait(*receive, "a number");
      EXPECT_EQ(from_next, next);
      links->leave("");
    });
  }
  for (std::thread& one : all) one.join();
}

TEST(Rendezvous, RefusesWorkersOfOneNumber) {
  std::vector<std::string> complaints(2);
  std::vector<std::thread> all;
  for (int rank = 0; rank < 2; ++rank) {
    all.emplace_back([&, rank] {
      Options options;
      options.number = 1;
      options.met = meet(options_of(rank, 2, "twice"));
      try {
        connect("sockets", options);
      } catch (const Error& error) {
        complaints[rank] = error.what();
      }
    });
  }
  for (std::thread& one : all) one.join();
  EXPECT_THAT(complaints, testing::Each(HasSubstr("rank 1 is number 1, as is rank 0")));
}

}  // namespace
}  // namespace hetu::comm
