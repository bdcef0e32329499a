#include "net/transport/connect.h"

#include <string>

#include "base/error.h"
#include "net/transport/mpi.h"
#include "net/transport/sockets.h"

namespace hetu::comm {
namespace {

struct Row {
  const char* name;
  std::unique_ptr<Transport> (*connect)(const Options& options);
};

constexpr Row kRows[] = {{"mpi", &connect_mpi}, {"sockets", &connect_sockets}};

}  // namespace

std::unique_ptr<Transport> connect(std::string_view transport, const Options& options) {
  std::string known;
  for (const Row& row : kRows) {
    if (transport == row.name) return row.connect(options);
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  fail(Code::InvalidArgument, "unknown transport '{}' (HETU_TRANSPORT); known: {}", transport,
       known);
}

std::vector<const char*> transport_names() {
  std::vector<const char*> names;
  for (const Row& row : kRows) names.push_back(row.name);
  return names;
}

}  // namespace hetu::comm
