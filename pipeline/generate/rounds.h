// The order of interleaved methods, in which micro-batches go through a worker's chunks in rounds.
#pragma once
#include <algorithm>

#include "pipeline/generate/generate.h"

namespace hetu {

/// Rounds of interleaved methods. There are max(1, M div P) rounds of `micros` micro-batches each.
/// Within a round all micro-batches run through one chunk before the next chunk. With one chunk,
/// rounds don't change the order, and `micros` is 1.
/// Source: Narayanan et al. 2021 (Megatron-LM), section 2.2.2, where M is a multiple of P; relaxed
/// as in torch.distributed.pipelining.
struct Rounds {
  int chunks;
  int micros;

  explicit Rounds(const Sizes& s)
      : chunks(s.chunks),
        micros(s.chunks == 1 ? 1 : s.micro_batches / std::max(1, s.micro_batches / s.stages)) {}

  /// Returns the number of instructions of one kind that a worker has in a round.
  int size() const { return chunks * micros; }
  /// Returns the chunk of the n-th forward.
  int forward_chunk(int n) const { return n / micros % chunks; }
  /// Returns the chunk of the n-th backward, input gradient or weight gradient.
  int backward_chunk(int n) const { return chunks - 1 - forward_chunk(n); }
  /// Returns the micro-batch of the n-th instruction of a kind.
  int micro(int n) const { return n / size() * micros + n % micros; }
};

}  // namespace hetu
