// Rows are stored in blocks of a power of two of rows, about 16 KiB each. A record holds all planes
// of a row and its version: value | states | version (int64 in two floats). A block is created on
// the first access to one of its rows, with initial values that depend only on seed, name and
// position. Memory thus grows with the rows in use, and a row that was never changed needs no place
// in a snapshot: the same values can be computed again.
//
// Updates run over batches that fit into the first-level cache. Records of later rows are
// prefetched, because the rows of an update are scattered in memory.

#include "ps/server/row_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "ops/initialize.h"
#include "ps/server/add_in_pairs.h"

namespace hetu::ps::server {

namespace {

// floats of a block, which the first access creates
constexpr std::int64_t kBlockFloats = std::int64_t{1} << 12;
// floats of one plane of a batch: fits into L1 cache
constexpr std::int64_t kBatchFloats = 1 << 12;
constexpr std::int64_t kBatchRows = 64;
constexpr std::int64_t kAhead = 8;          // rows that are prefetched ahead
constexpr std::int64_t kVersionFloats = 2;  // an int64 takes two floats

std::size_t bytes_of(std::int64_t floats) { return static_cast<std::size_t>(floats) * 4; }

std::int64_t kept_bytes(std::int64_t rows, int width) {
  return rows * (12 + 4 * static_cast<std::int64_t>(width));  // id, count, vector
}

void raise_version(float* place, std::uint32_t by) {
  std::int64_t version = 0;
  std::memcpy(&version, place, sizeof version);
  version += by;
  std::memcpy(place, &version, sizeof version);
}

std::int64_t version_at(const float* place) {
  std::int64_t version = 0;
  std::memcpy(&version, place, sizeof version);
  return version;
}

std::int64_t block_rows(std::int64_t stride) {
  const std::int64_t most = std::max<std::int64_t>(1, kBlockFloats / stride);
  return static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(most)));
}

}  // namespace

namespace {
std::int64_t stride_of(const UpdateRule& rule, int width) {
  return static_cast<std::int64_t>(rule.planes()) * width + kVersionFloats;
}
std::int64_t blocks_of(std::int64_t rows, std::int64_t each) { return (rows + each - 1) / each; }
}  // namespace

std::int64_t RowTable::overhead(const UpdateRule& rule, const About& about, int members) {
  const std::int64_t blocks =
      blocks_of(about.split.rows_of(about.server), block_rows(stride_of(rule, about.width)));
  constexpr std::int64_t kMember = 1024;
  return Blocks::shelves_of(blocks) * static_cast<std::int64_t>(sizeof(void*)) + members * kMember;
}

RowTable::RowTable(const UpdateRule& rule, About about, int members,
                   std::shared_ptr<MemoryBudget> budget)
    : rule_(rule),
      about_(std::move(about)),
      share_(std::move(budget), overhead(rule, about_, members)),
      planes_(rule.planes()),
      stride_(stride_of(rule, about_.width)),
      block_rows_(block_rows(stride_)),
      block_shift_(std::countr_zero(static_cast<std::uint64_t>(block_rows_))),
      sweep_(rule.optimizer
                 ? cpu_tensor_kernels().sweep(optimizer_name(rule.optimizer->settings.kind))
                 : nullptr),
      blocks_(blocks_of(rows(), block_rows_)),
      kept_(static_cast<std::size_t>(members)),
      open_(static_cast<std::size_t>(members)) {}

bool RowTable::fits(const RowsView& view) const {
  std::int64_t last = -1;
  for (std::int64_t i = 0; i < view.count; ++i) {
    const std::int64_t id = view.id(i);
    if (id <= last) return false;
    last = id;
  }
  return last < rows();
}

RowTable::Block& RowTable::block_of(std::int64_t row) {
  const std::int64_t number = row >> block_shift_;
  if (!blocks_.has_shelf(number / Blocks::kShelf)) share_.grow(Blocks::kShelfBytes);
  Block& block = blocks_.at(number);
  if (!block.records) {
    block.records = make_records(number);
    share_.grow(static_cast<std::int64_t>(bytes_of(floats_of(number))));
  }
  return block;
}

