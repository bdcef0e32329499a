// Tests communicators over a library that stands in for NCCL (fake_nccl.cpp). Workers are threads
// that find each other over the in-process transport.
#include "executor/direct/nccl.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <numeric>
#include <string>
#include <thread>

#include "base/error.h"
#include "net/transport/inproc.h"
#include "tests/stand_ins/fake_nccl.h"

namespace hetu::comm {
namespace {

using testing::AllOf;
using testing::HasSubstr;

const NcclLibrary& library() {
  static const NcclLibrary one = load_nccl(HETU_FAKE_NCCL);
  return one;
}

const FakeNccl& fake() {
  static const FakeNccl one = load_fake_nccl();
  return one;
}

Options quick(double timeout_s) {
  Options options;
  options.timeout_s = timeout_s;
  options.dead_after_s = 0.5;
  return options;
}

/// Returns the error of each worker's thread, or "". A worker that throws ends the job, as in a
/// run.
std::vector<std::string> on_workers(int workers, double timeout_s,
                                    const std::function<void(Transport&)>& body) {
  auto transports = make_inproc(workers, quick(timeout_s));
  std::vector<std::string> said(static_cast<std::size_t>(workers));
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w)
    threads.emplace_back([&, w] {
      try {
        body(*transports[w]);
      } catch (const std::exception& e) {
        said[w] = e.what();
        transports[w]->abort(1, e.what());
      }
    });
  for (auto& thread : threads) thread.join();
  return said;
}

Group up_to(int workers) {
  Group group(static_cast<std::size_t>(workers));
  std::iota(group.begin(), group.end(), 0);
  return group;
}

void finish(NcclGroup& group, FakeStream& stream, WaitPurpose what) {
  group.wait([&] { return stream.unfinished == 0; }, what);
}

/// Sends one int to every other member, and checks the int that each of them sent.
void all_to_all(Transport& t, NcclGroup& group, int round) {
  const std::vector<int>& members = group.members();
  std::vector<int> in(members.size(), -1), out(members.size());
  std::vector<NcclMove> moves;
  for (std::size_t i = 0; i < members.size(); ++i) {
    out[i] = round * 1000 + t.worker() * 10 + members[i];
    if (members[i] == t.worker()) continue;
    moves.push_back({true, members[i], &out[i], sizeof(int)});
    moves.push_back({false, members[i], &in[i], sizeof(int)});
  }
  FakeStream stream;
  group.exchange(moves, stream.stream(), "an exchange");
  finish(group, stream, "an exchange");
  for (std::size_t i = 0; i < members.size(); ++i)
    if (members[i] != t.worker()) {
      EXPECT_EQ(in[i], round * 1000 + members[i] * 10 + t.worker());
    }
}

TEST(Nccl, OpposingMessagesDoNotWaitForEachOther) {
  const auto said = on_workers(4, 20, [](Transport& t) {
    NcclGroups groups(t, library(), 2);
    for (int round = 0; round < 5; ++round) {
      all_to_all(t, groups.get(up_to(4), "a group"), round);
    }
  });
  EXPECT_THAT(said, testing::Each(""));
  EXPECT_EQ(fake().live(), 0);
}

TEST(Nccl, MessagesOfTwoWorkersKeepTheirOrder) {
  const auto said = on_workers(2, 20, [](Transport& t) {
    NcclGroups groups(t, library(), 1);
    NcclGroup& group = groups.get({0, 1}, "a group");
    std::vector<int> values(40, -1);
    if (t.worker() == 0) std::iota(values.begin(), values.end(), 7);
    FakeStream stream;
    // Two messages in one call, then a call with one: the pairs of one side don't match the calls
    // of the other side.
    for (int i = 0; i + 2 < 40; i += 3) {
      const bool is_send = t.worker() == 0;
      const int peer = 1 - t.worker();
      group.exchange(
          {{is_send, peer, &values[i], sizeof(int)}, {is_send, peer, &values[i + 1], sizeof(int)}},
          stream.stream(), "two messages");
      group.exchange({{is_send, peer, &values[i + 2], sizeof(int)}}, stream.stream(),
                     "one message");
    }
    finish(group, stream, "messages");
    for (int i = 0; i < 39; ++i) EXPECT_EQ(values[i], 7 + i);
  });
  EXPECT_THAT(said, testing::Each(""));
}

TEST(Nccl, GroupsKeptAreBoundedAndMadeAnewWhereOneMemberLacksThem) {
  const int before = fake().made();
  const auto said = on_workers(3, 20, [&](Transport& t) {
    NcclGroups groups(t, library(), 1);
    const auto use = [&](const Group& group, int round) {
      if (std::find(group.begin(), group.end(), t.worker()) == group.end()) return;
      all_to_all(t, groups.get(group, "a group"), round);
      EXPECT_EQ(groups.size(), 1U);
      EXPECT_LE(fake().live(), 3);
    };
    use({0, 1}, 0);
    use({0, 1}, 1);  // the communicator is cached
    use({1, 2}, 2);  // Worker 1 evicts {0, 1} from its cache, and worker 0 keeps it.
    use({0, 1}, 3);  // both sides rebuild the communicator
    use({0, 1}, 4);
  });
  EXPECT_THAT(said, testing::Each(""));
  EXPECT_EQ(fake().made() - before, 3);
  EXPECT_EQ(fake().live(), 0);
}

TEST(Nccl, ADeadPeerIsNamedWithin10Seconds) {
  const std::int64_t begin = now_ns();
  const auto said = on_workers(3, 60, [](Transport& t) {
    NcclGroups groups(t, library(), 1);
    NcclGroup& group = groups.get(up_to(3), "a group");
    if (t.worker() == 2) fail(Code::Internal, "lightning");
    int value = 0;
    FakeStream stream;
    group.exchange({{false, 2, &value, sizeof value}}, stream.stream(), "a message");
    finish(group, stream, "F3 of step 5");
  });
  EXPECT_LT(now_ns() - begin, 10'000'000'000);
  for (const int w : {0, 1})
    EXPECT_THAT(said[w], AllOf(HasSubstr(fmt::format("worker {} in", w)), HasSubstr("worker 2"),
                               HasSubstr("lightning")));
  EXPECT_EQ(fake().live(), 0);
}

TEST(Nccl, APeerThatDiesBeforeItJoinsIsNamed) {
  const auto said = on_workers(2, 60, [](Transport& t) {
    if (t.worker() == 1) fail(Code::Internal, "lightning");
    NcclUniqueId id;
    static_cast<void>(library().get_unique_id(&id));
    NcclGroup group(t, library(), {0, 1}, id, "the start");
  });
  EXPECT_THAT(said[0], AllOf(HasSubstr("worker 0 in the start"), HasSubstr("lightning")));
  EXPECT_EQ(fake().live(), 0);
}

TEST(Nccl, WaitsHaveADeadline) {
  const auto said = on_workers(2, 0.3, [](Transport& t) {
    NcclGroups groups(t, library(), 1);
    NcclGroup& group = groups.get({0, 1}, "a group");
    if (t.worker() == 1) return;
    int value = 0;
    FakeStream stream;
    group.exchange({{false, 1, &value, sizeof value}}, stream.stream(), "a message");
    finish(group, stream, "F3 of step 5");
  });
  EXPECT_EQ(said[0], "worker 0 waited 0.3 s for F3 of step 5 over NCCL with workers 0, 1");
  EXPECT_EQ(fake().live(), 0);
}

TEST(Nccl, AFailureOfNcclWithNobodyDeadIsToldAsItIs) {
  const auto said = on_workers(2, 0.5, [](Transport& t) {
    NcclGroups groups(t, library(), 1);
    NcclGroup& group = groups.get({0, 1}, "a group");
    std::byte there{};
    const auto met = t.worker() == 1 ? t.send(0, make_tag(1, 0, 0, 0, 0), &there, 1)
                                     : t.recv(1, make_tag(1, 0, 0, 0, 0), &there, 1);
    t.wait(*met, "both to have the group");
    if (t.worker() == 1) return;
    fake().fail(6);
    FakeStream stream;
    stream.unfinished = 1;
    try {
      finish(group, stream, "F3 of step 5");
    } catch (...) {
      fake().fail(kNcclSuccess);
      EXPECT_THROW(group.exchange({}, stream.stream(), "a later one"), Error);
      throw;
    }
  });
  EXPECT_EQ(said[0],
            "worker 0 in F3 of step 5: NCCL: remote error, and no worker of the group has ended");
}

TEST(Nccl, PeersOutsideTheGroupAreRefusedBeforeAnythingBegins) {
  const auto said = on_workers(3, 20, [](Transport& t) {
    if (t.worker() == 2) return;
    NcclGroups groups(t, library(), 1);
    NcclGroup& group = groups.get({0, 1}, "a group");
    int value = 0;
    FakeStream stream;
    const auto to = [&](int peer) {
      group.exchange({{true, 1 - t.worker(), &value, 4}, {true, peer, &value, 4}}, stream.stream(),
                     "one");
    };
    EXPECT_THROW(to(2), Error);
    EXPECT_THROW(to(t.worker()), Error);
    all_to_all(t, group, 1);  // nothing was left half started
  });
  EXPECT_THAT(said, testing::Each(""));
}

TEST(Nccl, AMissingLibraryIsToldInTheLoadersWords) {
  try {
    static_cast<void>(load_nccl("libnccl_that_is_not_there.so"));
    FAIL() << "it was loaded";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), Code::Unsupported);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("libnccl_that_is_not_there.so"), HasSubstr("2.14")));
  }
}

}  // namespace
}  // namespace hetu::comm
