// The wire over MPI. It needs MPI_THREAD_FUNNELED only: the progress thread calls MPI_Init_thread
// and every other function.
#include "net/transport/mpi.h"

#include <mpi.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string_view>
#include <thread>

#include "base/error.h"
#include "net/transport/doorbell.h"
#include "net/transport/linked.h"
#include "net/transport/wire.h"

namespace hetu::comm {
namespace {

constexpr int kFrameTag = 0;
constexpr std::size_t kFrameReceives = 32;           // receives posted ahead
constexpr std::size_t kPart = std::size_t{1} << 30;  // bytes; MPI counts are ints
constexpr std::size_t kNameBytes = 256;

void check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  fail(Code::Comm, "{}: {}", call, std::string(text.data(), length));
}

// Returns true under Open MPI 4. May be called before MPI starts.
bool is_open_mpi_4() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  return MPI_Get_library_version(text.data(), &length) == MPI_SUCCESS &&
         std::string_view(text.data()).starts_with("Open MPI v4.");
}

// Sets options for which Open MPI's defaults are bad here. Settings of the user are kept.
void set_open_mpi_defaults(std::size_t frame_bytes, bool one_host) {
  // A frame must leave eagerly, in one piece. MPI's rendezvous protocol would need the receiver to
  // call MPI at the right moment.
  const std::string eager = std::to_string(std::max<std::size_t>(frame_bytes + 1024, 32768));
  setenv("OMPI_MCA_btl_vader_eager_limit", eager.c_str(), 0);
  setenv("OMPI_MCA_btl_tcp_eager_limit", "65536", 0);
  setenv("OMPI_MCA_mpi_yield_when_idle", "1", 0);
  // Open MPI's hwloc prints complaints in every worker if /sys is not mounted. Nothing here is
  // bound to cores, so they don't matter.
  setenv("HWLOC_HIDE_ERRORS", "2", 0);
  // On one host, hwloc does not choose a network interface either, so it need only count the cores.
  // Reading the rest of /sys takes a quarter of the start time.
  if (one_host && is_open_mpi_4()) setenv("HWLOC_COMPONENTS", "no_os,stop", 0);
  // Containers often forbid reading the memory of another process. Open MPI notices this too late.
  char from = 1, to = 0;
  const iovec local{&to, 1}, remote{&from, 1};
  if (process_vm_readv(getpid(), &local, 1, &remote, 1, 0) != 1)
    setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0);
}

std::string own_host() {
  std::array<char, kNameBytes> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "?";
}

// Notifies heturun while MPI starts. If MPI cannot start, it ends the process itself, with its own
// status and with a message that only mpirun sees.
class Starting {
 public:
  explicit Starting(int progress_fd) : fd_(progress_fd) { say("starts"); }
  ~Starting() { say("runs"); }
  Starting(const Starting&) = delete;
  Starting& operator=(const Starting&) = delete;

 private:
  void say(const char* what) const {
    struct stat file = {};
    if (fd_ < 0 || fstat(fd_, &file) != 0 || !S_ISFIFO(file.st_mode)) return;
    const std::string line = fmt::format("{{\"mpi\": \"{}\"}}\n", what);
    // A failed write is ignored: heturun may be ending.
    static_cast<void>(!write(fd_, line.data(), line.size()));
  }
  int fd_;
};

class MpiWire final : public Wire {
 public:
  explicit MpiWire(const Options& options)
      : number_(options.number), progress_fd_(options.progress_fd), one_host_(options.one_host) {}

