// Tests messages and sums between memories of devices. They use the device "far" or an emulated
// GPU, and a library that stands in for NCCL. Workers are threads that find each other over the
// in-process transport.
#include <gmock/gmock.h>

#include <cstring>
#include <random>

#include "base/error.h"
#include "executor/direct/direct_links.h"
#include "executor/job/gpu_messages.h"
#include "net/transport/collective.h"
#include "tests/executor/worker_threads.h"
#include "tests/stand_ins/fake_nccl.h"

namespace hetu {
namespace {

using comm::make_tag;
using testing::AllOf;
using testing::HasSubstr;

const comm::NcclLibrary& library() {
  static const comm::NcclLibrary one = comm::load_nccl(HETU_FAKE_NCCL);
  return one;
}

const comm::FakeNccl& fake() {
  static const comm::FakeNccl one = comm::load_fake_nccl();
  return one;
}

comm::Options quick(double timeout_s) {
  comm::Options options;
  options.timeout_s = timeout_s;
  options.dead_after_s = 0.5;
  return options;
}

/// A worker's device, some memory on it, and links. The links are destroyed first.
struct TestWorker {
  explicit TestWorker(comm::Transport& t, std::int64_t elements = 64)
      : transport(t),
        memory(device->alloc(elements * 4)),
        span{reinterpret_cast<float*>(memory.get()), elements, device.get()},
        links(t, library(), *device) {}
  Event now() const { return device->queue().record(); }
  DeviceSpan part(std::int64_t begin, std::int64_t elements) const {
    return {span.data + begin, elements, device.get()};
  }

