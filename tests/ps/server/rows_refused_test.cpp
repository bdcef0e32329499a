// Tests sparse tables: messages that servers refuse, and requests that clients refuse to send.
#include <gmock/gmock.h>

#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "ps/client/local_servers.h"
#include "ps/server/store.h"
#include "tests/ps/server/whole_sweep.h"

namespace hetu::ps {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;
using InitKind = Initializer::Kind;

/// A store with a sparse table of 10 rows of 2, and a member that sends messages to it directly.
class OneStore {
 public:
  OneStore() : store_({.dead_after_s = 0}) {
    say(server::Hello{1, 0, 0, 1, false});
    say(server::Join{0, "w", 20, 1, 0, {}, 2, {}});
    store_.take();
  }
  void say(const server::FromClient& message, const Bytes& payload = {}) {
    store_.receive(1, server::encode(1, message), {payload.data(), payload.size()}, 0);
  }
  std::vector<server::FromServer> hear() {
    std::vector<server::FromServer> all;
    for (const server::Store::Outgoing& out : store_.take()) {
      all.push_back(server::decode_from_server(out.header.data(), out.header.size()).message);
    }
    return all;
  }
  std::int64_t dropped() const { return store_.dropped_frames(); }

 private:
  server::Store store_;
};

Bytes payload_of(const std::vector<std::int64_t>& ids, std::size_t more) {
  Bytes bytes(ids.size() * sizeof(std::int64_t) + more);
  if (!ids.empty()) std::memcpy(bytes.data(), ids.data(), ids.size() * sizeof(std::int64_t));
  return bytes;
}

TEST(SparseRows, AServerTakesOnlyRowsThatItHas) {
  set_log_level(Level::Error);
  OneStore store;
  const std::vector<std::int64_t> wrong[] = {{10},   {-1},   {0, 10},
                                             {3, 3}, {4, 3}, {std::int64_t{1} << 62}};
  std::int64_t dropped = 0;
  for (const auto& ids : wrong) {
    store.say(server::PushRows{0, 1, 0, false, true}, payload_of(ids, ids.size() * 8));
    EXPECT_EQ(store.dropped(), ++dropped);
    store.say(server::SetRows{0, 1, 0, 5}, payload_of(ids, ids.size() * 8));
    EXPECT_EQ(store.dropped(), ++dropped);
  }
  for (const std::int64_t id : {std::int64_t{10}, std::int64_t{-1}, std::int64_t{1} << 62}) {
    store.say(server::PullRows{0, 1, 0, 0, 0, 0, -1}, payload_of({0, id}, 0));
    EXPECT_EQ(store.dropped(), ++dropped);
  }
  store.say(server::PushRows{0, 1, 0, false, true}, payload_of({1, 2}, 15));
  EXPECT_EQ(store.dropped(), ++dropped);
  store.say(server::SetRows{0, 1, 1, 5}, payload_of({1}, 8));  // the table has no optimizer state
  EXPECT_EQ(store.dropped(), ++dropped);
  store.say(server::PullRows{0, 1, 0, 0, 0, 0, 3}, payload_of({1}, 0));  // without versions
  EXPECT_EQ(store.dropped(), ++dropped);
  store.say(server::PullRows{0, 1, 0, 0, 0, 1, -1}, payload_of({1}, 0));
  EXPECT_EQ(store.dropped(), ++dropped);
  store.say(server::Push{0, 0, 1}, payload_of({}, 80));  // a message for dense tables
  EXPECT_EQ(store.dropped(), ++dropped);
  EXPECT_TRUE(store.hear().empty());
  store.say(server::PushRows{0, 1, 0, false, true}, payload_of({1, 9}, 16));
  EXPECT_EQ(store.hear(), std::vector<server::FromServer>({server::PushedRows{0, 1}}));
  EXPECT_EQ(store.dropped(), dropped);
  set_log_level(Level::Info);
}

TEST(SparseRows, APullThatOvertakesAPushWaitsForIt) {
  OneStore store;
  store.say(server::PullRows{0, 1, 0, kAnyClock, 2, 0, -1}, payload_of({1}, 0));
  store.say(server::PushRows{0, 1, 0, false, false}, payload_of({1}, 8));
  EXPECT_EQ(store.hear(), std::vector<server::FromServer>({server::PushedRows{0, 1}}));
  store.say(server::PushRows{0, 2, 0, false, true}, payload_of({1}, 8));
  EXPECT_EQ(store.hear(), std::vector<server::FromServer>(
                              {server::PushedRows{0, 2}, server::RowValues{0, 1, 0, 1, 1}}));
}

TEST(SparseRows, RefuseWhatDoesNotFit) {
  LocalServers local(2);
  const auto first = local.client({.worker = 0, .timeout_s = 20});
  const auto second = local.client({.worker = 1, .timeout_s = 20});
  const auto refused = [&](const SparseTable& about, const char* text) {
    EXPECT_THAT([&] { second->open_rows(about, 1); }, ThrowsMessage<Error>(HasSubstr(text)));
  };
  const SparseTable about{"w", 10, 2, 2};
  const int table = first->open_rows(about, 0);
  refused({"w", 0, 2, 2}, "must have 1 to");
  refused({"w", server::kMostElements / 2 + 1, 2, 2}, "must have 1 to");
  refused({"w", 10, 0, 2}, "must have 1 to 65536 elements, not 0");
  refused({"w", 5, 4, 2}, "with rows of width 4; it has rows of width 2");
  refused({"w", 10, 2, 2, {}, Rule::Each, {{InitKind::Normal, 0, 1}, 0}},
          "rows of width 2 with other initial values");
  refused({"v", 10, 2, 2, ServerOptimizer{{}, {{0, 2}}}},
          "weight decay applies to all rows of a sparse table");
  refused({"v", 10, 2, 2, ServerOptimizer{settings_of(OptimizerKind::Lamb), {}}},
          "lamb needs whole parameters");
  const std::vector<float> zeros(20);
  EXPECT_THAT(
      [&] {
        second->open({"w", 20, 2}, 1, zeros.data());
      },
      ThrowsMessage<Error>(HasSubstr("with rows of width 0; it has rows of width 2")));
  const int dense = first->open({"dense", 20, 1}, 0, zeros.data());
  const auto fails = [&](const std::function<void()>& act, const char* text) {
    EXPECT_THAT(act, ThrowsMessage<Error>(HasSubstr(text)));
  };
  fails(
      [&] {
        first->push_rows(table, {{10}, {}, {1, 1}});
      },
      "has rows 0 to 9; there is no row 10");
  fails([&] { first->push_rows(table, {{-1}, {}, {1, 1}}); }, "there is no row -1");
  fails(
      [&] {
        first->push_rows(table, {{1}, {}, {1}});
      },
      "1 rows of table \"w\" must have 2 elements each, got 1 in total");
  fails([&] { first->push_rows(table, {{1}, {}, {1, 1}}, 0.1); }, "has no optimizer");
  fails([&] { first->push_rows(dense, {{1}, {}, {1}}); }, "\"dense\" is not sparse");
  fails([&] { first->push(table, zeros); }, "\"w\" is sparse; push rows");
  fails([&] { first->set_rows(table, {{1, 1}, {}, {1, 1, 2, 2}}, 0, 0); }, "set a row twice");
  fails([&] { first->set_rows(table, {{1}, {}, {1, 1}}, 1, 0); }, "there is no tensor 1");
  const std::int64_t id = 10;
  float into[2];
  fails([&] { first->pull_rows(table, 0, {&id, 1, into}); }, "there is no row 10");
  fails([&] { first->pull(table, 0, into, 1); }, "cannot wait for later pushes");
}

}  // namespace
}  // namespace hetu::ps
