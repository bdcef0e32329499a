// Frames that ZeroMQ sends without a copy, for the ZeroMQ sources of ps/.
#pragma once
#include <cstddef>
#include <memory>
#include <zmq.hpp>

namespace hetu::ps {

/// Returns a frame of bytes that `owner` keeps alive. Nothing is copied. ZeroMQ's thread releases
/// its reference to `owner` after sending.
inline zmq::message_t frame_of(const std::byte* data, std::size_t bytes,
                               const std::shared_ptr<const void>& owner) {
  if (bytes == 0) return {};
  const auto free_owner = [](void*, void* kept) {
    delete static_cast<std::shared_ptr<const void>*>(kept);
  };
  return {const_cast<std::byte*>(data), bytes, free_owner, new std::shared_ptr<const void>(owner)};
}

}  // namespace hetu::ps