std::int64_t RowTable::bytes_of_read(const std::byte* ids, std::int64_t count) const {
  std::vector<std::int64_t> made;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t block = number_at<std::int64_t>(ids, i) >> block_shift_;
    if (blocks_.has(block)) continue;
    if (made.empty() || made.back() != block) made.push_back(block);
  }
  std::sort(made.begin(), made.end());
  made.erase(std::unique(made.begin(), made.end()), made.end());
  std::int64_t floats = 0, shelves = 0, last = -1;
  for (const std::int64_t block : made) {
    floats += floats_of(block);
    const std::int64_t shelf = block / Blocks::kShelf;
    if (shelf != std::exchange(last, shelf) && !blocks_.has_shelf(shelf)) ++shelves;
  }
  return static_cast<std::int64_t>(bytes_of(floats)) + shelves * Blocks::kShelfBytes;
}

std::int64_t RowTable::bytes_of_update(const RowsView& rows) const {
  // Vectors of kept updates may take twice their size, because a growing vector doubles.
  if (rule_.rule != Rule::Each) return 2 * kept_bytes(rows.count, about_.width);
  return bytes_of_read(rows.ids, rows.count);
}

const float* RowTable::look_at(std::int64_t row) {
  return block_of(row).records.get() + (row & (block_rows_ - 1)) * stride_;
}

// Returns the record, which may be changed in place until blocks are lent again. Copies the block
// first if a snapshot still reads it.
float* RowTable::change(std::int64_t row) {
  Block& block = block_of(row);
  if (block.is_lent && block.records.use_count() > 1) {
    const std::int64_t floats = floats_of(row >> block_shift_);
    std::shared_ptr<float[]> copy(new float[static_cast<std::size_t>(floats)]);
    std::memcpy(copy.get(), block.records.get(), bytes_of(floats));
    block.records = std::move(copy);
  }
  block.is_lent = false;
  block.is_changed = true;
  return block.records.get() + (row & (block_rows_ - 1)) * stride_;
}

std::int64_t RowTable::floats_of(std::int64_t block) const {
  return std::min(block_rows_, rows() - block * block_rows_) * stride_;
}

std::shared_ptr<float[]> RowTable::make_records(std::int64_t block) const {
  const std::int64_t first = block * block_rows_;
  const std::int64_t count = floats_of(block) / stride_;
  std::shared_ptr<float[]> made(new float[static_cast<std::size_t>(count * stride_)]);
  const Shape shape = {about_.split.rows, about_.width};
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t begin = about_.split.row(about_.server, first + i) * about_.width;
    float* row = made.get() + i * stride_;
    initialize_part(about_.first.values, about_.name, shape, about_.first.seed,
                    {begin, begin + about_.width}, row);
    std::fill_n(row + about_.width, stride_ - about_.width, 0.0F);
  }
  return made;
}

std::vector<std::pair<std::int64_t, Payload>> RowTable::lend_blocks() {
  std::vector<std::pair<std::int64_t, Payload>> lent;
  blocks_.for_each([&](std::int64_t number, Block& block) {
    if (!block.is_changed) return;
    block.is_lent = true;
    const auto* data = reinterpret_cast<const std::byte*>(block.records.get());
    lent.emplace_back(number, Payload{data, bytes_of(floats_of(number)), block.records});
  });
  return lent;
}

bool RowTable::restore_block(std::int64_t block, const Payload& records) {
  if (block < 0 || block >= blocks_.size()) return false;
  if (records.bytes != bytes_of(floats_of(block))) return false;
  std::shared_ptr<float[]> made(new float[static_cast<std::size_t>(floats_of(block))]);
  std::memcpy(made.get(), records.data, records.bytes);
  if (!blocks_.has_shelf(block / Blocks::kShelf)) share_.grow(Blocks::kShelfBytes);
  Block& to = blocks_.at(block);
  if (!to.records) share_.grow(static_cast<std::int64_t>(records.bytes));
  to = {.records = std::move(made), .is_changed = true};
  return true;
}

std::vector<RowTable::KeptPiece> RowTable::kept_pieces() const {
  std::vector<KeptPiece> pieces;
  const auto most = static_cast<std::size_t>(most_rows(about_.width));
  const auto put = [&](std::size_t member, const Kept& kept, bool is_whole) {
    const std::size_t count = kept.rows.ids.size();
    std::size_t begin = 0;
    do {
      const std::size_t end = std::min(count, begin + most);
      pieces.push_back({static_cast<int>(member), kept.rate, is_whole && end == count,
                        payload_of(kept.rows, begin, end, about_.width)});
      begin = end;
    } while (begin < count);
  };
  for (std::size_t m = 0; m < kept_.size(); ++m) {
    for (const Kept& kept : kept_[m]) put(m, kept, true);
    if (!open_[m].rows.ids.empty()) put(m, open_[m], false);
  }
  return pieces;
}

