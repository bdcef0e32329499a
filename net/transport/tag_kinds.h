// What messages are for, beside instructions (whose kinds are hetu::Kind, below 32): the `kind` of
// their tags. All in one place, so that no two purposes share one.
#pragma once

namespace hetu {

inline constexpr int kCountTag = 40;      ///< counts of a step, before its first forward
inline constexpr int kScalarTag = 41;     ///< losses and norms of a step
inline constexpr int kControlTag = 42;    ///< steps of a rehearsal
inline constexpr int kStartTag = 43;      ///< what is checked before the first step
inline constexpr int kSaveTag = 44;       ///< checkpoints
inline constexpr int kTraceTag = 45;      ///< traces
inline constexpr int kBufferTag = 46;     ///< means of buffers over pipelines
inline constexpr int kSharedTag = 47;     ///< whether all hosts see a folder
inline constexpr int kReportTag = 48;     ///< results of a run, to worker 0
inline constexpr int kGrantTag = 49;      ///< how far a run goes, from worker 0
inline constexpr int kAverageTag = 50;    ///< weights averaged within a group
inline constexpr int kConsensusTag = 51;  ///< state averaged over all pipelines
inline constexpr int kCompareTag = 52;    ///< tensors of a step, beside those of one process
inline constexpr int kRowsTag = 53;       ///< rows that one worker reads for others
inline constexpr int kTablesTag = 54;     ///< tables on servers have what all have pushed
inline constexpr int kFetchTag = 55;      ///< tensors that runs which do not train report
inline constexpr int kShortTag = 56;      ///< how many rows a step has, which may be short
inline constexpr int kLookTag = 57;       ///< weights and gradients by name, for whoever asks
inline constexpr int kDriftTag = 58;      ///< times of a cycle of K-FAC's work
inline constexpr int kNcclTag = 59;       ///< how communicators of NCCL begin
inline constexpr int kOwnerTag = 60;      ///< weights of a module, from the workers that own them

}  // namespace hetu
