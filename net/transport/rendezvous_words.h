// What the two sides of a rendezvous say to each other: rendezvous_host.cpp and
// rendezvous_guest.cpp.
//
// A packet holds fields. The host greets: kMagic, kProtocol, a nonce, and why nobody is let in any
// more ("": somebody is). The guest answers with its proof and a Hello. The host says Proof(kAll),
// the members, or kNo, why not and the
// error's code_name. After that exchanges: each guest a text, the host all of them.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/transport/frame.h"
#include "net/transport/rendezvous.h"

namespace hetu::comm {

inline constexpr const char* kMagic = "hetu-rendezvous";
inline constexpr const char* kProtocol = "1";
inline constexpr const char* kAll = "all";
inline constexpr const char* kNo = "no";
inline constexpr std::size_t kLongestHello = 8192;  // from whoever has not proved who it is
inline constexpr std::size_t kLongestPacket = 64 << 20;
inline constexpr std::int64_t kLook =
    kSecond / 5;                           // ns between two looks at signals and at the time
inline constexpr double kPatience_s = 10;  // with one that has connected and says nothing

/// Who comes.
struct Hello {
  int rank = 0;
  int workers = 0;
  Member member;
  std::string build;  ///< digest of the program's file
  std::string words;  ///< its command line
  std::string nonce;
};

std::string pack_hello(const Hello& hello);
std::optional<Hello> unpack_hello(const std::string& text);
/// What this process says of itself.
Hello own_hello(const RendezvousPlace& place);

/// "rank 1 (host w1, process 7)"
std::string name_of(int rank, const Member& member);
/// "1, 2 and 5"
std::string listed(const std::vector<int>& ranks);
/// The Unix socket where the processes of one host meet.
Address meeting_point(const RendezvousPlace& place);
std::string where_of(const RendezvousPlace& place);

std::unique_ptr<Rendezvous> host_rendezvous(const RendezvousPlace& place);
std::unique_ptr<Rendezvous> join_rendezvous(const RendezvousPlace& place);

}  // namespace hetu::comm