// A kept update joins several pieces, so its ids may have any order. Only their range is checked.
bool RowTable::restore_kept(const KeptPiece& piece) {
  RowsView view;
  if (piece.member < 0 || static_cast<std::size_t>(piece.member) >= kept_.size()) return false;
  if (rule_.rule == Rule::Each || !view_rows(piece.rows, about_.width, true, view)) return false;
  for (std::int64_t i = 0; i < view.count; ++i) {
    if (view.id(i) < 0 || view.id(i) >= rows()) return false;
  }
  take(piece.member, view, piece.rate);
  if (piece.last) complete(piece.member);
  return true;
}

void RowTable::take(int member, const RowsView& rows, double rate) {
  if (rule_.rule == Rule::Each) return apply(rows, rate, 1, counts_.updates + 1);
  Kept& open = open_[static_cast<std::size_t>(member)];
  append(open.rows, rows, about_.width);
  open.rate = rate;
  share_.grow(kept_bytes(rows.count, about_.width));
}

void RowTable::complete(int member) {
  if (rule_.rule == Rule::Each) {
    ++counts_.pushes;
    ++counts_.updates;
    return;
  }
  Kept& open = open_[static_cast<std::size_t>(member)];
  kept_[static_cast<std::size_t>(member)].push_back(std::exchange(open, {}));
}

// The rows of a round are added by id, in pairs of members, so that the sums don't depend on the
// order of arrival.
void RowTable::apply_rounds(std::int64_t slowest,
                            const std::function<void(int member, std::int64_t round)>& heard) {
  if (rule_.rule == Rule::Each) return;
  while (counts_.rounds < slowest) {
    Kept sum;
    std::vector<int> members;
    std::vector<Rows> pushes;
    for (std::size_t m = 0; m < kept_.size(); ++m) {
      if (kept_[m].empty()) continue;  // the member has left
      if (members.empty()) sum.rate = kept_[m].front().rate;
      pushes.push_back(std::move(kept_[m].front().rows));
      share_.grow(-kept_bytes(static_cast<std::int64_t>(pushes.back().ids.size()), about_.width));
      kept_[m].pop_front();
      members.push_back(static_cast<int>(m));
    }
    if (members.empty()) return;  // all members have left
    add_in_pairs(pushes, [&](Rows& to, const Rows& from) {
      append(to, from);
      to = merge_rows(std::move(to), about_.width);
    });
    sum.rows = merge_rows(std::move(pushes.front()), about_.width);
    const auto parts = static_cast<std::int64_t>(members.size());
    const double factor = rule_.rule == Rule::RoundMean ? 1.0 / static_cast<double>(parts) : 1.0;
    if (sweep_ == nullptr) {
      cpu_tensor_kernels().scale(sum.rows.values.data(), static_cast<float>(factor),
                                 static_cast<std::int64_t>(sum.rows.values.size()));
    }
    apply(view_of(sum.rows), sum.rate, factor, ++counts_.updates);
    ++counts_.rounds;
    counts_.pushes += parts;
    for (const int member : members) heard(member, counts_.rounds);
  }
}

void RowTable::apply(const RowsView& rows, double rate, double factor, std::int64_t update) {
  const std::int64_t width = about_.width;
  const std::int64_t batch =
      std::clamp<std::int64_t>(kBatchFloats / width, 1, std::min(kBatchRows, rows.count + 1));
  SweepCall constants;
  if (sweep_ != nullptr) {
    constants = sweep_call(rule_.optimizer->settings, rate, factor, update);
    scratch_.resize(static_cast<std::size_t>((planes_ + 1) * batch * width));
  }
  records_.resize(static_cast<std::size_t>(rows.count));
  for (std::int64_t i = 0; i < rows.count; ++i)
    records_[static_cast<std::size_t>(i)] = change(rows.id(i));  // nothing throws from here on
  for (std::int64_t first = 0; first < rows.count; first += batch) {
    const std::int64_t count = std::min(batch, rows.count - first);
    float* const* const records = records_.data() + first;
    if (sweep_ == nullptr) {
      add(records, rows, first, count);
    } else {
      float* gradient = scratch_.data() + planes_ * count * width;
      std::memcpy(gradient, rows.values + bytes_of(first * width), bytes_of(count * width));
      sweep(records, constants, count);
    }
    for (std::int64_t i = 0; i < count; ++i) {
      raise_version(records[i] + planes_ * width, rows.updates(first + i));
    }
  }
}

