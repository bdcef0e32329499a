// Two or more processes add up vectors over a parameter server, without heturun. Members may also
// be processes of sum_vectors.py:
//   hetu ps serve --listen tcp://127.0.0.1:* --keys job.keys &
//   build/bin/example_sum_vectors job.keys 0 2 & build/bin/example_sum_vectors job.keys 1 2
// Needs only hetu::parameter_client.
#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "net/wire/connection_file.h"
#include "ps/client/parameter_client.h"

int main(int count, char** words) try {
  if (count != 4) return std::fputs("usage: sum_vectors FILE MEMBER MEMBERS\n", stderr), 2;
  const int member = std::atoi(words[2]), members = std::atoi(words[3]);
  std::vector<float> sums(1000);

  const auto client =
      hetu::ps::connect_servers(hetu::ps::address_from(words[1]), {.worker = member});
  const int table =
      client->open({.name = "sums", .elements = 1000, .members = members}, member, sums.data());
  for (int step = 1; step <= 3; ++step) {
    client->push(table, std::vector<float>(1000, static_cast<float>(member + 1)));
    client->pull(table, step, sums.data());  // once every member has pushed `step` times
    client->wait(table, [] { return std::string("the sums"); });
  }
  std::printf("member %d: %g … %g\n", member, sums.front(), sums.back());
} catch (const hetu::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return hetu::exit_status(error.code());
}