  comm::Transport& transport;
  std::unique_ptr<Device> device = open_device(HETU_DIRECT_DEVICE);
  Device::Memory memory;
  DeviceSpan span;
  DirectLinks links;
};

comm::Tag tag_of(int kind, int micro) { return make_tag(kind, 0, micro, 0, 0); }

TEST(DirectLinks, EachSideMayAskInAnOrderOfItsOwn) {
  constexpr int kMicros = 12;
  const auto said = on_worker_threads(2, [](comm::Transport& t) {
    TestWorker here(t, 2 * kMicros);
    const int peer = 1 - t.worker();
    std::vector<float> values(2 * kMicros, -1);
    for (int m = 0; m < kMicros; ++m) values[m] = static_cast<float>(100 * t.worker() + m);
    here.span.write(values.data());
    std::vector<Event> events;
    // Worker 0 sends in ascending order and receives in descending order. Worker 1 does the
    // opposite. Both use both directions. An implementation that starts messages in the order of
    // its own calls deadlocks here.
    const auto send = [&](int m) {
      events.push_back(here.links.send(peer, tag_of(1, m), here.part(m, 1).data, 4, here.now()));
    };
    const auto receive = [&](int m) {
      events.push_back(
          here.links.receive(peer, tag_of(1, m), here.part(kMicros + m, 1).data, 4, here.now()));
    };
    for (int i = 0; i < kMicros; ++i) t.worker() == 0 ? send(i) : receive(i);
    for (int i = kMicros - 1; i >= 0; --i) t.worker() == 0 ? receive(i) : send(kMicros - 1 - i);
    for (const Event& event : events) here.links.wait(event, "a message");
    const std::vector<float> all = here.span.values();
    for (int m = 0; m < kMicros; ++m) EXPECT_EQ(all[kMicros + m], 100 * peer + m);
  });
  EXPECT_EQ(said, "");
  EXPECT_EQ(fake().live(), 0);
}

TEST(DirectLinks, AMessageWaitsForItsBytesAndForItsRoom) {
  const auto said = on_worker_threads(2, [](comm::Transport& t) {
    TestWorker here(t, 1);
    const bool sends = t.worker() == 0;
    auto coming = std::make_shared<Event::Coming>();
    const Event ready(coming);
    const Event end = sends ? here.links.send(1, tag_of(1, 0), here.span.data, 4, ready)
                            : here.links.receive(0, tag_of(1, 0), here.span.data, 4, ready);
    std::this_thread::sleep_for(std::chrono::milliseconds(sends ? 30 : 60));
    EXPECT_FALSE(end.done());
    const float value = sends ? 7.0F : 3.0F;
    here.span.write(&value);
    coming->complete(comm::now_ns(), nullptr);
    here.links.wait(end, "a message");
    EXPECT_EQ(here.span.values()[0], 7);
  });
  EXPECT_EQ(said, "");
}

// A receive starts when its memory is free. The first of two messages in one direction may get free
// memory only after the second message has arrived. A sender that starts them in its own order
// would block its stream, and the second message, forever.
TEST(DirectLinks, AMessageWithoutRoomHoldsUpNoOther) {
  const auto said = on_worker_threads(
      2,
      [](comm::Transport& t) {
        TestWorker here(t, 2);
        const std::vector<float> values = {7, 8};
        if (t.worker() == 0) here.span.write(values.data());
        if (t.worker() == 0) {
          const Event first = here.links.send(1, tag_of(1, 0), here.part(0, 1).data, 4, here.now());
          const Event second =
              here.links.send(1, tag_of(1, 1), here.part(1, 1).data, 4, here.now());
          here.links.wait(second, "the second");
          here.links.wait(first, "the first");
          return;
        }
        auto room = std::make_shared<Event::Coming>();
        const Event first =
            here.links.receive(0, tag_of(1, 0), here.part(0, 1).data, 4, Event(room));
        here.links.wait(here.links.receive(0, tag_of(1, 1), here.part(1, 1).data, 4, here.now()),
                        "the second");
        room->complete(comm::now_ns(), nullptr);
        here.links.wait(first, "the first");
        EXPECT_EQ(here.span.values(), values);
      },
      quick(20));
  EXPECT_EQ(said, "");
}

/// Compares sums on the device with sums of the transport's reducer, which other tests check.
void compare_sums(int workers, std::int64_t elements, const comm::Group& order) {
  const auto said = on_worker_threads(workers, [&](comm::Transport& t) {
    if (std::find(order.begin(), order.end(), t.worker()) == order.end()) return;
    TestWorker here(t, elements);
    std::mt19937 random(static_cast<unsigned>(t.worker() + 1));
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> host(static_cast<std::size_t>(elements));
    for (float& x : host) x = normal(random) * std::pow(10.0F, normal(random));
    here.span.write(host.data());
    const Event end = here.links.sum(order, tag_of(2, 0), here.span.data, elements, here.now());
    comm::Reducer reducer(t);
    const auto sum = reducer.start_sum(order, DType::Float32, host.data(), elements, tag_of(3, 0));
    reducer.wait(*sum, "the host's");
    here.links.wait(end, "the device's");
    const std::vector<float> device = here.span.values();
    EXPECT_EQ(std::memcmp(device.data(), host.data(), host.size() * 4), 0)
        << workers << " workers, " << elements << " elements, worker " << t.worker();
  });
  EXPECT_EQ(said, "");
}

TEST(DirectLinks, SumsHaveTheBitsOfTheHosts) {
  for (const std::int64_t elements : {1, 2, 3, 7, 1000})
    for (const comm::Group& order :
         std::vector<comm::Group>{{0, 1}, {1, 0}, {0, 2, 3}, {2, 3, 1, 0}})
      compare_sums(4, elements, order);
  EXPECT_EQ(fake().live(), 0);
}

TEST(DirectLinks, SumsOfAGroupMayBeginInAnyOrder) {
  const auto said = on_worker_threads(3, [](comm::Transport& t) {
    TestWorker here(t, 6);
    const std::vector<float> ones(6, static_cast<float>(1 + t.worker()));
    here.span.write(ones.data());
    std::vector<Event> events;
    for (int i = 0; i < 6; ++i) {
      const int k = (i + 2 * t.worker()) % 6;
      events.push_back(
          here.links.sum({0, 1, 2}, tag_of(2, k), here.part(k, 1).data, 1, here.now()));
    }
    for (const Event& event : events) here.links.wait(event, "a sum");
    EXPECT_EQ(here.span.values(), std::vector<float>(6, 6));
  });
  EXPECT_EQ(said, "");
}

/// Returns the error of each of three workers if worker 2 ends at the given moment. Worker 0 waits
/// for a message from worker 2, and worker 1 for a sum of all workers. Worker 2 ends either before
/// or after it has requested its part of the sum.
enum class Moment { BeforeItAsks, AfterItHasAsked };
std::vector<std::string> with_a_death(Moment moment) {
  auto transports = comm::make_inproc(3, quick(60));
  std::vector<std::string> said(3);
  std::vector<std::thread> threads;
  for (int w = 0; w < 3; ++w)
    threads.emplace_back([&, w] {
      comm::Transport& t = *transports[w];
      try {
        TestWorker here(t, 4);
        comm::barrier(t, {0, 1, 2}, {tag_of(9, 0), "the start"});
        const auto receive = [&] {
          return here.links.receive(2, tag_of(1, 0), here.span.data, 4, here.now());
        };
        const auto sum = [&] {
          return here.links.sum({0, 1, 2}, tag_of(2, 0), here.part(1, 1).data, 1, here.now());
        };
        if (w == 2) {
          if (moment == Moment::AfterItHasAsked) sum();
          fail(Code::Internal, "lightning");
        }
        here.links.wait(w == 0 ? receive() : sum(), "F3 of step 5");
      } catch (const std::exception& e) {
        said[w] = e.what();
        t.abort(1, e.what());
      }
    });
  for (auto& thread : threads) thread.join();
  return said;
}

// The device may still be writing the operand when the mean is requested. The wait for it happens
// on the device. A member that gives up waits for nobody.
TEST(DirectMeans, WaitForWhatIsGiven) {
  const auto said = on_worker_threads(
      2,
      [](comm::Transport& t) {
        TestWorker here(t, 12);
        const auto means = here.links.means();
        const auto mine = static_cast<float>(1 + 2 * t.worker());
        here.device->queue().run(
            [data = here.span.data, mine, fill = here.device->kernels().fill](AddressMap at) {
              std::this_thread::sleep_for(std::chrono::milliseconds(50));
              fill(at(data), mine, 6);
            });
        DirectMeans::Mean mean{{0, 1}, here.span.data, here.span.data + 6, 6};
        mean.ready = here.device->queue().mark();
        means->make(mean, 8, "a mean in pieces of two");
        EXPECT_EQ(here.part(6, 6).values(), std::vector<float>(6, 2));
        EXPECT_EQ(here.part(0, 6).values(), std::vector<float>(6, mine));
        if (t.worker() == 1) return;
        means->give_up();
        means->make(mean, 8, "a mean that nobody makes");
      },
      quick(20));
  EXPECT_EQ(said, "worker 0 in a mean that nobody makes: the communicator was aborted");
  EXPECT_EQ(fake().live(), 0);
}

TEST(DirectLinks, ADeathIsNamedWithin10Seconds) {
  for (const Moment moment : {Moment::BeforeItAsks, Moment::AfterItHasAsked}) {
    const std::int64_t begin = comm::now_ns();
    const auto said = with_a_death(moment);
    EXPECT_LT(comm::now_ns() - begin, 10'000'000'000);
    for (const int w : {0, 1})
      EXPECT_THAT(said[w], AllOf(HasSubstr(fmt::format("worker {} in F3 of step 5", w)),
                                 HasSubstr("worker 2"), HasSubstr("lightning")));
    EXPECT_EQ(fake().live(), 0);
  }
}

TEST(DirectLinks, WaitsHaveADeadline) {
  const auto said = on_worker_threads(
      2,
      [](comm::Transport& t) {
        TestWorker here(t, 1);
        if (t.worker() == 0)
          here.links.wait(here.links.receive(1, tag_of(1, 0), here.span.data, 4, here.now()),
                          "F3 of step 5");
      },
      quick(0.3));
  EXPECT_EQ(said, "worker 0 waited 0.3 s for F3 of step 5 over NCCL");
}

TEST(GpuMessages, TwoWorkersOnOneCardGoThroughHostMemory) {
  EXPECT_EQ(why_not_nccl({{"a", ""}, {"b", ""}}), "");
  EXPECT_EQ(why_not_nccl({{"", ""}, {"", ""}}), "");
  EXPECT_EQ(why_not_nccl({{"a", ""}, {"b", ""}, {"a", ""}}), "workers 0 and 2 share one GPU, a");
  EXPECT_EQ(why_not_nccl({{"a", ""}, {"b", "no NCCL"}}), "worker 1: no NCCL");
}

}  // namespace
}  // namespace hetu