namespace {

void ask_for(const float* record, std::int64_t floats) {
  for (std::int64_t line = 0; line < floats; line += 16) __builtin_prefetch(record + line, 1);
}

}  // namespace

void RowTable::add(float* const* records, const RowsView& rows, std::int64_t first,
                   std::int64_t count) {
  const std::int64_t width = about_.width;
  for (std::int64_t i = 0; i < std::min(kAhead, count); ++i) ask_for(records[i], stride_);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) ask_for(records[i + kAhead], stride_);
    float* __restrict row = records[i];
    const std::byte* __restrict delta = rows.values + bytes_of((first + i) * width);
    for (std::int64_t k = 0; k < width; ++k) row[k] += number_at<float>(delta, k);
  }
}

// Sweeps over a batch of rows: gathers them in scratch memory, changes them, and writes them back.
// The gradient follows the planes in the scratch memory.
void RowTable::sweep(float* const* records, const SweepCall& constants, std::int64_t count) {
  const std::int64_t width = about_.width;
  const std::int64_t plane = count * width;
  float* scratch = scratch_.data();
  for (std::int64_t i = 0; i < std::min(kAhead, count); ++i) ask_for(records[i], stride_);
  for (std::int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count) ask_for(records[i + kAhead], stride_);
    for (int p = 0; p < planes_; ++p) {
      std::memcpy(scratch + p * plane + i * width, records[i] + p * width, bytes_of(width));
    }
  }
  SweepCall call = constants;
  call.weight = scratch;
  for (int p = 1; p < planes_; ++p) call.state[p - 1] = scratch + p * plane;
  call.gradient = scratch + planes_ * plane;
  call.elements = plane;
  sweep_(call);
  for (std::int64_t i = 0; i < count; ++i) {
    for (int p = 0; p < planes_; ++p) {
      std::memcpy(records[i] + p * width, scratch + p * plane + i * width, bytes_of(width));
    }
  }
}

void RowTable::set(const RowsView& rows, int plane, std::int64_t updates) {
  const std::int64_t width = about_.width;
  for (std::int64_t i = 0; i < rows.count; ++i) {
    float* row = change(rows.id(i));
    std::memcpy(row + plane * width, rows.values + bytes_of(i * width), bytes_of(width));
    raise_version(row + planes_ * width, 1);
  }
  counts_.updates = updates;
}

Payload RowTable::read(const std::byte* ids, std::int64_t count, int plane) {
  const std::int64_t width = about_.width;
  const auto found = std::make_shared<std::vector<float>>(static_cast<std::size_t>(count * width));
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(found->data() + i * width, look_at(number_at<std::int64_t>(ids, i)) + plane * width,
                bytes_of(width));
  }
  return {reinterpret_cast<const std::byte*>(found->data()), found->size() * sizeof(float), found};
}

Payload RowTable::read_newer(const std::byte* ids, const std::byte* versions, std::int64_t count,
                             std::int64_t bound) {
  const std::int64_t width = about_.width;
  const auto found = std::make_shared<Bytes>();
  const auto put = [&](const void* data, std::size_t bytes) {
    const auto* begin = static_cast<const std::byte*>(data);
    found->insert(found->end(), begin, begin + bytes);
  };
  for (std::int64_t i = 0; i < count; ++i) {
    const float* row = look_at(number_at<std::int64_t>(ids, i));
    const std::int64_t version = version_at(row + planes_ * width);
    const auto known = number_at<std::int64_t>(versions, i);
    if (known >= 0 && version - known <= bound) continue;
    const auto place = static_cast<std::uint32_t>(i);
    put(&place, sizeof place);
    put(&version, sizeof version);
    put(row, bytes_of(width));
  }
  return {found->data(), found->size(), found};
}

}  // namespace hetu::ps::server
