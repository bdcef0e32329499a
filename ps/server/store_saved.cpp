// Saving a store as the pieces of a snapshot.
#include "ps/server/store_saved.h"

#include "ps/server/store.h"

namespace hetu::ps::server {

namespace {
// A join is saved as a message header, which may be longer than a text because of an optimizer's
// ranges.
Payload header_of(const Join& join) {
  const auto bytes = std::make_shared<Bytes>(encode(1, join));
  return {bytes->data(), bytes->size(), bytes};
}

/// Collects pieces in the order in which they are loaded.
class Saving {
 public:
  using Of = Saved::Of;

  template <class Fields>
  void add(Of of, const Fields& fields, Payload values = {}) {
    Saved to(of);
    fields(to);
    pieces_.push_back(to.take(std::move(values)));
  }

  void table(TableState& table) {
    add(
        Of::Table, [](Saved&) {}, header_of(Saved::opening(table)));
    for (auto& [key, first] : table.arriving) {
      int index = key;
      FirstPlanes& all = first;
      for (auto& [at, values] : first.planes) {
        int plane = at;
        add(
            Of::Arriving,
            [&](Saved& to) { to.text(table.name).number(index).arriving(plane, all); },
            values.lend());
      }
    }
    for (auto& [index, state] : table.parts) part(table.name, index, state);
    if (table.rows) rows(table.name, *table.rows);
  }
  std::vector<Piece> take() { return std::move(pieces_); }

 private:
  void part(std::string& table, int index, Part& part) {
    UpdateCounts counts = part.state.counts();
    add(
        Of::Part, [&](Saved& to) { to.text(table).number(index).part(counts, part); },
        part.state.lend(0));
    for (int plane = 1; plane < part.state.planes(); ++plane) {
      add(
          Of::Plane, [&](Saved& to) { to.text(table).number(index).number(plane); },
          part.state.lend(plane));
    }
    for (int member = 0; member < static_cast<int>(part.clocks.size()); ++member) {
      for (PartState::Kept kept : part.state.kept(member)) {
        const auto* data = reinterpret_cast<const std::byte*>(kept.values.get());
        const std::size_t bytes = static_cast<std::size_t>(part.state.elements()) * sizeof(float);
        add(Of::Kept,
            [&](Saved& to) { to.text(table).number(index).number(member).number(kept.rate); },
            {data, bytes, kept.values});
      }
    }
    for (Answered& one : part.answered) {
      const bool is_newest = one.values.data == part.state.lend(one.plane).data;
      add(
          Of::Answered, [&](Saved& to) { to.text(table).number(index).answered(one); },
          is_newest ? Payload{} : one.values);
    }
  }

  void rows(std::string& table, RowsState& rows) {
    UpdateCounts counts = rows.state.counts();
    add(Of::Rows, [&](Saved& to) { to.text(table).rows(counts, rows); });
    for (auto& [block, records] : rows.state.lend_blocks()) {
      add(
          Of::Block, [&, &block = block](Saved& to) { to.text(table).number(block); }, records);
    }
    for (RowTable::KeptPiece& piece : rows.state.kept_pieces()) {
      add(
          Of::KeptRows, [&](Saved& to) { to.text(table).kept_rows(piece); }, piece.rows);
    }
  }

  std::vector<Piece> pieces_;
};

}  // namespace

std::vector<Piece> save(StoreState& store) {
  using Of = Saved::Of;
  Saving saving;
  for (auto& [session, client] : store.clients) {
    saving.add(Of::Client, [&client = *client](Saved& to) { to.client(client); });
  }
  for (auto& [key, table] : store.tables) saving.table(*table);
  for (auto& [key, client] : store.clients) {
    std::uint64_t session = key;
    for (auto& [index, membership] : client->memberships) {
      int number = index;
      saving.add(Of::Membership, [&, &membership = membership](Saved& to) {
        to.number(session).number(number).text(membership.table->name).number(membership.member);
      });
    }
  }
  for (auto& [client, join, share] : store.early) {
    saving.add(
        Of::Early, [&client = client](Saved& to) { to.number(client->session); }, header_of(join));
  }
  for (auto& [key, reason] : store.died_before) {
    int worker = key;
    saving.add(Of::Died, [&, &reason = reason](Saved& to) { to.number(worker).text(reason); });
  }
  return saving.take();
}

std::vector<Piece> Store::save() { return server::save(*state_); }

}  // namespace hetu::ps::server
