// Tests messages and all-reduces between workers that are threads. tests/ranks/comm_ranks.cpp runs
// the same rules over MPI.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

#include "base/bfloat16.h"
#include "base/error.h"
#include "net/transport/clock.h"
#include "net/transport/collective.h"
#include "net/transport/connect.h"
#include "net/transport/inproc.h"
#include "tests/net/transport/random_messages.h"

namespace hetu::comm {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

// Runs `body` on one thread per worker. Throws the first exception of any of them.
void on_workers(int workers, const Options& options, const std::function<void(Transport&)>& body) {
  auto transports = make_inproc(workers, options);
  std::vector<std::exception_ptr> errors(workers);
  std::vector<std::thread> threads;
  for (int w = 0; w < workers; ++w) {
    threads.emplace_back([&, w] {
      try {
        body(*transports[w]);
      } catch (const std::exception& e) {
        errors[w] = std::current_exception();
        transports[w]->abort(1, e.what());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

Options quick(double timeout_s) {
  Options options;
  options.timeout_s = timeout_s;
  return options;
}

class Sizes : public testing::TestWithParam<std::tuple<int, std::size_t>> {};

TEST_P(Sizes, EveryWorkerReachesEveryWorker) {
  const auto [workers, bytes] = GetParam();
  on_workers(workers, quick(60), [&, n = bytes, p = workers](Transport& t) {
    std::vector<std::vector<std::byte>> in(p, std::vector<std::byte>(n)), out(p);
    std::vector<std::unique_ptr<Request>> requests;
    for (int peer = 0; peer < p; ++peer) {
      out[peer] = pattern(n, t.worker() * 64 + peer);
      requests.push_back(t.send(peer, make_tag(1, peer, 0, 0, 0), out[peer].data(), n));
      requests.push_back(t.recv(peer, make_tag(1, t.worker(), 0, 0, 0), in[peer].data(), n));
    }
    for (auto& r : requests) t.wait(*r, "an exchange");
    for (int peer = 0; peer < p; ++peer) EXPECT_EQ(in[peer], pattern(n, peer * 64 + t.worker()));
  });
}

INSTANTIATE_TEST_SUITE_P(Grid, Sizes,
                         testing::Combine(testing::Values(1, 2, 3, 5, 8),
                                          testing::Values(0, 1, 777, 16384, 16385, 1000003)));
INSTANTIATE_TEST_SUITE_P(Large, Sizes,
                         testing::Combine(testing::Values(2), testing::Values(10 << 20)));

TEST(Messages, MeetInAnyOrderOfPosting) {
  for (unsigned seed = 0; seed < 10; ++seed) {
    on_workers(4, quick(30), [&](Transport& t) {
      exchange_at_random(t, seed, 60, {0, 1, 100, 4096, 16384, 20000, 100000});
    });
  }
}

TEST(Messages, OfOneTagKeepTheirOrder) {
  on_workers(2, quick(30), [](Transport& t) {
    constexpr int kCount = 200;
    std::vector<int> values(kCount * 6000);
    std::vector<std::unique_ptr<Request>> requests;
    for (int i = 0; i < kCount; ++i) {
      const std::size_t bytes = i % 3 == 0 ? 24000 : 4;  // long and short messages mixed
      int* at = values.data() + i * 6000;
      if (t.worker() == 0) {
        *at = i;
        requests.push_back(t.send(1, 9, at, bytes));
      } else {
        *at = -1;
        requests.push_back(t.recv(0, 9, at, bytes));
      }
    }
    for (auto& r : requests) t.wait(*r, "a queue");
    for (int i = 0; i < kCount; ++i) EXPECT_EQ(values[i * 6000], i);
  });
}

TEST(Messages, ShortSendsDoNotWaitForTheirReceive) {
  auto transports = make_inproc(2, quick(5));
  int value = 7;
  const auto request = transports[0]->send(1, 1, &value, sizeof value);
  EXPECT_TRUE(request->done());
  value = 0;
  int got = -1;
  const auto receive = transports[1]->recv(0, 1, &got, sizeof got);
  transports[1]->wait(*receive, "an early message");
  EXPECT_EQ(got, 7);
}

TEST(Messages, OfAnotherSizeAreAnErrorThatNamesBoth) {
  for (const bool early : {false, true}) {
    for (const std::size_t sent : {std::size_t{8}, std::size_t{40000}}) {
      auto transports = make_inproc(2, quick(5));
      std::vector<std::byte> out(sent), in(100);
      std::unique_ptr<Request> send, receive;
      if (!early) send = transports[0]->send(1, 1, out.data(), sent);
      receive = transports[1]->recv(0, 1, in.data(), in.size());
      if (early) send = transports[0]->send(1, 1, out.data(), sent);
      EXPECT_THAT([&] { transports[1]->wait(*receive, "1RECV_F3"); },
                  ThrowsMessage<Error>(testing::AllOf(HasSubstr("1RECV_F3"), HasSubstr("100 bytes"),
                                                      HasSubstr("worker 0"),
                                                      HasSubstr(std::to_string(sent) + " bytes"))));
    }
  }
}

TEST(Waits, EndAtTheirDeadlineAndNamePeerAndInstruction) {
  auto transports = make_inproc(2, quick(0.2));
  transports[0]->set_reporter([] { return std::string("0B3"); });
  int value = 0;
  const auto receive = transports[1]->recv(0, 1, &value, sizeof value);
  const int step = 214;
  const auto what = [&] { return fmt::format("0RECV_F7 (stage 0, micro-batch 7, step {})", step); };
  EXPECT_THAT([&] { transports[1]->wait(*receive, what); },
              ThrowsMessage<Error>("worker 1 waited 0.2 s for 0RECV_F7 (stage 0, micro-batch 7, "
                                   "step 214) from worker 0; worker 0 last reported 0B3"));
}

TEST(Waits, FailWhenAWorkerEndsTheJob) {
  auto transports = make_inproc(3, quick(20));
  int value = 0;
  const auto receive = transports[1]->recv(0, 1, &value, sizeof value);
  std::thread dying([&] { transports[2]->abort(1, "out of memory"); });
  EXPECT_THAT([&] { transports[1]->wait(*receive, "0RECV_F7"); },
              ThrowsMessage<Error>(HasSubstr("worker 2 ended the job: out of memory")));
  dying.join();
  const auto later = transports[0]->send(1, 1, &value, sizeof value);
  EXPECT_TRUE(later->failed());
}

TEST(Waits, DoNotSpin) {
  auto transports = make_inproc(2, quick(2));
  int value = 0;
  const auto receive = transports[1]->recv(0, 1, &value, sizeof value);
  const std::clock_t before = std::clock();
  EXPECT_THROW(transports[1]->wait(*receive, "nothing"), Error);
  EXPECT_LT(double(std::clock() - before) / CLOCKS_PER_SEC, 0.05 * 2);
}

TEST(Requests, DroppedEarlyLeaveTheirBuffersAlone) {
  auto transports = make_inproc(2, quick(5));
  std::vector<int> first(8, -1), second(8, -1), out(8, 5), big(100000, 6);
  transports[1]->recv(0, 1, first.data(), 32).reset();
  transports[0]->send(1, 1, big.data(), big.size() * 4).reset();
  const auto send = transports[0]->send(1, 1, out.data(), 32);
  const auto receive = transports[1]->recv(0, 1, second.data(), 32);
  transports[1]->wait(*receive, "the one that is left");
  EXPECT_EQ(first[0], -1);
  EXPECT_EQ(second[0], 5);
}

TEST(Requests, RefuseAWorkerThatDoesNotExist) {
  auto transports = make_inproc(2);
  EXPECT_THAT([&] { transports[0]->send(2, 0, nullptr, 0); },
              ThrowsMessage<Error>(HasSubstr("there is no worker 2; workers are 0 to 1")));
}

// --- all-reduces ---

float element(int worker, std::int64_t i) {
  const auto mixed = static_cast<std::uint32_t>(i * 2654435761U + worker * 40503U) * 2246822519U;
  return static_cast<float>(mixed >> 12) * (i % 5 == 0 ? 1e-4F : 1.7F) - 1e6F;
}

class Sums : public testing::TestWithParam<std::tuple<int, std::int64_t>> {};

TEST_P(Sums, EqualThePlainAscendingSumBitForBit) {
  const auto [workers, count] = GetParam();
  std::vector<float> expected(count);
  for (std::int64_t i = 0; i < count; ++i) {
    expected[i] = element(0, i);
    for (int w = 1; w < workers; ++w) expected[i] += element(w, i);
  }
  on_workers(workers, quick(60), [&, n = count, p = workers](Transport& t) {
    Group group(p);
    std::iota(group.begin(), group.end(), 0);
    Reducer reducer(t);
    for (int round = 0; round < 3; ++round) {
      std::vector<float> data(n);
      for (std::int64_t i = 0; i < n; ++i) data[i] = element(t.worker(), i);
      std::this_thread::sleep_for(std::chrono::milliseconds((t.worker() * 5 + round * 3) % 4));
      const auto sum =
          reducer.start_sum(group, DType::Float32, data.data(), n, make_tag(9, 0, 0, 0, round));
      EXPECT_GT(reducer.wait(*sum, "a sum"), 0);
      EXPECT_TRUE(n == 0 || std::memcmp(data.data(), expected.data(), n * sizeof(float)) == 0);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Grid, Sums,
                         testing::Combine(testing::Values(1, 2, 3, 4, 5, 8),
                                          testing::Values(0, 1, 2, 7, 1000, 65537)));
INSTANTIATE_TEST_SUITE_P(Large, Sums, testing::Values(std::tuple(3, std::int64_t{2621441})));

// Values are rounded to bfloat16 for the transfer. Every member must end with the same bits, and
// with numbers of bfloat16. The error is bounded by two roundings.
TEST_P(Sums, MayTravelInTwoBytes) {
  const auto [workers, count] = GetParam();
  std::mutex mutex;
  std::vector<float> first;
  on_workers(workers, quick(60), [&, n = count, p = workers](Transport& t) {
    Group group(p);
    std::iota(group.begin(), group.end(), 0);
    Reducer reducer(t);
    std::vector<float> data(n);
    for (std::int64_t i = 0; i < n; ++i) data[i] = element(t.worker(), i);
    const auto sum = reducer.start_sum(group, DType::Float32, data.data(), n,
                                       make_tag(9, 0, 0, 0, 0), DType::BFloat16);
    reducer.wait(*sum, "a sum");
    for (std::int64_t i = 0; i < n; ++i) {
      float exact = 0, all = 0;
      for (int w = 0; w < p; ++w) {
        exact += element(w, i);
        all += std::fabs(element(w, i));
      }
      ASSERT_LE(std::fabs(data[i] - exact), all / 128) << i;
      ASSERT_TRUE(p == 1 || data[i] == float(BFloat16(data[i]))) << i << ": " << data[i];
    }
    const std::lock_guard lock(mutex);
    if (first.empty()) first = data;
    EXPECT_EQ(data, first);
  });
}

// A reduce-scatter gives the bits of the whole sum in the member's own slice and leaves the other
// elements unchanged. Slices have any length and any order, and one member has none.
TEST_P(Sums, ScatterToTheMembersThatOwnThem) {
  const auto [workers, count] = GetParam();
  std::vector<Slice> slices;
  std::int64_t at = 0;
  for (int w = workers - 1; w >= 0; --w) {
    const std::int64_t length = w == 1 ? 0 : w == 0 ? count - at : (count - at) / 2;
    slices.insert(slices.begin(), Slice{at, length});
    at += length;
  }
  on_workers(workers, quick(60), [&, n = count, p = workers](Transport& t) {
    Group group(p);
    std::iota(group.begin(), group.end(), 0);
    Reducer reducer(t);
    std::vector<float> data(n), whole(n);
    for (std::int64_t i = 0; i < n; ++i) data[i] = whole[i] = element(t.worker(), i);
    std::vector<float> expected = data;
    const auto sum =
        reducer.start_sum(group, DType::Float32, whole.data(), n, make_tag(9, 0, 0, 0, 0));
    const auto scattered =
        reducer.start_scatter(group, DType::Float32, data.data(), slices, make_tag(9, 1, 0, 0, 0));
    reducer.wait(*sum, "a sum");
    reducer.wait(*scattered, "a scattered sum");
    const Slice own = slices[t.worker()];
    std::copy_n(whole.begin() + own.begin, own.count, expected.begin() + own.begin);
    EXPECT_EQ(data, expected);
  });
}

// A sum of random terms in a random order, and the sum that is expected.
struct RandomSum {
  Terms terms;
  std::vector<std::vector<float>> all;  // by term
  std::vector<float> expected;
  std::vector<float> none;  // data of a member without a term
  float* data = nullptr;    // the first own term, which is summed in place
  std::shared_ptr<Sum> running;
};

RandomSum random_sum(unsigned seed, const Group& group, std::int64_t count, int worker) {
  std::mt19937 rng(seed);
  RandomSum sum;
  Terms& terms = sum.terms;
  for (std::size_t k = 0, number = 1 + rng() % 6; k < number; ++k) {
    terms.members.push_back(static_cast<int>(rng() % group.size()));
    sum.all.emplace_back(count);
    for (float& x : sum.all.back()) x = std::ldexp(1.0F + rng() % 1000, rng() % 20);
  }
  std::vector<std::vector<float>> stack;
  for (std::size_t k = 0; k < sum.all.size() || stack.size() > 1;) {
    if (k < sum.all.size() && (stack.size() < 2 || rng() % 2 == 0)) {
      terms.order.push_back(static_cast<int>(k));
      stack.push_back(sum.all[k++]);
      continue;
    }
    terms.order.push_back(-1);
    for (std::int64_t i = 0; i < count; ++i) stack[stack.size() - 2][i] += stack.back()[i];
    stack.pop_back();
  }
  sum.expected = stack[0];
  sum.none.resize(count);
  for (std::size_t k = 0; k < sum.all.size(); ++k) {
    const bool own = group[terms.members[k]] == worker;
    terms.data.push_back(own ? sum.all[k].data() : nullptr);
    if (own && sum.data == nullptr) sum.data = sum.all[k].data();
  }
  if (sum.data == nullptr) sum.data = sum.none.data();
  return sum;
}

// Members contribute any number of terms, or none. Each member starts several sums in an order and
// after delays of its own, so that messages arrive in any order.
TEST(SumsAtOnce, TermsAreAddedInTheGivenOrder) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    on_workers(4, quick(20), [&](Transport& t) {
      const Group group = {0, 1, 3};
      const std::int64_t count = seed % 2 == 0 ? 5 : 5000;
      if (t.worker() == 2) return;
      std::vector<RandomSum> sums;
      for (unsigned k = 0; k < 4; ++k)
        sums.push_back(random_sum(10 * seed + k, group, count, t.worker()));
      Reducer reducer(t);
      std::mt19937 rng(1000 * seed + t.worker());
      std::vector<int> order = {0, 1, 2, 3};
      std::shuffle(order.begin(), order.end(), rng);
      for (const int k : order) {
        std::this_thread::sleep_for(std::chrono::microseconds(rng() % 3000));
        sums[k].running =
            reducer.start_terms(group, DType::Float32, sums[k].data, even_slices(count, 3),
                                sums[k].terms, make_tag(9, 0, k, 0, 0), false);
      }
      for (const RandomSum& sum : sums) {
        reducer.wait(*sum.running, "a sum of terms");
        EXPECT_EQ(std::vector<float>(sum.data, sum.data + count), sum.expected);
      }
    });
  }
}

TEST(SumsAtOnce, ScatterNeedsASliceForEachMember) {
  auto transports = make_inproc(2, quick(0.2));
  Reducer reducer(*transports[0]);
  std::vector<float> data(10);
  EXPECT_THAT(
      [&] {
        reducer.start_scatter({0, 1}, DType::Float32, data.data(), {{0, 10}}, 3);
      },
      ThrowsMessage<Error>(HasSubstr("got 1 slices for a group of 2 workers")));
}

// The parts have several owners, some parts are empty, and the group is not the whole job.
TEST(Parts, ComeFromTheirOwners) {
  on_workers(4, quick(20), [](Transport& t) {
    const Group group{0, 2, 3};
    if (t.worker() == 1) return;
    for (int round = 0; round < 3; ++round) {
      std::vector<std::vector<int>> held;
      std::vector<OwnedPart> parts;
      for (int i = 0; i < 7; ++i) {
        const int owner = group[i % 3];
        const std::size_t length = i == 3 ? 0 : 1000 * i * i + 1;
        held.emplace_back(length, t.worker() == owner ? 100 * round + i : -1);
        parts.push_back({owner, held.back().data(), length * sizeof(int)});
      }
      gather_from_owners(t, group, parts, {make_tag(9, 0, 0, 0, round), "parts"});
      for (int i = 0; i < 7; ++i)
        EXPECT_EQ(held[i], std::vector<int>(held[i].size(), 100 * round + i));
    }
    int x = 0;
    EXPECT_THROW(gather_from_owners(t, group, {{1, &x, sizeof x}}, {make_tag(9, 0, 0, 0, 9), "x"}),
                 Error);
  });
}

// Groups overlap, and each member starts its sums in an order of its own.
TEST(SumsAtOnce, MayStartInAnyOrder) {
  const std::vector<Group> groups = {{0, 1, 2, 3}, {0, 2}, {1, 3}, {0, 3}, {1, 2, 3}, {2, 3}};
  for (unsigned seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    on_workers(4, quick(20), [&](Transport& t) {
      std::vector<std::size_t> mine;
      for (std::size_t g = 0; g < groups.size(); ++g) {
        if (std::binary_search(groups[g].begin(), groups[g].end(), t.worker())) mine.push_back(g);
      }
      std::mt19937 rng(seed * 10 + t.worker());
      std::shuffle(mine.begin(), mine.end(), rng);
      Reducer reducer(t);
      std::vector<std::vector<double>> data;
      std::vector<std::shared_ptr<Sum>> sums;
      for (const std::size_t g : mine) {
        data.emplace_back(30000, t.worker() + 1.0);
        sums.push_back(reducer.start_sum(groups[g], DType::Float64, data.back().data(), 30000,
                                         make_tag(9, static_cast<int>(g), 0, 0, 0)));
      }
      for (std::size_t i = 0; i < mine.size(); ++i) {
        reducer.wait(*sums[i], "one of several");
        double expected = 0;
        for (const int w : groups[mine[i]]) expected += w + 1.0;
        EXPECT_TRUE(
            std::all_of(data[i].begin(), data[i].end(), [&](double x) { return x == expected; }));
      }
    });
  }
}

TEST(SumsAtOnce, NameTheMissingMember) {
  auto transports = make_inproc(2, quick(0.2));
  Reducer reducer(*transports[0]);
  std::vector<float> data(10);
  const auto sum = reducer.start_sum({0, 1}, DType::Float32, data.data(), 10, 3);
  EXPECT_THAT([&] { reducer.wait(*sum, "0REDUCE_GRAD (step 2)"); },
              ThrowsMessage<Error>(
                  testing::AllOf(HasSubstr("0REDUCE_GRAD (step 2)"), HasSubstr("from worker 1"))));
}

// Member 0 gives up at its deadline and destroys its sum. Member 1 comes late. Its sum must fail,
// and nothing may write the data of member 0.
TEST(SumsAtOnce, AreGivenUpByThoseWhoLetGo) {
  auto transports = make_inproc(2, quick(0.2));
  Reducer reducer(*transports[0]), other(*transports[1]);
  std::vector<float> data(10, 1), others(10, 2);
  {
    const auto sum = reducer.start_sum({0, 1}, DType::Float32, data.data(), 10, 3);
    EXPECT_THROW(reducer.wait(*sum, "a sum"), Error);
  }
  const auto late = other.start_sum({0, 1}, DType::Float32, others.data(), 10, 3);
  EXPECT_THROW(other.wait(*late, "a sum"), Error);
  EXPECT_EQ(data, std::vector<float>(10, 1));
}

TEST(SumsAtOnce, FailWithTheJob) {
  auto transports = make_inproc(2, quick(20));
  Reducer reducer(*transports[0]);
  std::vector<float> data(10);
  const auto sum = reducer.start_sum({0, 1}, DType::Float32, data.data(), 10, 3);
  transports[1]->abort(1, "killed");
  EXPECT_THAT([&] { reducer.wait(*sum, "0REDUCE_GRAD"); },
              ThrowsMessage<Error>(HasSubstr("worker 1 ended the job: killed")));
}

TEST(SumsAtOnce, RefuseBadGroups) {
  auto transports = make_inproc(3);
  Reducer reducer(*transports[0]);
  float x = 0;
  for (const Group& bad : {Group{}, Group{1, 0, 1}, Group{0, 0}, Group{1, 2}}) {
    EXPECT_THROW(reducer.start_sum(bad, DType::Float32, &x, 1, 0), Error);
  }
  EXPECT_THROW(reducer.start_sum({0}, DType::Int32, &x, 1, 0), Error);
  EXPECT_THROW(reducer.start_sum({0}, DType::Float32, &x, 1, 0, DType::Float16), Error);
  EXPECT_THROW(reducer.start_sum({0}, DType::Float64, &x, 1, 0, DType::BFloat16), Error);
}

TEST(SumsAtOnce, AddInTheOrderOfTheGroup) {
  on_workers(3, quick(20), [](Transport& t) {
    Reducer reducer(t);
    for (const Group& group : {Group{0, 1, 2}, Group{1, 2, 0}, Group{2, 0, 1}}) {
      // 1e8 + 3 + 3 and 3 + 3 + 1e8 differ in float32.
      std::vector<float> data(7, t.worker() == 0 ? 1e8F : 3.0F);
      const auto sum =
          reducer.start_sum(group, DType::Float32, data.data(), 7, static_cast<Tag>(group[0]));
      reducer.wait(*sum, "a sum");
      float expected = 0;
      for (const int member : group) expected += member == 0 ? 1e8F : 3.0F;
      EXPECT_EQ(data, std::vector<float>(7, expected)) << group[0];
    }
  });
}

TEST(Exchanges, GatherScalarsAndOrderTheirSum) {
  on_workers(4, quick(20), [](Transport& t) {
    const Group group = {0, 1, 3};
    if (t.worker() == 2) return;
    const std::vector<std::size_t> sizes = {1, 0, 5};
    const std::string mine = t.worker() == 0 ? "a" : t.worker() == 3 ? "bcdef" : "";
    std::string all(6, ' ');
    all_gather_bytes(t, group, sizes, mine.data(), all.data(), {1, "a gather"});
    EXPECT_EQ(all, "abcdef");
    // 1e16 + 1 + 1 and 1 + 1 + 1e16 differ in float64, so the result shows the order of the
    // additions.
    double value = t.worker() == 0 ? 1e16 : 1.0;
    sum_f64(t, group, &value, 1, {2, "a loss"});
    EXPECT_EQ(value, (1e16 + 1.0) + 1.0);
    value = t.worker() == 0 ? 1e16 : 1.0;
    sum_f64(t, {3, 1, 0}, &value, 1, {3, "a loss"});
    EXPECT_EQ(value, (1.0 + 1.0) + 1e16);
    barrier(t, group, {4, "the end"});
  });
}

TEST(Connect, RefusesANameOfNoTransport) {
  EXPECT_THAT([] { connect("pigeon", {}); },
              ThrowsMessage<Error>("unknown transport 'pigeon' (HETU_TRANSPORT); known: " +
                                   fmt::format("{}", fmt::join(transport_names(), ", "))));
}

// Workers that come late, as on a busy machine, must not shift the origin.
TEST(Clock, OriginIsTheSameMomentOnAllWorkers) {
  for (const bool share : {true, false}) {
    Options options = quick(60);
    options.local_doorbells = share;  // false: as if the workers' clocks differed
    std::vector<std::int64_t> origins(4);
    on_workers(4, options, [&](Transport& t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200 * (3 - t.worker())));
      origins[t.worker()] = common_origin(t, 7, "the origin");
      std::this_thread::sleep_for(std::chrono::milliseconds(200 * t.worker()));
      EXPECT_LE(origins[t.worker()], now_ns());
    });
    for (const std::int64_t origin : origins) {
      if (share)
        EXPECT_EQ(origin, origins[0]);
      else
        EXPECT_NEAR(static_cast<double>(origin - origins[0]), 0, 1e8);
    }
  }
}

}  // namespace
}  // namespace hetu::comm
