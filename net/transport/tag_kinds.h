// The `kind` field of message tags for all purposes other than instructions. Kinds of instructions
// are hetu::Kind, below 32. All kinds are listed in this file so that no two purposes share one.
#pragma once

namespace hetu {

inline constexpr int kCountTag = 40;      ///< counts of a step, exchanged before its first forward
inline constexpr int kScalarTag = 41;     ///< losses and norms of a step
inline constexpr int kControlTag = 42;    ///< starts, ends and records of rehearsed steps
inline constexpr int kStartTag = 43;      ///< checks before the first step
inline constexpr int kSaveTag = 44;       ///< checkpoints
inline constexpr int kTraceTag = 45;      ///< traces
inline constexpr int kBufferTag = 46;     ///< means of buffers over pipelines
inline constexpr int kSharedTag = 47;     ///< checks whether all hosts see the same folder
inline constexpr int kReportTag = 48;     ///< results of a run, to worker 0
inline constexpr int kGrantTag = 49;      ///< number of steps that a run may take, from worker 0
inline constexpr int kAverageTag = 50;    ///< weights averaged within a group
inline constexpr int kConsensusTag = 51;  ///< state averaged over all pipelines
inline constexpr int kCompareTag = 52;  ///< tensors of a step, for comparison with a single process
inline constexpr int kRowsTag = 53;     ///< rows that one worker reads for others
/// Barriers after which the servers' tables contain all that workers sent before.
inline constexpr int kTablesTag = 54;
inline constexpr int kFetchTag = 55;  ///< tensors fetched by runs that do not train
inline constexpr int kShortTag = 56;  ///< number of rows of a step, which may be short
inline constexpr int kLookTag = 57;   ///< weights and gradients by name, for a reader
inline constexpr int kDriftTag = 58;  ///< measured times of a cycle of K-FAC work
inline constexpr int kNcclTag = 59;   ///< unique ids of NCCL communicators
inline constexpr int kOwnerTag = 60;  ///< weights of a module, from the workers that own them

}  // namespace hetu
