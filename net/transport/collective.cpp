// All-reduces and reduce-scatters on the Reducer's thread.
//
// A sum over g members runs in two phases. The data is cut into g slices, and member j owns slice
// j. In phase 0 every member sends each owner its piece of the owner's slice. The owner adds the g
// pieces in member order, so the result does not depend on the order of arrival. In phase 1 the
// owner sends the sum to all others. Example with 3 members, whose data is a, b and c:
//
//   phase 0   member 1 receives a[1], c[1] and computes a[1] + b[1] + c[1]
//   phase 1   member 1 sends this sum to members 0 and 2; members 0 and 2 do the same for theirs
//
// A reduce-scatter ends after phase 0. A member may have several terms. It then sends each owner
// all its pieces in one message, and the owner adds the terms in the order that the members agreed
// on.
#include "net/transport/collective.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <string>
#include <thread>

#include "base/bfloat16.h"
#include "base/error.h"

namespace hetu::comm {
namespace {

using RequestPtr = std::unique_ptr<Request>;

// Checks a group whose members are listed in any order, which is the order of the additions.
void check_order(const Transport& transport, Group order) {
  std::sort(order.begin(), order.end());
  check_group(transport, order);
}

void check_dtype(DType dtype) {
  if (dtype != DType::Float32 && dtype != DType::Float64)
    fail(Code::Unsupported, "sums over workers support float32 and float64, got {}",
         dtype_name(dtype));
}

template <class From, class To>
void convert(const std::byte* from, std::byte* to, std::int64_t count) {
  const From* x = reinterpret_cast<const From*>(from);
  To* y = reinterpret_cast<To*>(to);
  for (std::int64_t i = 0; i < count; ++i) y[i] = static_cast<To>(x[i]);
}

// A term of a sum, as its owner has it.
struct Piece {
  const std::byte* data = nullptr;
  bool came = false;  // received, in the type in which it was sent
};

// Computes data[i] = the sum of pieces[..][i] in the given order. Received pieces have type Came,
// and the others type T. The blocks keep partial sums in the cache.
template <class T, class Came>
void add_pieces(const std::vector<Piece>& pieces, const std::vector<int>& order, std::byte* data,
                std::int64_t count) {
  constexpr std::int64_t kBlock = 2048;
  std::vector<T> sums;
  std::int64_t n = 0;
  const auto each = [&](const Piece& piece, std::int64_t at, T* sum, const auto& take) {
    if (piece.came) {
      const Came* from = reinterpret_cast<const Came*>(piece.data) + at;
      for (std::int64_t i = 0; i < n; ++i) take(sum[i], static_cast<T>(from[i]));
    } else {
      const T* from = reinterpret_cast<const T*>(piece.data) + at;
      for (std::int64_t i = 0; i < n; ++i) take(sum[i], from[i]);
    }
  };
  for (std::int64_t at = 0; at < count; at += kBlock) {
    n = std::min(kBlock, count - at);
    std::size_t depth = 0;
    for (std::size_t s = 0; s < order.size(); ++s) {
      if (order[s] < 0) {  // of two sums on the stack
        --depth;
        T* const to = &sums[(depth - 1) * kBlock];
        for (std::int64_t i = 0; i < n; ++i) to[i] += to[kBlock + i];
        continue;
      }
      const Piece& piece = pieces[static_cast<std::size_t>(order[s])];
      if (s + 1 < order.size() && order[s + 1] < 0) {  // added at once, without a copy
        each(piece, at, &sums[(depth - 1) * kBlock], [](T& to, T x) { to += x; });
        ++s;
        continue;
      }
      if (sums.size() < (depth + 1) * kBlock) sums.resize((depth + 1) * kBlock);
      each(piece, at, &sums[depth++ * kBlock], [](T& to, T x) { to = x; });
    }
    std::copy_n(sums.data(), n, reinterpret_cast<T*>(data) + at);
  }
}

}  // namespace

Terms term_each(const Group& group, int worker, const void* data) {
  Terms terms;
  for (std::size_t m = 0; m < group.size(); ++m) {
    terms.members.push_back(static_cast<int>(m));
    terms.data.push_back(group[m] == worker ? data : nullptr);
    terms.order.push_back(static_cast<int>(m));
    if (m > 0) terms.order.push_back(-1);
  }
  return terms;
}

void check_group(const Transport& transport, const Group& group) {
  bool ascending = !group.empty();
  for (std::size_t i = 1; i < group.size(); ++i) ascending &= group[i - 1] < group[i];
  require(ascending, "a group must list its workers in ascending order, each once; got [{}]",
          fmt::join(group, ", "));
  require(std::binary_search(group.begin(), group.end(), transport.worker()),
          "worker {} is not in the group [{}]", transport.worker(), fmt::join(group, ", "));
}

Group everyone(const Transport& transport) {
  Group all(transport.workers());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

std::vector<Slice> even_slices(std::int64_t count, std::size_t members) {
  const auto n = static_cast<std::int64_t>(members);
  std::vector<Slice> slices;
  for (std::int64_t m = 0; m < n; ++m)
    slices.push_back({count * m / n, count * (m + 1) / n - count * m / n});
  return slices;
}

// One sum in progress. Member j owns slice j of the data. If the transfer is rounded, `scratch_`
// holds a bfloat16 copy of the data, and pieces and sums are sent from and received into that copy.
class Sum {
 public:
  struct How {
    bool rounds = false;    // pieces and sums travel as bfloat16
    bool scatters = false;  // members receive only the sums of their own slices
  };

  Sum(Transport& transport, const Group& group, DType dtype, void* data, std::vector<Slice> slices,
      Terms terms, How how)
      : transport_(transport),
        group_(group),
        dtype_(dtype),
        rounds_(how.rounds),
        scatters_(how.scatters),
        size_(dtype_bytes(dtype)),
        wire_size_(how.rounds ? dtype_bytes(DType::BFloat16) : size_),
        data_(static_cast<std::byte*>(data)),
        slices_(std::move(slices)),
        terms_(std::move(terms)),
        peers_(group.size()) {
    me_ = std::find(group.begin(), group.end(), transport.worker()) - group.begin();
    for (const Slice& slice : slices_) count_ += slice.count;
    for (const int member : terms_.members) ++peers_[static_cast<std::size_t>(member)].terms;
    const bool alone = group.size() == 1;
    if (alone && count_ > 0 && terms_.order.size() > 1) add_own_slice();
    finished_ = alone || count_ == 0;
    if (finished_) finished_ns_ = now_ns();
  }

  bool finished() const { return finished_; }
  std::int64_t finished_ns() const { return finished_ns_; }

  // Scratch holds the own slice of each term of another member, and after them a copy of what is
  // sent, if that isn't the data itself: rounded, or the pieces of several terms together.
  std::size_t scratch_bytes() const {
    const std::size_t sent = rounds_ ? 1 : peers_[me_].terms > 1 ? peers_[me_].terms : 0;
    return pieces_bytes() + sent * static_cast<std::size_t>(count_ * wire_size_);
  }

  void start(std::vector<std::byte> scratch, Tag tag, Signal* signal) {
    scratch_ = std::move(scratch);
    tag_ = tag;
    signal_ = signal;
    for (std::size_t p = 0; p < group_.size(); ++p) {
      if (p == me_) continue;
      if (rounds_) convert<float, BFloat16>(slice(p), sent_slice(p), slice_count(p));
      if (slice_bytes(me_) > 0 && peers_[p].terms > 0)
        peers_[p].piece_in = transport_.recv(group_[p], tag, piece_of(p),
                                             peers_[p].terms * slice_bytes(me_), signal);
      if (slice_bytes(p) > 0 && peers_[me_].terms > 0)
        peers_[p].piece_out = transport_.send(group_[p], tag, own_pieces(p),
                                              peers_[me_].terms * slice_bytes(p), signal);
    }
  }

  // Advances as far as the messages that have arrived allow.
  void advance() {
    if (!added_ && all_done(&Peer::piece_in)) add_own_slice();
    for (std::size_t p = 0; p < group_.size() && !scatters_; ++p) {
      Peer& peer = peers_[p];
      // The sum is received into the memory that the piece was sent from, so that send must be
      // done.
      if (p == me_ || slice_bytes(p) == 0 || peer.sum_in) continue;
      if (peer.piece_out && !peer.piece_out->done()) continue;
      peer.sum_in =
          transport_.recv(group_[p], second_phase(tag_), sent_slice(p), slice_bytes(p), signal_);
    }
    if (added_ && all_done(&Peer::piece_out) && (scatters_ || all_here(&Peer::sum_in)) &&
        all_done(&Peer::sum_in) && all_done(&Peer::sum_out)) {
      for (std::size_t p = 0; rounds_ && p < group_.size(); ++p)
        if (p != me_) convert<BFloat16, float>(sent_slice(p), slice(p), slice_count(p));
      finished_ = true;
      finished_ns_ = now_ns();
    }
  }

  // Returns the first request that is not done; null if there is none.
  Request* pending() const {
    for (const Peer& peer : peers_) {
      for (const RequestPtr* r : {&peer.piece_in, &peer.sum_in, &peer.piece_out, &peer.sum_out})
        if (*r && !(*r)->done()) return r->get();
    }
    return nullptr;
  }
  void check(WaitPurpose what) const {
    if (!abandoned_.empty()) fail(Code::Comm, "{}: {}", what.text(), abandoned_);
    for (const Peer& peer : peers_) {
      for (const RequestPtr* r : {&peer.piece_in, &peer.sum_in, &peer.piece_out, &peer.sum_out})
        if (*r) transport_.check(**r, what);
    }
  }
  // Fails the sum because one of its members is dead.
  void abandon(std::string why) { abandoned_ = std::move(why); }
  const Group& group() const { return group_; }

  bool failed() const {
    if (!abandoned_.empty()) return true;
    for (const Peer& peer : peers_) {
      for (const RequestPtr* r : {&peer.piece_in, &peer.sum_in, &peer.piece_out, &peer.sum_out}) {
        if (*r && (*r)->failed()) return true;
      }
    }
    return false;
  }
  std::vector<std::byte> take_scratch() { return std::move(scratch_); }

 private:
  // The four messages that this member exchanges with another one.
  struct Peer {
    RequestPtr piece_out, piece_in, sum_out, sum_in;
    std::size_t terms = 0;  // that the member contributes
  };

  std::byte* slice(std::size_t member) const { return data_ + slices_[member].begin * size_; }
  std::int64_t slice_count(std::size_t member) const { return slices_[member].count; }
  // Size of a slice as it is transferred.
  std::size_t slice_bytes(std::size_t member) const {
    return static_cast<std::size_t>(slice_count(member) * wire_size_);
  }
  // Rounded up to 64 bytes, so that the rounded copy starts on its own cache line.
  std::size_t pieces_bytes() const {
    return (slice_bytes(me_) * (terms_.members.size() - peers_[me_].terms) + 63) / 64 * 64;
  }
  std::byte* sent_slice(std::size_t member) {
    if (!rounds_) return slice(member);
    return scratch_.data() + pieces_bytes() + slices_[member].begin * wire_size_;
  }
  std::byte* piece_of(std::size_t member) {
    std::size_t before = 0;
    for (std::size_t p = 0; p < member; ++p) before += p == me_ ? 0 : peers_[p].terms;
    return scratch_.data() + slice_bytes(me_) * before;
  }
  // Returns the pieces of this member's terms for another member, one after another.
  const std::byte* own_pieces(std::size_t member) {
    if (rounds_) return sent_slice(member);
    const std::int64_t begin = slices_[member].begin * size_;
    std::byte* const to =
        scratch_.data() + pieces_bytes() + static_cast<std::size_t>(begin) * peers_[me_].terms;
    std::byte* end = to;
    for (const void* term : terms_.data) {
      if (term == nullptr) continue;
      const std::byte* const piece = static_cast<const std::byte*>(term) + begin;
      if (peers_[me_].terms == 1) return piece;
      end = std::copy_n(piece, slice_bytes(member), end);
    }
    return to;
  }
  bool all_done(RequestPtr Peer::*which) const {
    return std::all_of(peers_.begin(), peers_.end(),
                       [&](const Peer& p) { return !(p.*which) || (p.*which)->done(); });
  }
  bool all_here(RequestPtr Peer::*which) const {
    for (std::size_t p = 0; p < peers_.size(); ++p) {
      if (p != me_ && slice_bytes(p) > 0 && !(peers_[p].*which)) return false;
    }
    return true;
  }

  void add_own_slice() {
    added_ = true;
    const std::int64_t count = slice_count(me_);
    if (count == 0) return;
    std::vector<Piece> pieces;
    std::vector<std::size_t> seen(group_.size(), 0);
    for (std::size_t t = 0; t < terms_.members.size(); ++t) {
      const auto p = static_cast<std::size_t>(terms_.members[t]);
      const bool own = p == me_;
      const std::byte* const data =
          own ? static_cast<const std::byte*>(terms_.data[t]) + slices_[me_].begin * size_
              : piece_of(p) + seen[p]++ * slice_bytes(me_);
      pieces.push_back({data, !own});
    }
    if (rounds_) {
      add_pieces<float, BFloat16>(pieces, terms_.order, slice(me_), count);
      convert<float, BFloat16>(slice(me_), sent_slice(me_), count);
      convert<BFloat16, float>(sent_slice(me_), slice(me_), count);
    } else if (dtype_ == DType::Float64) {
      add_pieces<double, double>(pieces, terms_.order, slice(me_), count);
    } else {
      add_pieces<float, float>(pieces, terms_.order, slice(me_), count);
    }
    if (scatters_) return;
    for (std::size_t p = 0; p < group_.size(); ++p) {
      if (p == me_) continue;
      peers_[p].sum_out = transport_.send(group_[p], second_phase(tag_), sent_slice(me_),
                                          slice_bytes(me_), signal_);
    }
  }

  Transport& transport_;
  Group group_;
  DType dtype_;
  bool rounds_, scatters_;
  std::int64_t size_, wire_size_;  // bytes of an element in the data, and in the transfer
  std::byte* data_;
  std::vector<Slice> slices_;  // by member
  Terms terms_;
  std::int64_t count_ = 0;  // elements of all slices
  std::size_t me_ = 0;
  std::vector<std::byte> scratch_;  // declared before peers_, whose receives point into it
  std::vector<Peer> peers_;
  Tag tag_ = 0;
  Signal* signal_ = nullptr;
  std::string abandoned_;
  bool added_ = false;
  bool finished_ = false;
  std::int64_t finished_ns_ = 0;
};

struct Reducer::Impl {
  explicit Impl(Transport& t) : transport(t) {}

  Transport& transport;
  Signal signal;      // counts completions of pieces, new sums, and the end
  bool stop = false;  // guarded by signal.mutex
  std::mutex mutex;   // guards the sums and all members below
  std::condition_variable finished;
  bool given_up = false;            // guarded by mutex
  std::map<int, std::string> lost;  // dead workers, and why
  std::vector<std::shared_ptr<Sum>> active;
  std::vector<std::vector<std::byte>> spare;  // scratch of earlier sums, for reuse
  std::thread thread;

  void ring(bool end) {
    const std::lock_guard lock(signal.mutex);
    stop |= end;
    ++signal.count;
    signal.changed.notify_all();
  }

  std::vector<std::byte> scratch(std::size_t bytes) {
    std::vector<std::byte> buffer;
    if (!spare.empty()) {
      buffer = std::move(spare.back());
      spare.pop_back();
    }
    if (buffer.size() < bytes) buffer.resize(bytes);
    return buffer;
  }

  // Returns the pointer whose last copy withdraws the sum.
  static std::shared_ptr<Sum> start(const std::shared_ptr<Impl>& impl, std::shared_ptr<Sum> sum,
                                    Tag tag);

  void withdraw(const std::shared_ptr<Sum>& sum) {
    const std::lock_guard lock(mutex);
    std::erase(active, sum);
  }

  void run() {
    for (std::uint64_t seen = 0;;) {
      {
        std::unique_lock lock(signal.mutex);
        signal.changed.wait(lock, [&] { return stop || signal.count != seen; });
        if (stop) return;
        seen = signal.count;
      }
      const std::lock_guard lock(mutex);
      bool news = false;
      for (auto& sum : active) {
        if (!sum->failed()) sum->advance();
        news |= sum->finished() || sum->failed();
        if (sum->finished()) spare.push_back(sum->take_scratch());
      }
      std::erase_if(active, [](const auto& sum) { return sum->finished(); });
      if (news) finished.notify_all();
    }
  }
};

Reducer::Reducer(Transport& transport) : impl_(std::make_shared<Impl>(transport)) {
  impl_->thread = std::thread([impl = impl_.get()] { impl->run(); });
}

Reducer::~Reducer() {
  impl_->ring(true);
  impl_->thread.join();
  const std::lock_guard lock(impl_->mutex);
  impl_->active.clear();
}

std::shared_ptr<Sum> Reducer::start_sum(const Group& group, DType dtype, void* data,
                                        std::int64_t count, Tag tag, DType wire) {
  check_order(impl_->transport, group);
  check_dtype(dtype);
  const bool rounds = wire == DType::BFloat16;
  if (wire != DType::Float32 && !(rounds && dtype == DType::Float32))
    fail(Code::Unsupported, "sums of {} over workers cannot be sent as {}", dtype_name(dtype),
         dtype_name(wire));
  return Impl::start(
      impl_,
      std::make_shared<Sum>(impl_->transport, group, dtype, data, even_slices(count, group.size()),
                            term_each(group, impl_->transport.worker(), data),
                            Sum::How{rounds, false}),
      tag);
}

std::shared_ptr<Sum> Reducer::start_terms(const Group& group, DType dtype, void* data,
                                          const std::vector<Slice>& slices, const Terms& terms,
                                          Tag tag, bool scatters) {
  check_order(impl_->transport, group);
  check_dtype(dtype);
  require(slices.size() == group.size(), "got {} slices for a group of {} workers", slices.size(),
          group.size());
  HETU_ASSERT(terms.data.size() == terms.members.size() && !terms.order.empty());
  return Impl::start(impl_,
                     std::make_shared<Sum>(impl_->transport, group, dtype, data, slices, terms,
                                           Sum::How{false, scatters}),
                     tag);
}

std::shared_ptr<Sum> Reducer::start_scatter(const Group& group, DType dtype, void* data,
                                            const std::vector<Slice>& slices, Tag tag) {
  check_order(impl_->transport, group);
  check_dtype(dtype);
  require(slices.size() == group.size(), "got {} slices for a group of {} workers", slices.size(),
          group.size());
  return Impl::start(impl_,
                     std::make_shared<Sum>(impl_->transport, group, dtype, data, slices,
                                           term_each(group, impl_->transport.worker(), data),
                                           Sum::How{false, true}),
                     tag);
}

std::shared_ptr<Sum> Reducer::Impl::start(const std::shared_ptr<Impl>& impl,
                                          std::shared_ptr<Sum> sum, Tag tag) {
  if (sum->finished()) return sum;
  const Group& group = sum->group();
  {
    const std::lock_guard lock(impl->mutex);
    for (const auto& [worker, why] : impl->lost) {
      if (std::find(group.begin(), group.end(), worker) == group.end()) continue;
      sum->abandon(why);
      return sum;
    }
    sum->start(impl->scratch(sum->scratch_bytes()), tag, &impl->signal);
    impl->active.push_back(sum);
  }
  impl->ring(false);
  // The deleter runs when an error unwinds the owner's wait, before the data itself is destroyed.
  Sum* const raw = sum.get();
  return {raw, [impl, own = std::move(sum)](Sum*) { impl->withdraw(own); }};
}

std::int64_t Reducer::wait(Sum& sum, WaitPurpose what) {
  std::unique_lock lock(impl_->mutex);
  const bool ended = impl_->finished.wait_for(
      lock, std::chrono::duration<double>(impl_->transport.options().timeout_s),
      [&] { return sum.finished() || sum.failed() || impl_->given_up; });
  if (impl_->given_up && !sum.finished())
    fail(Code::Comm, "{}: this worker has aborted the job", what.text());
  if (!ended) {
    Request* missing = sum.pending();
    HETU_ASSERT(missing != nullptr);
    impl_->transport.timed_out(*missing, what);
  }
  sum.check(what);
  return sum.finished_ns();
}

void Reducer::give_up() {
  const std::lock_guard lock(impl_->mutex);
  impl_->given_up = true;
  impl_->finished.notify_all();
}

void Reducer::lose(int worker, const std::string& why) {
  const std::lock_guard lock(impl_->mutex);
  impl_->lost[worker] = why;
  std::erase_if(impl_->active, [&](const auto& sum) {
    const Group& group = sum->group();
    if (std::find(group.begin(), group.end(), worker) == group.end()) return false;
    sum->abandon(why);
    return true;
  });
  impl_->finished.notify_all();
}

}  // namespace hetu::comm