  Roster open(std::size_t frame_bytes) override {
    int running = 0;
    MPI_Initialized(&running);
    if (running)
      fail(Code::Unsupported,
           "MPI is already initialized in this process, but Hetu must initialize it; import hetu "
           "before mpi4py");
    set_open_mpi_defaults(frame_bytes, one_host_);
    const Starting starting(progress_fd_);
    int provided = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided), "MPI_Init_thread");
    if (provided < MPI_THREAD_FUNNELED)
      fail(Code::Unsupported, "this MPI does not allow threads (MPI_THREAD_FUNNELED)");
    number_workers();
    check(MPI_Comm_dup(frames_, &longs_), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(frames_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    check(MPI_Comm_set_errhandler(longs_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    Roster roster = exchange_names();
    receives_.resize(kFrameReceives);
    for (Receive& receive : receives_) {
      receive.data.resize(frame_bytes);
      post(receive);
    }
    return roster;
  }

  void barrier() override { check(MPI_Barrier(frames_), "MPI_Barrier"); }

  void send_frame(int peer, std::vector<std::byte> frame) override {
    Outgoing out{std::move(frame), MPI_REQUEST_NULL, peer};
    check(MPI_Isend(out.data.data(), static_cast<int>(out.data.size()), MPI_BYTE, peer, kFrameTag,
                    frames_, &out.request),
          "MPI_Isend");
    int done = 0;
    check(MPI_Test(&out.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    if (!done) outgoing_.push_back(std::move(out));
  }

  // Receives are tested in the order they were posted, because MPI matches them in that order.
  bool next_frame(int& peer, const std::byte*& data, std::size_t& bytes) override {
    if (taken_) {
      post(receives_[next_]);
      next_ = (next_ + 1) % receives_.size();
      taken_ = false;
    }
    int done = 0;
    MPI_Status status;
    check(MPI_Test(&receives_[next_].request, &done, &status), "MPI_Test");
    if (!done) return false;
    int count = 0;
    check(MPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count");
    peer = status.MPI_SOURCE;
    data = receives_[next_].data.data();
    bytes = static_cast<std::size_t>(count);
    taken_ = true;
    return true;
  }

  // A message of more than 1 GiB is sent as several MPI messages of one tag, which stay in order.
  void send_long(Request& send, std::uint64_t sequence) override {
    for (std::size_t at = 0; at < send.bytes(); at += kPart) {
      const int count = static_cast<int>(std::min(kPart, send.bytes() - at));
      Long part{&send, MPI_REQUEST_NULL};
      check(MPI_Isend(send.source() + at, count, MPI_BYTE, send.peer(), tag_of(sequence), longs_,
                      &part.request),
            "MPI_Isend");
      add(part);
    }
  }

  void receive_long(Request& receive, std::uint64_t sequence) override {
    for (std::size_t at = 0; at < receive.bytes(); at += kPart) {
      const int count = static_cast<int>(std::min(kPart, receive.bytes() - at));
      Long part{&receive, MPI_REQUEST_NULL};
      check(MPI_Irecv(receive.target() + at, count, MPI_BYTE, receive.peer(), tag_of(sequence),
                      longs_, &part.request),
            "MPI_Irecv");
      add(part);
    }
  }

  void finished_long(std::vector<Request*>& ended) override {
    for (std::size_t i = 0; i < parts_.size();) {
      int done = 0;
      check(MPI_Test(&parts_[i].request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (!done) {
        ++i;
        continue;
      }
      if (--parts_[i].owner->parts == 0) ended.push_back(parts_[i].owner);
      parts_.erase(parts_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    std::erase_if(outgoing_, [](Outgoing& out) {
      int done = 0;
      check(MPI_Test(&out.request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      return done != 0;
    });
  }

  bool long_under_way() const override { return !parts_.empty(); }
  void slow_peers(std::vector<int>& peers) const override {
    for (const Outgoing& out : outgoing_) peers.push_back(out.peer);
  }

  void close() override {
    for (Receive& receive : receives_) {
      check(MPI_Cancel(&receive.request), "MPI_Cancel");
      check(MPI_Wait(&receive.request, MPI_STATUS_IGNORE), "MPI_Wait");
    }
    check(MPI_Comm_free(&frames_), "MPI_Comm_free");
    check(MPI_Comm_free(&longs_), "MPI_Comm_free");
    check(MPI_Finalize(), "MPI_Finalize");
  }

  void abort(int status) override {
    // Open MPI 5 drops recent output of its processes. The pause lets the reason appear.
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    MPI_Abort(MPI_COMM_WORLD, status);
    std::_Exit(status);
  }

 private:
  struct Outgoing {
    std::vector<std::byte> data;  // its memory stays in place when the struct moves
    MPI_Request request;
    int peer;
  };
  struct Receive {
    std::vector<std::byte> data;
    MPI_Request request = MPI_REQUEST_NULL;
  };
  struct Long {
    Request* owner;
    MPI_Request request;
  };

  // A receive is open before its sender gets the grant. So two messages of one tag never wait at
  // once, and 32000 tags suffice.
  static int tag_of(std::uint64_t sequence) { return 1 + static_cast<int>(sequence % 32000); }

  void post(Receive& receive) {
    check(MPI_Irecv(receive.data.data(), static_cast<int>(receive.data.size()), MPI_BYTE,
                    MPI_ANY_SOURCE, kFrameTag, frames_, &receive.request),
          "MPI_Irecv");
  }
  // Orders the ranks by their assigned numbers. Either all ranks have a number, or none has.
  void number_workers() {
    int rank = 0, workers = 0;
    check(MPI_Comm_rank(MPI_COMM_WORLD, &rank), "MPI_Comm_rank");
    check(MPI_Comm_size(MPI_COMM_WORLD, &workers), "MPI_Comm_size");
    const int mine = number_ < 0 ? rank : number_;
    std::vector<int> all(workers);
    check(MPI_Allgather(&mine, 1, MPI_INT, all.data(), 1, MPI_INT, MPI_COMM_WORLD),
          "MPI_Allgather");
    std::sort(all.begin(), all.end());
    for (int w = 0; w < workers; ++w) {
      require(all[w] == w,
              "workers must be numbered 0 to {0}, each once; found {2} in place of {1}",
              workers - 1, w, all[w]);
    }
    check(MPI_Comm_split(MPI_COMM_WORLD, 0, mine, &frames_), "MPI_Comm_split");
  }
  void add(const Long& part) {
    ++part.owner->parts;
    parts_.push_back(part);
  }

  Roster exchange_names() {
    Roster roster;
    int workers = 0;
    check(MPI_Comm_rank(frames_, &roster.worker), "MPI_Comm_rank");
    check(MPI_Comm_size(frames_, &workers), "MPI_Comm_size");
    std::array<char, 2 * kNameBytes> own{};
    const std::string host = own_host(), domain = doorbell_domain();
    host.copy(own.data(), kNameBytes - 1);
    domain.copy(own.data() + kNameBytes, kNameBytes - 1);
    std::vector<char> all(own.size() * workers);
    check(
        MPI_Allgather(own.data(), own.size(), MPI_CHAR, all.data(), own.size(), MPI_CHAR, frames_),
        "MPI_Allgather");
    for (int w = 0; w < workers; ++w) {
      roster.hosts.emplace_back(all.data() + w * own.size());
      roster.domains.emplace_back(all.data() + w * own.size() + kNameBytes);
    }
    std::array<std::uint32_t, 4> key{};
    std::random_device random;
    for (auto& word : key) word = random();
    check(MPI_Bcast(key.data(), sizeof key, MPI_BYTE, 0, frames_), "MPI_Bcast");
    roster.job = fmt::format("{:08x}", fmt::join(key, ""));
    return roster;
  }

  int number_;
  int progress_fd_;
  bool one_host_;
  MPI_Comm frames_ = MPI_COMM_NULL;
  MPI_Comm longs_ = MPI_COMM_NULL;
  std::vector<Receive> receives_;
  std::size_t next_ = 0;
  bool taken_ = false;
  std::vector<Outgoing> outgoing_;
  std::vector<Long> parts_;
};

}  // namespace

std::unique_ptr<Transport> connect_mpi(const Options& options) {
  return link_workers(std::make_unique<MpiWire>(options), options);
}

}  // namespace hetu::comm
