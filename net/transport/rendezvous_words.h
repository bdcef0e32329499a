// Protocol between the two sides of a rendezvous: rendezvous_host.cpp and rendezvous_guest.cpp.
//
// All packets hold fields (pack_fields):
//   host:  kMagic, kProtocol, a nonce, and the reason why the job is closed ("" if it is open)
//   guest: its proof of the secret ("" on the same host), and a packed Hello
//   host:  kAll, its proof, the packed members; or kNo, the reason, the error's code_name
// After that each exchange is one text from every guest, answered by the host with kAll and all
// texts.
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
// In bytes; limit for a peer that has not proved who it is.
inline constexpr std::size_t kLongestHello = 8192;
inline constexpr std::size_t kLongestPacket = 64 << 20;  // in bytes
// Time between two checks of signals and of the deadline, in ns.
inline constexpr std::int64_t kLook = kSecond / 5;
// Limit for a caller that has connected and sends nothing.
inline constexpr double kPatience_s = 10;

/// A process's introduction of itself.
struct Hello {
  int rank = 0;
  int workers = 0;
  Member member;
  std::string build;  ///< digest of the file that this code was loaded from
  std::string words;  ///< command line of the process
  std::string nonce;  ///< random text that the host's proof must contain
};

/// Packs a Hello into text; unpack_hello is the inverse, and returns nullopt for malformed text.
std::string pack_hello(const Hello& hello);
std::optional<Hello> unpack_hello(const std::string& text);
/// Returns the introduction of this process.
Hello own_hello(const RendezvousOptions& options);

/// Returns a rank's name for messages: "rank 1 (host w1, process 7)".
std::string name_of(int rank, const Member& member);
/// Returns a list of ranks for messages: "ranks 1, 2 and 5".
std::string listed(const std::vector<int>& ranks);
/// Returns the address of the Unix socket where the processes of one host meet.
Address meeting_point(const RendezvousOptions& options);
/// Returns the meeting point as text for messages.
std::string where_of(const RendezvousOptions& options);

/// Creates rank 0's side of a rendezvous (host_rendezvous), or that of another rank
/// (join_rendezvous). Blocks until all processes have met.
std::unique_ptr<Rendezvous> host_rendezvous(const RendezvousOptions& options);
std::unique_ptr<Rendezvous> join_rendezvous(const RendezvousOptions& options);

}  // namespace hetu::comm
